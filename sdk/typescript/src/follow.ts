import { ApiError } from './errors.js';

// How many are followed before they count as a circle.
const most = 5;

/**
 * Sends a request on to where an answer leads. What is not followed is an error that says what to do: by itself, fetch
 * makes a GET of a POST.
 */
export async function follow(send: typeof fetch, request: Request, response: Response): Promise<Response> {
  for (let followed = 0; leadsAway(response); followed++) {
    // Browsers tell neither the status nor the target. They may follow where that cannot change the method.
    if (response.type === 'opaqueredirect' && request.method === 'GET') return send(new Request(request, { redirect: 'follow' }));
    const target = followed < most ? await targetOf(request, response) : undefined;
    if (!target) throw await notFollowed(request, response);
    await response.body?.cancel();
    const { method, headers, signal } = request;
    const body = request.body ? await request.arrayBuffer() : null;
    request = new Request(target, { method, headers, signal, body, redirect: 'manual' });
    response = await send(request.clone());
  }
  return response;
}

/** Whether an answer leads elsewhere. */
const leadsAway = ({ status, type }: Response): boolean =>
  type === 'opaqueredirect' || (status >= 300 && status < 400 && status !== 304);

/**
 * Where the same request may be sent to; undefined for an answer that leads nowhere. 301, 302 and 303 would make a GET
 * of it, which creates nothing and looks like a success. Another host gets the key only where the service itself says,
 * with the same path, that the organization has moved there; and nothing goes on in the clear that came encrypted.
 */
async function targetOf(request: Request, response: Response): Promise<URL | undefined> {
  const there = locationOf(request, response);
  if (!there || (response.status !== 307 && response.status !== 308)) return undefined;
  const here = new URL(request.url);
  if (there.protocol !== 'https:' && there.protocol !== here.protocol) return undefined;
  if (there.hostname === here.hostname) return there;
  if (response.status !== 307 || there.pathname !== here.pathname || there.search !== here.search) return undefined;
  const said = (await response.clone().json().catch(() => null)) as { code?: string } | null;
  return said?.code === 'moved' ? there : undefined;
}

function locationOf(request: Request, response: Response): URL | undefined {
  try {
    return new URL(response.headers.get('Location') ?? '//', response.url || request.url);
  } catch {
    return undefined;
  }
}

/** Says what to do about an answer that is not followed. It names no query, which may hold a token of a stream. */
async function notFollowed(request: Request, response: Response): Promise<ApiError> {
  const said = (await response.json().catch(() => null)) as object | null;
  return new ApiError(response.status, { ...said, detail: advice(request, response) }, response.headers);
}

function advice(request: Request, response: Response): string {
  const there = locationOf(request, response);
  if (!there) return 'the answer leads elsewhere, and does not say where: check the url of the client';
  let address = there.origin + there.pathname;
  const path = new URL(response.url || request.url).pathname.replace(/^.*?(?=\/v1\/)/, '');
  if (address.endsWith(path)) address = address.slice(0, -path.length);
  return `the answer leads to ${address}, which is not followed: if that is the service, give it as the client's url`;
}
