import { lines } from './lines.js';

/** Reads CSV (RFC 4180) whose first row names the columns; every value is a string. */
export async function* csv(body: ReadableStream<Uint8Array>): AsyncGenerator<Record<string, string>, void, undefined> {
  let names: string[] | undefined;
  let open = '';
  for await (const line of lines(body)) {
    const text = open === '' ? line : `${open}\n${line}`;
    // An odd number of quotes: a value goes on after the end of the line.
    open = (text.match(/"/g)?.length ?? 0) % 2 === 1 ? text : '';
    if (open !== '' || text === '') continue;
    const values = row(text);
    if (!names) {
      names = values.map((name, i) => (i === 0 ? name.replace(/^\uFEFF/, '') : name));
      if (new Set(names).size < names.length) throw new Error(`CSV: two columns have one name: ${text.slice(0, 200)}`);
      continue;
    }
    if (values.length !== names.length) throw new Error(`CSV: ${values.length} values for ${names.length} columns: ${text.slice(0, 200)}`);
    yield Object.fromEntries(names.map((name, i) => [name, values[i]!]));
  }
  if (open !== '') throw new Error(`CSV: a quote is not closed: ${open.slice(0, 200)}`);
}

function row(text: string): string[] {
  return [...`,${text}`.matchAll(/,(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!);
}
