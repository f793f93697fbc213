/** Reads text line by line as it arrives, without the ends of the lines. What a cut leaves of a last line is lost with the error. */
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let done = false;
  try {
    while (!done) {
      const read = await reader.read();
      done = read.done;
      rest += decoder.decode(read.value, { stream: !done });
      const found = rest.split('\n');
      rest = found.pop()!;
      for (const line of found) yield line.endsWith('\r') ? line.slice(0, -1) : line;
    }
    if (rest !== '') yield rest;
  } finally {
    if (!done) await reader.cancel().catch(() => undefined);
  }
}
