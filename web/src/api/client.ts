import { ApiError, Flowlane } from '../../../sdk/typescript/src/index';
import { write } from '../lib/exact';

export type * from '../../../sdk/typescript/src/gen/types.gen';
export { ApiError };

/** Sends what the client asks for with the cookie of the session, and says that a page of this console asks. */
const sameOrigin: typeof fetch = (input, init) => {
  const request = new Request(input, init);
  request.headers.set('X-Flowlane-Console', '1');
  return fetch(request, { credentials: 'same-origin' });
};

/** The service that this page comes from. It does not send again by itself: pages say that something failed, and read again. */
export const flowlane = new Flowlane({ url: location.origin, fetch: sameOrigin, retries: 0 });

/** The same, for what people wait for and would send again themselves: what may pass is sent again for some seconds. */
export const patient = new Flowlane({ url: location.origin, fetch: sameOrigin });

// What somebody typed is sent with the digits that were typed.
for (const { client } of [flowlane, patient]) client.setConfig({ bodySerializer: (body: unknown) => write(body) });

/** Signs in with an API key, or with the text of a link that the service printed. */
export async function signIn(secret: string): Promise<void> {
  const header: Record<string, string> = secret.startsWith('flow_') ? { 'X-API-Key': secret } : { Authorization: `Bearer ${secret}` };
  const answer = await fetch('/v1/account/session', { method: 'POST', headers: { ...header, 'X-Flowlane-Console': '1' } });
  if (!answer.ok) throw new ApiError(answer.status, await answer.json().catch(() => undefined), answer.headers);
}

/** Whether somebody has to sign in before this can work. */
export const signedOut = (error: unknown): boolean => error instanceof ApiError && error.status === 401;

/** A read that failed is tried again twice where that can help. */
export const mayRetry = (failures: number, error: unknown): boolean =>
  failures < 2 && !(error instanceof ApiError && error.status < 500 && error.status !== 429);
