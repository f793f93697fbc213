/** Bytes that are read of a file at a time. */
const blockBytes = 1 << 20;

/** The longest line, in bytes: a record must fit into one request. */
export const longestLine = 15 << 20;

/** Whole lines of a file, with the number of the first of them, and how much of the file has been read by then. */
export interface Block {
  lines: string[];
  first: number;
  /** Bytes of the file up to the end of the block. */
  read: number;
  bytes: Uint8Array;
  /** Whether each character is one byte. */
  ascii: boolean;
}

/** A file that cannot be read any further, and the line at which that is so. */
export class LineError extends Error {
  constructor(readonly line: number, message: string) {
    super(message);
  }
}

/** Reads a file of UTF-8 in blocks of whole lines, without their ends. It holds about one block of the file, or the longest line. */
export async function* blocks(file: Blob): AsyncGenerator<Block, void, undefined> {
  let carry: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  let number = 1;
  for (let at = 0; at < file.size; ) {
    const piece = new Uint8Array(await file.slice(at, at + blockBytes).arrayBuffer());
    at += piece.length;
    const last = at >= file.size;
    const end = last ? piece.length : piece.lastIndexOf(10) + 1;
    if (carry.length + (end === 0 ? piece.length : 0) > longestLine) throw new LineError(number, `is longer than ${longestLine} bytes`);
    const whole = joined(carry, piece.subarray(0, end));
    carry = end === 0 ? joined(carry, piece) : piece.slice(end);
    if (end === 0) continue;
    const text = decode(whole, number);
    const lines = text.split('\n').map((line) => (line.endsWith('\r') ? line.slice(0, -1) : line));
    if (!last || lines.at(-1) === '') lines.pop();
    if (number === 1 && lines[0]?.startsWith('\uFEFF')) lines[0] = lines[0].slice(1);
    yield { lines, first: number, read: at, bytes: whole, ascii: text.length === whole.length };
    number += lines.length;
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** The text of whole lines; the byte of a line's end is part of no other character, so that each line can be looked at by itself. */
function decode(bytes: Uint8Array, first: number): string {
  const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  try {
    return strict.decode(bytes);
  } catch {
    let number = first;
    for (let from = 0; from < bytes.length; number++) {
      const end = bytes.indexOf(10, from);
      const line = bytes.subarray(from, end < 0 ? bytes.length : end);
      try {
        strict.decode(line);
      } catch {
        break;
      }
      from = end < 0 ? bytes.length : end + 1;
    }
    throw new LineError(number, 'is not valid UTF-8; save the file as UTF-8 first');
  }
}
