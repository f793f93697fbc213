import type { StoreField, StoreWrite } from '../api/client';
import { rowsOf } from '../upload/rows';
import { read } from './exact';

/** A mistake of a file, with its line from 1. */
export interface LineMistake {
  line: number;
  message: string;
}

/** What a file of CSV says of the records of a store: a write for each row, the line of each, and what is wrong. */
export interface Sheet {
  writes: StoreWrite[];
  lines: number[];
  mistakes: LineMistake[];
}

/** How a file is read: which column is the key, which layer is written, and whether an empty cell takes its value away. */
export interface SheetOptions {
  key: string;
  layer: string;
  clear: boolean;
}

const kindOf = (value: unknown): string => (Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value === 'object' ? 'object' : typeof value);

/** The value that a cell says for a type; throws with a sentence where it says none. */
export function valueOf(type: StoreField['type'], text: string): unknown {
  if (type === 'string' || type === 'datetime') return text;
  const cell = text.trim();
  if (type === 'number' || type === 'integer') {
    if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(cell)) throw new Error(`is no number: ${text}`);
    if (type === 'integer' && !/^-?\d+$/.test(cell)) throw new Error(`is no integer: ${text}`);
    return read(cell);
  }
  let value: unknown;
  try {
    value = read(cell);
  } catch { /* said below */ }
  if (kindOf(value) !== type) throw new Error(type === 'boolean' ? `is neither true nor false: ${text}` : `is no JSON ${type}: ${text.slice(0, 80)}`);
  return value;
}

/** Reads a file of CSV whose first line names the fields of a store, and one column for the key. */
export function sheetOf(text: string, fields: StoreField[], { key, layer, clear }: SheetOptions): Sheet {
  const types = new Map(fields.map((f) => [f.name, f.type]));
  const out: Sheet = { writes: [], lines: [], mistakes: [] };
  let names: string[] = [];
  let known = false;
  const seen = new Map<string, number>();
  const row = (line: number, values: string[]) => {
    const write: StoreWrite = { key: '', layer, values: {} };
    let wrong = false;
    const mistake = (message: string) => {
      wrong = true;
      out.mistakes.push({ line, message });
    };
    for (const [i, name] of names.entries()) {
      const cell = values[i]!;
      if (name === key) write.key = cell;
      else if (cell === '') {
        if (clear) write.values[name] = null;
      } else {
        try {
          write.values[name] = valueOf(types.get(name)!, cell);
        } catch (error) {
          mistake(`${name} ${(error as Error).message}`);
        }
      }
    }
    if (write.key === '') mistake(`has no ${key}`);
    else if (seen.has(write.key)) mistake(`says ${write.key} again, which line ${seen.get(write.key)} has`);
    seen.set(write.key, line);
    if (wrong) return;
    out.writes.push(write);
    out.lines.push(line);
  };
  const reader = rowsOf('csv', {
    columns: (columns) => {
      names = columns;
      const strange = columns.filter((name) => name !== key && !types.has(name));
      if (!columns.includes(key)) out.mistakes.push({ line: 1, message: `names no column ${key}, which is to be the key` });
      else if (strange.length > 0) out.mistakes.push({ line: 1, message: `names what the store does not have: ${strange.join(', ')}` });
      else known = true;
    },
    row: (_, line, values) => known && row(line, values!),
    mistake: (line, message) => out.mistakes.push({ line, message }),
  });
  for (const [i, line] of text.replace(/^\uFEFF/, '').split(/\r?\n/).entries()) reader.line(line, i + 1);
  reader.end();
  return out;
}

/** The mistakes that the service found in a request, by the lines of the file that it was made of. */
export function placeMistakes(fields: ReadonlyArray<{ loc: string[]; msg: string }>, lines: number[]): LineMistake[] {
  return fields.map(({ loc, msg }) => {
    const at = loc[1] === 'records' ? lines[Number(loc[2])] : undefined;
    const rest = loc.slice(at === undefined ? 1 : 3).filter((word) => word !== 'values');
    return { line: at ?? 1, message: [rest.join('.'), msg].filter(Boolean).join(': ') };
  });
}
