/** Returns a fetch that sends a request on, with its key, to where an answer leads, where that is safe; see follow.ts. */
export function following(send: typeof fetch): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, { ...init, redirect: 'manual' });
    const response = await send(request.clone());
    if (response.type !== 'opaqueredirect' && (response.status < 300 || response.status > 399)) return response;
    const { follow } = await import('./follow.js'); // which hardly anybody needs
    return follow(send, request, response);
  };
}
