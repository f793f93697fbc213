import { lines } from './lines.js';

/**
 * Reads CSV (RFC 4180) whose first row names the columns; every value is a string, and empty lines are skipped. What
 * is no CSV is an error that names the line: to guess what was meant would change values.
 */
export async function* csv(body: ReadableStream<Uint8Array>): AsyncGenerator<Record<string, string>, void, undefined> {
  const rows = new Rows();
  let names: string[] | undefined;
  for await (const line of lines(body)) {
    const values = rows.take(line);
    if (!values) continue;
    if (!names) {
      names = values;
      if (new Set(names).size < names.length) throw new Error(`CSV: two columns have one name: ${line.slice(0, 200)}`);
      continue;
    }
    if (values.length !== names.length) {
      throw rows.mistake(`has ${values.length} values, and the first row names ${names.length} columns`);
    }
    yield Object.fromEntries(names.map((name, i) => [name, values[i]!]));
  }
  rows.end();
}

// A request takes no more, so that a quote that nobody has closed need not be looked for in the rest of a large file.
const longestValue = 16 << 20;

const advice = 'quote the value, and double the quotes inside of it';

/** Makes rows of lines, one of which may go on in the next. */
class Rows {
  private values: string[] = [];
  /** A value in quotes that goes on in the next line. */
  private open: string | undefined;
  private number = 0;
  private began = 0;

  /** Returns the values of the row that a line ends; undefined where it ends none. */
  take(line: string): string[] | undefined {
    this.number++;
    let at = 0;
    if (this.open === undefined) {
      if (line === '') return undefined;
      this.began = this.number;
      this.values = [];
      at = this.value(line, 0);
    } else {
      this.open += '\n';
      at = this.quoted(line, 0);
    }
    while (at < line.length) {
      if (line[at] !== ',') {
        throw this.mistake(`has a letter after the quote that ends a value; ${advice}`, this.number);
      }
      at = this.value(line, at + 1);
    }
    if (this.open === undefined) return this.values;
    if (this.open.length > longestValue) this.end();
    return undefined;
  }

  /** Says that there are no more lines. */
  end(): void {
    if (this.open !== undefined) throw this.mistake('begins a value in quotes that is not ended');
  }

  mistake(text: string, number = this.began): Error {
    return new Error(`CSV: line ${number} ${text}`);
  }

  /** Takes a value; returns where it ends. */
  private value(line: string, from: number): number {
    if (line[from] === '"') {
      this.open = '';
      return this.quoted(line, from + 1);
    }
    const comma = line.indexOf(',', from);
    const end = comma < 0 ? line.length : comma;
    const value = line.slice(from, end);
    if (value.includes('"')) {
      throw this.mistake(`has a quote inside of a value that is not quoted; ${advice}`, this.number);
    }
    this.values.push(value);
    return end;
  }

  /** Takes the rest of a value in quotes; returns where it ends, and leaves it open where this line does not end it. */
  private quoted(line: string, from: number): number {
    for (let at = from; ; ) {
      const quote = line.indexOf('"', at);
      if (quote < 0) {
        this.open += line.slice(at);
        return line.length;
      }
      this.open += line.slice(at, quote);
      if (line[quote + 1] !== '"') {
        this.values.push(this.open!);
        this.open = undefined;
        return quote + 1;
      }
      this.open += '"';
      at = quote + 2;
    }
  }
}
