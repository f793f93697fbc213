import { describe, expect, it } from 'vitest';

import { blocks, LineError } from '../src/upload/blocks';
import { chunks, type Chunk } from '../src/upload/chunks';
import { check, Sizes } from '../src/upload/report';
import { formatOf, type Format } from '../src/upload/rows';
import { Sending } from '../src/upload/send';

const bytes = (text: string, ...more: Array<Uint8Array<ArrayBuffer> | string>) => new Blob([text, ...more]);
const look = (file: Blob, format: Format) => check(file, format, () => undefined);
const wrong = async (text: Blob | string, format: Format = 'csv') =>
  (await look(typeof text === 'string' ? bytes(text) : text, format)).mistakes.map((m) => `${m.line} ${m.message}`);

async function bodies(file: Blob, format: Format, chunkSize: number, from = 0): Promise<string[]> {
  const all: string[] = [];
  for await (const chunk of chunks(file, format, chunkSize, from)) all.push(new TextDecoder().decode(chunk.body));
  return all;
}

const rows = async (text: Blob | string, format: Format = 'csv') =>
  (JSON.parse((await bodies(typeof text === 'string' ? bytes(text) : text, format, 1000))[0] ?? '{"records":[]}') as { records: unknown[] }).records;

describe('CSV', () => {
  it('becomes objects of strings', async () => {
    expect(await rows('\uFEFFid,name\r\n007,Ada\r\n\r\n2,\n')).toEqual([{ id: '007', name: 'Ada' }, { id: '2', name: '' }]);
    expect(await rows('ключ,é\nя,ü😀')).toEqual([{ ключ: 'я', é: 'ü😀' }]);
    expect(await rows('"a,b",c\n"x ""y"", z","two\nlines\n"\n"",w\n')).toEqual([{ 'a,b': 'x "y", z', c: 'two\nlines\n' }, { 'a,b': '', c: 'w' }]);
  });

  it('is refused with the line of each mistake', async () => {
    expect(await wrong('id,x\n1,2\n3\n4,5,6\n7,"a"b\n8,a"b\n9,ok\n')).toEqual([
      '3 has 1 value, and the first line names 2 columns', '4 has 3 values, and the first line names 2 columns',
      '5 has a letter after the quote that ends a value; a quote inside of a value is doubled',
      '6 has a quote inside of a value that is not quoted; quote the value, and double the quote',
    ]);
    expect(await wrong('id,x\n1,"2\n"\n3,4,5\n')).toEqual(['4 has 3 values, and the first line names 2 columns']);
    expect(await wrong('id\n1\n"a\nb\n')).toEqual(['3 begins a value in quotes that is not ended']);
    expect(await wrong('id\na\0b\n')).toEqual(['2 holds a NUL byte, which cannot be stored']);
    expect(await wrong('')).toEqual(['1 must name the columns: the file is empty']);
    expect(await wrong('id,x,id\n1,2,3\n')).toEqual(['1 names columns 1 and 3 both "id"']);
    expect(await wrong('id, ,x\n1,2,3\n')).toEqual(['1 gives column 2 no name']);
    expect(await wrong('id\n')).toEqual(['1 is followed by no record']);
  });

  it('is refused with the line that is not UTF-8', async () => {
    expect(await wrong(bytes('id,x\n1,ü\n2,', new Uint8Array([0xff]), '\n3,4\n'))).toEqual(['3 is not valid UTF-8; save the file as UTF-8 first']);
  });

  it('tells its columns and how many records fill them', async () => {
    expect((await look(bytes('id,x\n1,\n2,y\n'), 'csv')).columns).toEqual([{ name: 'id', filled: 2 }, { name: 'x', filled: 1 }]);
  });

  it('lists the first mistakes and counts all', async () => {
    const report = await look(bytes(`id\n${'1,2\n'.repeat(100)}`), 'csv');
    expect([report.mistakes.length, report.mistaken]).toEqual([20, 100]);
  });
});

describe('NDJSON', () => {
  it('keeps the text of each object', async () => {
    expect(await bodies(bytes('{"id":1.50}\n\n { "id" : 12345678901234567890 }\r\n{"id":3}'), 'ndjson', 9)).toEqual([
      '{"chunk_index":0,"records":[{"id":1.50},{ "id" : 12345678901234567890 },{"id":3}]}',
    ]);
  });

  it('is refused with the line of each mistake', async () => {
    expect(await wrong('{}\n\n{"a":}\n[1]\n"x"\n{} {}\n{"a":"\\u0000"}\n{"a":"\\\\u0000"}\n', 'ndjson')).toEqual([
      '3 is not valid JSON', '4 is not a JSON object: every record is one, on a line of its own',
      '5 is not a JSON object: every record is one, on a line of its own', '6 is not valid JSON', '7 holds a NUL byte, which cannot be stored',
    ]);
  });

  it('tells the columns of all records', async () => {
    expect((await look(bytes('{"a":1}\n{"b":null,"a":0}\n'), 'ndjson')).columns).toEqual([{ name: 'a', filled: 2 }, { name: 'b', filled: 0 }]);
  });
});

