import { blocks } from './blocks';
import { rowsOf, type Format } from './rows';

/** A part of the records, as the body of the request that stores it. */
export interface Chunk {
  index: number;
  records: number;
  body: Uint8Array<ArrayBuffer>;
}

/** Reads a file that was checked as the requests of an upload, each of chunkSize records but the last, from the one of that index on. */
export async function* chunks(file: Blob, format: Format, chunkSize: number, from: number): AsyncGenerator<Chunk, void, undefined> {
  const encoder = new TextEncoder();
  const full: string[][] = [];
  let rows: string[] = [];
  let index = 0;
  const reader = rowsOf(format, {
    row: (json) => {
      rows.push(json);
      if (rows.length < chunkSize) return;
      full.push(rows);
      rows = [];
    },
    mistake: (line, message) => {
      throw new Error(`The file has changed: line ${line} ${message}.`);
    },
  });
  const next = (records: string[]): Chunk | undefined => {
    const at = index++;
    if (at < from) return undefined;
    return { index: at, records: records.length, body: encoder.encode(`{"chunk_index":${at},"records":[${records.join(',')}]}`) };
  };
  for await (const block of blocks(file)) {
    block.lines.forEach((line, i) => reader.line(line, block.first + i));
    for (const records of full.splice(0)) {
      const chunk = next(records);
      if (chunk) yield chunk;
    }
  }
  reader.end();
  const rest = rows.length > 0 ? next(rows) : undefined;
  if (rest) yield rest;
}
