const lineEnd = 10;

/**
 * Reads text line by line as it arrives, without the ends of the lines, and without a byte order mark in front. What a
 * cut leaves of a last line is lost with the error. What is not UTF-8 is an error: it must not become other letters.
 */
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const text = new Text();
  let rest: Uint8Array[] = [];
  let done = false;
  try {
    while (!done) {
      const read = await reader.read();
      done = read.done;
      const chunk = read.value ?? new Uint8Array();
      const end = chunk.lastIndexOf(lineEnd) + 1;
      if (end > 0 || done) {
        yield* text.lines(joined([...rest, chunk.subarray(0, end)]));
        rest = [];
      }
      if (end < chunk.length) rest.push(chunk.subarray(end));
    }
  } finally {
    if (!done) await reader.cancel().catch(() => undefined);
  }
}

/** Makes texts of the bytes of whole lines. */
class Text {
  // A mark that does not begin the text belongs to it.
  private readonly decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  private number = 0;

  lines(bytes: Uint8Array): string[] {
    let text: string;
    try {
      text = this.decoder.decode(bytes);
    } catch {
      throw new Error(
        `Line ${this.wrong(bytes)} is not UTF-8; if it is of a file, save that as UTF-8 (in Excel: "CSV UTF-8")`,
      );
    }
    if (this.number === 0) text = text.replace(/^\uFEFF/, '');
    const found = text.split('\n');
    if (found.at(-1) === '') found.pop();
    this.number += found.length;
    return found.map((line) => (line.endsWith('\r') ? line.slice(0, -1) : line));
  }

  /** The number of the first line that is not UTF-8. */
  private wrong(bytes: Uint8Array): number {
    let from = 0;
    for (let number = this.number + 1; ; number++) {
      const end = bytes.indexOf(lineEnd, from);
      if (end < 0) return number;
      try {
        this.decoder.decode(bytes.subarray(from, end));
      } catch {
        return number;
      }
      from = end + 1;
    }
  }
}

function joined(parts: Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