describe('a long file', () => {
  // Letters of two bytes, so that some are cut by the reads of one MiB each.
  const file = bytes(`id,text\n${Array.from({ length: 12_000 }, (_, i) => `${i},"${'ü'.repeat(i % 200)}\n""${i}"""\n`).join('')}`);

  it('is read in pieces, and each record comes once and whole', async () => {
    let pieces = 0;
    for await (const _ of blocks(file)) pieces++;
    expect(pieces).toBeGreaterThan(2);
    const found = (await bodies(file, 'csv', 2100)).flatMap((b) => (JSON.parse(b) as { records: Array<{ id: string; text: string }> }).records);
    expect(found.length).toBe(12_000);
    expect(found.findIndex((r, i) => r.id !== String(i) || r.text !== `${'ü'.repeat(i % 200)}\n"${i}"`)).toBe(-1);
  });

  it('goes on from a chunk', async () => {
    const all = await bodies(file, 'csv', 2100);
    expect(all.length).toBe(6);
    expect(await bodies(file, 'csv', 2100, 4)).toEqual(all.slice(4));
  });

  it('has the same fingerprint only for the same bytes', async () => {
    const [one, same, other] = await Promise.all([file, file.slice(), bytes('', file.slice(0, file.size - 4) as never, '\n"""')].map((f) => look(f as Blob, 'csv')));
    expect(one!.fingerprint).toBe(same!.fingerprint);
    expect(one!.fingerprint).not.toBe(other!.fingerprint);
  });

  it('is given up at a line that fits into no request', async () => {
    const read = async () => {
      for await (const _ of blocks(bytes(`{}\n${' '.repeat(17 << 20)}`)));
    };
    await expect(read()).rejects.toEqual(new LineError(2, 'is longer than 15728640 bytes'));
  });
});

describe('the number of records in a request', () => {
  const of = (...sizes: number[]) => {
    const all = new Sizes();
    for (const size of sizes) all.add(size);
    return all.chunk();
  };
  it('makes about four MiB of it', () => {
    expect(of(...Array<number>(9000).fill(1023))).toBe(4096);
    expect(of(1, 1)).toBe(50_000);
  });
  it('is smaller where a part of the records is large', () => {
    expect(of(...Array<number>(2000).fill(10), ...Array<number>(30).fill(1 << 20))).toBeLessThan(15);
  });
});

describe('the format', () => {
  it('is told by the end of the name', () => expect(['a.CSV', 'b.ndjson', 'c.jsonl', 'd.XLSX', 'e.xls'].map(formatOf)).toEqual(['csv', 'ndjson', 'ndjson', 'xlsx', undefined]));
});

describe('sending', () => {
  /** A service that stores chunks, and fails where it is told to. */
  function service(count: number) {
    const stored: number[] = [];
    const failing = new Set<number>();
    let given = 0;
    let now = 0;
    let most = 0;
    const sending = new Sending({
      next: async () => (given < count ? ({ index: given++, records: 1, body: new Uint8Array() } satisfies Chunk) : null),
      store: async ({ index }) => {
        most = Math.max(most, ++now);
        await new Promise((r) => setTimeout(r, index % 3));
        now--;
        if (failing.has(index)) throw new Error(`no ${index}`);
      },
      stored: ({ index }) => stored.push(index),
    });
    return { sending, stored, failing, most: () => most };
  }
  const sorted = (list: number[]) => [...list].sort((a, b) => a - b);

  it('stores all, two at a time', async () => {
    const s = service(9);
    expect(await s.sending.run()).toBe(true);
    expect([sorted(s.stored), s.most()]).toEqual([[0, 1, 2, 3, 4, 5, 6, 7, 8], 2]);
  });

  it('stops at a failure, with at most one chunk after it, and goes on with what is missing', async () => {
    const s = service(9);
    s.failing.add(4);
    await expect(s.sending.run()).rejects.toThrow('no 4');
    expect(sorted(s.stored).filter((i) => i > 4).length).toBeLessThanOrEqual(1);
    await expect(s.sending.run()).rejects.toThrow('no 4');
    s.failing.clear();
    expect(await s.sending.run()).toBe(true);
    expect(sorted(s.stored)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('pauses after what is under way, and loses nothing', async () => {
    const s = service(9);
    const run = s.sending.run();
    await new Promise((r) => setTimeout(r));
    s.sending.pause();
    expect(await run).toBe(false);
    expect(s.stored.length).toBeLessThan(9);
    expect(await s.sending.run()).toBe(true);
    expect(sorted(s.stored)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });
});
