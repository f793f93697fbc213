import { readBook } from './book';
import { blocks, LineError, longestLine } from './blocks';
import { shownMistakes, type Mistake } from './mistake';
import { rowsOf, type FileFormat, type Format } from './rows';
import { BookError } from './zip';

/** A column of a file, and how many records have something in it. */
export interface Column {
  name: string;
  filled: number;
}

/** What a file holds. */
export interface Report {
  format: FileFormat;
  /** What there is to know of how it was read, as sentences. */
  notes: string[];
  records: number;
  columns: Column[];
  /** The first mistakes, and how many there are. */
  mistakes: Mistake[];
  mistaken: number;
  /** The JSON of the first record and of the longest one, and their lines. */
  first: { json: string; line: number } | undefined;
  longest: { json: string; line: number } | undefined;
  /** Bytes of all records as JSON. */
  bytes: number;
  /** Records in each request. */
  chunkSize: number;
  /** The same for the same bytes, by which an upload that was cut off is found again. */
  fingerprint: string;
}

const mostColumns = 1000;
const chunkBytes = 4 << 20;
const mostRecords = 50_000;

/** Reads all of a file, and finds every mistake. progress gets the bytes that are read. */
export async function check(file: Blob, format: Format, progress: (read: number) => void): Promise<Report> {
  const report: Report = {
    format, notes: [], records: 0, columns: [], mistakes: [], mistaken: 0, first: undefined, longest: undefined, bytes: 0, chunkSize: 1, fingerprint: '',
  };
  const sizes = new Sizes();
  const filled = new Map<string, Column>();
  const encoder = new TextEncoder();
  let ascii = true;
  const mistake = (line: number, message: string) => {
    if (report.mistaken++ < shownMistakes) report.mistakes.push({ line, message });
  };
  const row = (json: string, line: number, values?: string[]) => {
    const size = ascii ? json.length : encoder.encode(json).length;
    if (size > longestLine) return mistake(line, `is a record of ${size} bytes; it may have ${longestLine}`);
    sizes.add(size);
    report.first ??= { json, line };
    if (json.length > (report.longest?.json.length ?? 0)) report.longest = { json, line };
    if (values) values.forEach((value, i) => (report.columns[i]!.filled += value === '' ? 0 : 1));
    else count(filled, JSON.parse(json) as Record<string, unknown>);
  };
  const rows = rowsOf(format, { columns: (names) => (report.columns = names.map((name) => ({ name, filled: 0 }))), row, mistake });
  const print = new Fingerprint();
  try {
    for await (const block of blocks(file)) {
      ascii = block.ascii;
      print.add(block.bytes);
      block.lines.forEach((line, i) => rows.line(line, block.first + i));
      progress(block.read);
    }
    rows.end();
  } catch (error) {
    if (!(error instanceof LineError)) throw error;
    mistake(error.line, error.message);
  }
  if (format === 'ndjson') report.columns = [...filled.values()];
  report.records = sizes.count;
  report.bytes = sizes.sum;
  report.chunkSize = sizes.chunk();
  report.fingerprint = `${file.size}-${print.text()}`;
  if (sizes.count === 0 && report.mistaken === 0) mistake(1, 'is followed by no record');
  return report;
}

/** Reads all of a workbook as check does a file; its lines are what is uploaded. A mistake on line 0 is one of the whole file. */
export async function checkBook(file: Blob, progress: (read: number) => void): Promise<{ report: Report; lines: Blob }> {
  try {
    const book = await readBook(file, progress);
    const report = await check(book.lines, 'ndjson', () => undefined);
    const filled = new Map(report.columns.map((c) => [c.name, c.filled]));
    const none = book.mistaken > 0 && report.records === 0; // then it says nothing that check finds none
    return {
      lines: book.lines,
      report: {
        ...report, format: 'xlsx', notes: book.notes, columns: book.columns.map((name) => ({ name, filled: filled.get(name) ?? 0 })),
        mistakes: [...book.mistakes, ...(none ? [] : report.mistakes)].slice(0, shownMistakes), mistaken: book.mistaken + (none ? 0 : report.mistaken),
      },
    };
  } catch (error) {
    if (!(error instanceof BookError)) throw error;
    const report = await check(new Blob(), 'ndjson', () => undefined);
    return { lines: new Blob(), report: { ...report, format: 'xlsx', mistakes: [{ line: 0, message: error.message }], mistaken: 1 } };
  }
}

function count(columns: Map<string, Column>, record: Record<string, unknown>): void {
  for (const name in record) {
    const column = columns.get(name);
    const one = record[name] === null || record[name] === '' ? 0 : 1;
    if (column) column.filled += one;
    else if (columns.size < mostColumns) columns.set(name, { name, filled: one });
  }
}

/** How large each record is: a request holds the same number of them, and must not be too large anywhere. */
export class Sizes {
  private all = new Uint32Array(1024);
  count = 0;
  sum = 0;

  add(size: number): void {
    if (this.count === this.all.length) {
      const more = new Uint32Array(2 * this.count);
      more.set(this.all);
      this.all = more;
    }
    this.all[this.count++] = size + 1; // its comma
    this.sum += size;
  }

  /** The records of a request of about 4 MiB. */
  chunk(): number {
    let size = Math.max(1, Math.min(mostRecords, Math.floor(chunkBytes / (this.sum / Math.max(1, this.count) + 1))));
    while (size > 1 && this.worst(size) > longestLine) size = Math.ceil(size / 2);
    return size;
  }

  private worst(size: number): number {
    let most = 0;
    for (let from = 0; from < this.count; from += size) {
      let sum = 0;
      for (let i = from; i < Math.min(from + size, this.count); i++) sum += this.all[i]!;
      most = Math.max(most, sum);
    }
    return most;
  }
}

/** A hash of 64 bits over all bytes. It tells apart files of one person, and guards nothing. */
class Fingerprint {
  private a = 0x811c9dc5;
  private b = 0x01000193;

  add(bytes: Uint8Array): void {
    let { a, b } = this;
    for (let i = 0; i < bytes.length; i++) {
      const byte = bytes[i]!;
      a = Math.imul(a ^ byte, 0x01000193);
      b = Math.imul(b ^ byte, 0x85ebca6b) + 1;
    }
    this.a = a;
    this.b = b;
  }

  text(): string {
    return [this.a, this.b].map((half) => (half >>> 0).toString(16).padStart(8, '0')).join('');
  }
}
