import { longestLine } from './blocks';

export type Format = 'csv' | 'ndjson';

/** What takes the rows of a file and what is wrong with it. Lines count from 1. */
export interface Sink {
  /** The columns of CSV, once, before its rows. */
  columns?: (names: string[]) => void;
  /** A row as the text of a JSON object, the line on which it begins, and, of CSV, its values. */
  row: (json: string, line: number, values?: string[]) => void;
  mistake: (line: number, message: string) => void;
}

/** Takes a file line by line. */
export interface Rows {
  line: (text: string, number: number) => void;
  /** Says that there are no more lines. */
  end: () => void;
}

/** What a file can be: of lines, or a workbook. */
export type FileFormat = Format | 'xlsx';

/** The format of a file by its name; undefined for one that cannot be read. */
export function formatOf(name: string): FileFormat | undefined {
  if (/\.csv$/i.test(name)) return 'csv';
  if (/\.xlsx$/i.test(name)) return 'xlsx';
  return /\.(ndjson|jsonl)$/i.test(name) ? 'ndjson' : undefined;
}

export const rowsOf = (format: Format, sink: Sink): Rows => (format === 'csv' ? new Csv(sink) : new Ndjson(sink));

const nul = 'holds a NUL byte, which cannot be stored';

/** One JSON object a line, whose text is kept as it is, so that numbers keep every digit. Empty lines are skipped. */
class Ndjson implements Rows {
  constructor(private readonly sink: Sink) {}

  line(text: string, number: number): void {
    const row = text.trim();
    if (row === '') return;
    if (!isJson(row)) this.sink.mistake(number, 'is not valid JSON');
    else if (!row.startsWith('{')) this.sink.mistake(number, 'is not a JSON object: every record is one, on a line of its own');
    else if (/(?:^|[^\\])(?:\\\\)*\\u0000/.test(row)) this.sink.mistake(number, nul);
    else this.sink.row(row, number);
  }

  end(): void {}
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** CSV (RFC 4180) whose first row names the columns; every value is a string, and empty lines are skipped. */
class Csv implements Rows {
  /** What stands before the value of each column in the JSON of a row. */
  private keys: string[] | undefined;
  private values: string[] = [];
  /** A value in quotes that goes on in the next line, and the line on which its row began. */
  private open: string | undefined;
  private began = 0;
  /** Nothing can be read without good names of columns. */
  private useless = false;

  constructor(private readonly sink: Sink) {}

  line(text: string, number: number): void {
    if (this.useless) return;
    if (this.open === undefined) {
      if (text === '') return;
      this.began = number;
      this.values = [];
      if (!text.includes('"')) {
        this.values = text.split(',');
        this.row();
        return;
      }
    }
    const mistake = this.fields(text);
    if (mistake) {
      this.open = undefined;
      this.sink.mistake(number, mistake);
      this.useless = !this.keys;
    } else if (this.open === undefined) this.row();
  }

  end(): void {
    if (this.open !== undefined) this.sink.mistake(this.began, 'begins a value in quotes that is not ended');
    else if (!this.keys && !this.useless) this.sink.mistake(1, 'must name the columns: the file is empty');
  }

  /** Reads the values of a line, or the rest of one that began before. Returns what is wrong with it. */
  private fields(text: string): string | undefined {
    let at = 0;
    if (this.open === undefined && text[0] !== '"') at = this.plain(text, 0);
    else if (this.open === undefined) {
      this.open = '';
      at = this.quoted(text, 1);
    } else {
      this.open += '\n';
      at = this.quoted(text, 0);
    }
    while (at >= 0 && at < text.length) {
      if (text[at] !== ',') return 'has a letter after the quote that ends a value; a quote inside of a value is doubled';
      at++;
      if (text[at] === '"') {
        this.open = '';
        at = this.quoted(text, at + 1);
      } else at = this.plain(text, at);
    }
    if (this.open !== undefined && this.open.length > longestLine) return `goes on with a value in quotes that began on line ${this.began} and is not ended`;
    return at < 0 ? 'has a quote inside of a value that is not quoted; quote the value, and double the quote' : undefined;
  }

  /** Takes a value without quotes; returns where it ends, -1 for one with a quote in it. */
  private plain(text: string, from: number): number {
    const comma = text.indexOf(',', from);
    const end = comma < 0 ? text.length : comma;
    const value = text.slice(from, end);
    if (value.includes('"')) return -1;
    this.values.push(value);
    return end;
  }

  /** Takes the rest of a value in quotes; returns where it ends, and leaves it open where this line does not end it. */
  private quoted(text: string, from: number): number {
    for (let at = from; ; ) {
      const quote = text.indexOf('"', at);
      if (quote < 0) {
        this.open += text.slice(at);
        return text.length;
      }
      this.open += text.slice(at, quote);
      if (text[quote + 1] !== '"') {
        this.values.push(this.open!);
        this.open = undefined;
        return quote + 1;
      }
      this.open += '"';
      at = quote + 2;
    }
  }

  private row(): void {
    const { values, keys } = this;
    if (!keys) {
      this.header();
      return;
    }
    if (values.length !== keys.length) {
      this.sink.mistake(this.began, `has ${values.length} ${values.length === 1 ? 'value' : 'values'}, and the first line names ${keys.length} columns`);
      return;
    }
    let json = '';
    for (let i = 0; i < keys.length; i++) {
      if (values[i]!.includes('\0')) return this.sink.mistake(this.began, nul);
      json += keys[i]! + JSON.stringify(values[i]);
    }
    this.sink.row(`${json}}`, this.began, values);
  }

  private header(): void {
    const mistake = (message: string) => {
      this.useless = true;
      this.sink.mistake(this.began, message);
    };
    const first = new Map<string, number>();
    for (const [i, name] of this.values.entries()) {
      if (name.trim() === '') return mistake(`gives column ${i + 1} no name`);
      if (name.includes('\0')) return mistake(nul);
      if (first.has(name)) return mistake(`names columns ${first.get(name)! + 1} and ${i + 1} both ${JSON.stringify(name)}`);
      first.set(name, i);
    }
    this.keys = this.values.map((name, i) => `${i === 0 ? '{' : ','}${JSON.stringify(name)}:`);
    this.sink.columns?.(this.values);
  }
}
