import { FlowlaneError } from './errors.js';

/** How often and how patiently requests are sent again. */
export interface Retries {
  /** How often a request is sent again, 5 unless given; 0 for never. */
  retries?: number;
  /** Milliseconds before the first retry, 250 unless given. Each further wait is twice as long, up to 10 seconds. */
  backoff?: number;
}

const longest = 10_000;

/** Waits, or throws the reason of the signal when that is aborted meanwhile. */
export function sleep(ms: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal!.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/** Milliseconds to wait after the given number of failures: half of it by chance, so that many clients do not come at once. */
export function delay(failures: number, { backoff = 250 }: Retries): number {
  const most = Math.min(longest, backoff * 2 ** failures);
  return most / 2 + (Math.random() * most) / 2;
}

/** The operations that may be carried out twice although they are a POST without a key. */
const harmless = /\/(records|seal|validate|dry-run|estimate|test|stream-token)$/;

function repeatable(request: Request): boolean {
  if (request.method !== 'POST' && request.method !== 'PATCH') return true;
  return request.headers.has('Idempotency-Key') || (request.method === 'POST' && harmless.test(new URL(request.url).pathname));
}

/** Whether an answer says that a later request may succeed, and that this one did nothing or may be carried out twice. */
async function passing(request: Request, response: Response): Promise<boolean> {
  if (response.status === 429) return true;
  if (response.status !== 503) return [502, 504].includes(response.status) && repeatable(request);
  if (repeatable(request)) return true;
  const body = (await response.clone().json().catch(() => ({}))) as { code?: string };
  return response.headers.has('Retry-After') && body.code !== 'outcome_unknown';
}

/** Milliseconds that `Retry-After` asks for, as seconds or as a date by the clock of who answers; 0 where it says nothing. */
function retryAfter(headers: Headers): number {
  const text = headers.get('Retry-After') ?? '';
  const seconds = Number(text);
  if (!Number.isNaN(seconds)) return seconds * 1000;
  const now = Date.parse(headers.get('Date') ?? '') || Date.now();
  return Date.parse(text) - now || 0;
}

/** Returns a fetch that sends a request again where that can do no harm, after the time that `Retry-After` names. */
export function retrying(send: typeof fetch, options: Retries): typeof fetch {
  const { retries = 5 } = options;
  return async (input, init) => {
    const request = new Request(input, init);
    for (let failures = 0; ; failures++) {
      let wait = delay(failures, options);
      try {
        const response = await send(request.clone());
        if (failures >= retries || !(await passing(request, response))) return response;
        wait = Math.max(wait, retryAfter(response.headers));
        await response.body?.cancel();
      } catch (error) {
        if (error instanceof FlowlaneError || request.signal.aborted || failures >= retries || !repeatable(request)) throw error;
      }
      await sleep(wait, request.signal);
    }
  };
}
