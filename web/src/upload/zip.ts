/** What cannot be read of a file as a whole, as a sentence. */
export class BookError extends Error {}

/** Bytes of a directory of parts, and how many there may be. */
const mostDirectory = 4 << 20;
const mostParts = 10_000;

interface Part {
  at: number;
  packed: number;
  method: number;
}

const damaged = 'The workbook cannot be read: it is damaged, or no workbook.';

/** The parts of a ZIP file. They are unpacked as they are read, to no more bytes than the reader wants. */
export class Zip {
  private constructor(private readonly file: Blob, private readonly parts: Map<string, Part>) {}

  static async open(file: Blob): Promise<Zip> {
    const head = new Uint8Array(await file.slice(0, 8).arrayBuffer());
    if (head[0] === 0xd0 && head[1] === 0xcf) throw new BookError('The workbook is protected by a password, or of the old format .xls: save it as .xlsx without a password.');
    const tail = await view(file, Math.max(0, file.size - 65_557), file.size);
    let end = tail.byteLength - 22;
    while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) end--;
    if (end < 0) throw new BookError(damaged);
    const count = tail.getUint16(end + 10, true);
    const size = tail.getUint32(end + 12, true);
    const from = tail.getUint32(end + 16, true);
    if (count === 0xffff || from === 0xffffffff || count > mostParts || size > mostDirectory) throw new BookError('The workbook is too large to be read here: save the sheet as “CSV UTF-8”.');
    return new Zip(file, directory(await view(file, from, from + size), count));
  }

  has(name: string): boolean {
    return this.parts.has(name.toLowerCase());
  }

  /** Reads a part as text, piece by piece. read gets the bytes of the file that were taken. */
  async text(name: string, most: number, take: (text: string) => void, read: (bytes: number) => void = () => undefined): Promise<void> {
    const part = this.parts.get(name.toLowerCase());
    if (!part) throw new BookError(damaged);
    const local = await view(this.file, part.at, part.at + 30);
    if (local.byteLength < 30 || local.getUint32(0, true) !== 0x04034b50) throw new BookError(damaged);
    if (local.getUint16(6, true) & 1) throw new BookError('The workbook is protected by a password: save it without one.');
    const from = part.at + 30 + local.getUint16(26, true) + local.getUint16(28, true);
    let taken = 0;
    const packed = this.file.slice(from, from + part.packed).stream().pipeThrough(new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform(chunk, to) {
        taken += chunk.length;
        to.enqueue(chunk);
      },
    }));
    if (part.method !== 0 && part.method !== 8) throw new BookError(damaged);
    const reader = (part.method === 8 ? packed.pipeThrough(new DecompressionStream('deflate-raw')) : packed).getReader();
    const decoder = new TextDecoder('utf-8', { fatal: true });
    let size = 0;
    try {
      for (;;) {
        const { done, value } = await reader.read().catch(() => {
          throw new BookError(damaged);
        });
        if (done) break;
        size += value.length;
        if (size > most) throw new BookError(`The workbook holds more than can be read here: a part of it has more than ${Math.round(most / (1 << 20))} MiB.`);
        take(decode(decoder, value));
        read(taken);
      }
      take(decode(decoder));
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }
}

function decode(decoder: TextDecoder, bytes?: Uint8Array): string {
  try {
    return bytes ? decoder.decode(bytes, { stream: true }) : decoder.decode();
  } catch {
    throw new BookError(damaged);
  }
}

const view = async (file: Blob, from: number, to: number) => new DataView(await file.slice(from, to).arrayBuffer());

function directory(list: DataView, count: number): Map<string, Part> {
  const parts = new Map<string, Part>();
  const names = new TextDecoder();
  for (let at = 0; parts.size < count; ) {
    if (at + 46 > list.byteLength || list.getUint32(at, true) !== 0x02014b50) throw new BookError(damaged);
    const name = list.getUint16(at + 28, true);
    const text = names.decode(new Uint8Array(list.buffer, at + 46, Math.min(name, list.byteLength - at - 46)));
    // Names are told apart without regard to case. Of two that are the same nobody knows which one is meant.
    if (parts.has(text.toLowerCase())) throw new BookError(damaged);
    parts.set(text.toLowerCase(), { at: list.getUint32(at + 42, true), packed: list.getUint32(at + 20, true), method: list.getUint16(at + 10, true) });
    at += 46 + name + list.getUint16(at + 30, true) + list.getUint16(at + 32, true);
  }
  return parts;
}
