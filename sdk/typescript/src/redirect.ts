// How many are followed before they count as a circle.
const most = 5;

/**
 * Returns a fetch that sends a request on, with its key, to where an answer leads, where that is safe, and returns the
 * other redirections as they are. By itself, fetch makes a GET of a POST.
 */
export function following(send: typeof fetch): typeof fetch {
  return async (input, init) => {
    let request = new Request(input, { ...init, redirect: 'manual' });
    for (let followed = 0; ; followed++) {
      const response = await send(request.clone());
      if (response.type === 'opaqueredirect') return hidden(send, request, response);
      const target = followed < most ? await targetOf(request, response) : undefined;
      if (!target) return response;
      await response.body?.cancel();
      const { method, headers, signal } = request;
      const body = request.body ? await request.arrayBuffer() : null;
      request = new Request(target, { method, headers, signal, body, redirect: 'manual' });
    }
  };
}

/** Browsers tell neither the status nor the target. They may follow where that cannot change the method. */
function hidden(send: typeof fetch, request: Request, response: Response): Response | Promise<Response> {
  return request.method === 'GET' ? send(new Request(request, { redirect: 'follow' })) : response;
}

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

/** Whether an answer leads elsewhere. */
export const leadsAway = ({ status, type }: Response): boolean =>
  type === 'opaqueredirect' || (status >= 300 && status < 400 && status !== 304);

/** What to do about an answer that was not followed. It has no query, which may hold a token of a stream. */
export function notFollowed(request: Request, response: Response): string {
  const there = locationOf(request, response);
  if (!there) return 'the answer leads elsewhere, and does not say where: check the url of the client';
  let address = there.origin + there.pathname;
  const path = new URL(response.url || request.url).pathname.replace(/^.*?(?=\/v1\/)/, '');
  if (address.endsWith(path)) address = address.slice(0, -path.length);
  return `the answer leads to ${address}, which is not followed: if that is the service, give it as the client's url`;
}
