import { count } from '../lib/format';
import { longestLine } from './blocks';
import { columnOf, lettersOf, meant, numberText, type Shown } from './cells';
import { shownMistakes, type Mistake } from './mistake';
import { attribute, type Elements } from './xml';
import { BookError } from './zip';

/** Rows and columns of the largest sheet that there can be, and letters of all its records. */
const mostRows = 1_048_576;
const mostColumns = 16_384;
const mostText = 2 ** 30;
/** Letters that are put together before they become a part of the file. */
const pieceText = 1 << 20;

const plain: Shown = { as: 'number' };

/** Makes lines of JSON objects of a sheet. Its first row that is not empty names the columns; every value is a text, as in CSV. */
export class Sheet implements Elements {
  readonly mistakes: Mistake[] = [];
  mistaken = 0;
  private names: string[] | undefined;
  private keys: Array<string | undefined> = [];
  private readonly pieces: Blob[] = [];
  private piece = '';
  private written = 0;
  private total = 0;

  private row = 0;
  private column = -1;
  private hiddenRow = false;
  private values: string[] = [];
  private type = '';
  private style = 0;
  private content = '';
  private reading = false;
  private beside = 0;
  private formula = false;

  private formulas = 0;
  private hidden = 0;
  private errors = 0;

  constructor(private readonly strings: string[], private readonly formats: Shown[], private readonly from1904: boolean) {}

  open(name: string, attributes: string): void {
    if (name === 'c') this.openCell(attributes);
    else if (name === 'v' || name === 't') {
      this.reading = this.beside === 0;
      if (name === 'v') this.content = '';
    } else if (name === 'f') this.formula = true;
    else if (name === 'rPh') this.beside++;
    else if (name === 'row') this.openRow(attributes);
  }

  close(name: string): void {
    if (name === 'v' || name === 't') this.reading = false;
    else if (name === 'rPh') this.beside--;
    else if (name === 'c') this.closeCell();
    else if (name === 'row') this.closeRow();
  }

  text(text: string): void {
    if (this.reading) this.content += text;
  }

  private openRow(attributes: string): void {
    const row = Number(attribute(attributes, 'r') ?? this.row + 1);
    if (!Number.isInteger(row) || row <= this.row) throw new BookError('The workbook cannot be read: its rows are in no order.');
    if (row > mostRows) throw new BookError(`The sheet has more than ${count(mostRows)} rows.`);
    this.row = row;
    this.column = -1;
    this.values = [];
    this.hiddenRow = ['1', 'true'].includes(attribute(attributes, 'hidden') ?? '');
  }

  private openCell(attributes: string): void {
    const cell = attribute(attributes, 'r');
    this.column = cell === undefined ? this.column + 1 : columnOf(cell);
    if (this.column < 0 || this.column >= mostColumns) throw new BookError('The workbook cannot be read: a cell has no place in it.');
    this.type = attribute(attributes, 't') ?? 'n';
    this.style = Number(attribute(attributes, 's') ?? 0);
    this.content = '';
    this.formula = false;
  }

  private closeCell(): void {
    if (this.formula) {
      this.formulas++;
      if (this.type === 'n' && this.content === '') {
        this.mistake(`has a formula in column ${lettersOf(this.column)} whose value is not in the file: open it in a spreadsheet program, and save it again`);
      }
    }
    const value = this.value();
    if (value !== '') this.values[this.column] = value;
  }

  private value(): string {
    const text = this.content;
    switch (this.type) {
      case 's': {
        const shared = this.strings[Number(text)];
        if (shared === undefined && text !== '') throw new BookError('The workbook cannot be read: a cell has a text that is not there.');
        return shared ?? '';
      }
      case 'b':
        return text === '1' ? 'TRUE' : text === '0' ? 'FALSE' : text;
      case 'e':
        this.errors++;
        return text;
      case 'n':
        return text === '' ? '' : numberText(text, this.formats[this.style] ?? plain, this.from1904);
      default: // str, inlineStr, d
        return meant(text);
    }
  }

  private closeRow(): void {
    if (this.values.every((v) => v === undefined)) return;
    if (!this.names) return this.header();
    if (this.hiddenRow) this.hidden++;
    let json = '';
    for (let i = 0; i < Math.max(this.keys.length, this.values.length); i++) {
      const key = this.keys[i];
      const value = this.values[i];
      if (key === undefined) {
        if (value !== undefined) return this.mistake(`has a value in column ${lettersOf(i)}, which has no name`);
        continue;
      }
      json += `${json === '' ? '{' : ','}${key}${value === undefined ? '""' : JSON.stringify(value)}`;
      if (json.length > longestLine) return this.mistake(`is a record of more than ${longestLine} bytes`);
    }
    this.write(`${json}}`);
  }

  private header(): void {
    this.names = [];
    const first = new Map<string, number>();
    for (const [i, name] of this.values.entries()) {
      if (name === undefined || name.trim() === '') continue;
      const other = first.get(name);
      if (other !== undefined) throw new BookError(`Row ${count(this.row)} names columns ${lettersOf(other)} and ${lettersOf(i)} both ${JSON.stringify(name)}.`);
      first.set(name, i);
      this.names.push(name);
      this.keys[i] = `${JSON.stringify(name)}:`;
    }
  }

  private mistake(message: string): void {
    if (this.mistaken++ < shownMistakes) this.mistakes.push({ line: this.row, message });
  }

  /** Puts a record on the line that has the number of its row. */
  private write(json: string): void {
    this.piece += '\n'.repeat(this.row - 1 - this.written) + json;
    this.written = this.row - 1;
    this.total += json.length;
    if (this.total > mostText) throw new BookError('The sheet holds more than can be read here: save it as “CSV UTF-8”.');
    if (this.piece.length > pieceText) this.flush();
  }

  private flush(): void {
    this.pieces.push(new Blob([this.piece]));
    this.piece = '';
  }

  end(): void {
    if (!this.names) throw new BookError('The sheet is empty: its first row must name the columns.');
    this.flush();
  }

  lines(): Blob {
    return new Blob(this.pieces);
  }

  columns(): string[] {
    return this.names ?? [];
  }

  notes(): string[] {
    const all: string[] = [];
    const say = (n: number, one: string, many: string) => {
      if (n > 0) all.push(n === 1 ? one : `${count(n)} ${many}`);
    };
    say(this.formulas, 'One cell is a formula: it is read with the value that was saved.', 'cells are formulas: they are read with the values that were saved.');
    say(this.hidden, 'One row is hidden, and is read, too.', 'rows are hidden, and are read, too.');
    say(this.errors, 'One cell shows an error, such as #N/A, and is read as that text.', 'cells show an error, such as #N/A, and are read as that text.');
    return all;
  }
}
