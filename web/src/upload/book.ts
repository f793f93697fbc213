import { meant, shownBy, type Shown } from './cells';
import type { Mistake } from './mistake';
import { Sheet } from './sheet';
import { attribute, Xml, type Elements } from './xml';
import { BookError, Zip } from './zip';

/** The most text of each part: of a sheet, of the texts that its cells share, of all others. A ZIP file can promise a thousand times its size. */
const most = { sheet: 2 ** 30, strings: 2 ** 28, other: 2 ** 24 };
/** Texts that are shared, and formats. */
const mostStrings = 4_000_000;
const mostFormats = 100_000;

/** What a workbook holds. */
export interface Book {
  /** The rows as lines of JSON objects: the line of each has the number of its row. */
  lines: Blob;
  columns: string[];
  mistakes: Mistake[];
  mistaken: number;
  /** What there is to know of how it was read, as sentences. */
  notes: string[];
}

/** Reads the first sheet of a workbook (XLSX) that is not hidden. progress gets the bytes that are read. Throws a BookError for what is none. */
export async function readBook(file: Blob, progress: (bytes: number) => void): Promise<Book> {
  const zip = await Zip.open(file);
  const root = await relations(zip, '_rels/.rels', '');
  const main = [...root.values()].find((r) => r.kind === 'officeDocument')?.target ?? 'xl/workbook.xml';
  if (!zip.has(main)) throw new BookError('The file is no workbook of the format .xlsx.');
  const folder = main.slice(0, main.lastIndexOf('/') + 1);
  const parts = await relations(zip, `${folder}_rels/${main.slice(folder.length)}.rels`, folder);
  const { sheets, from1904 } = await contents(zip, main);
  const known = sheets.filter((s) => parts.get(s.id)?.kind === 'worksheet');
  const chosen = known.find((s) => !s.hidden) ?? known[0];
  if (!chosen) throw new BookError('The workbook has no sheet of cells.');
  const named = (kind: string) => [...parts.values()].find((r) => r.kind === kind)?.target;
  const strings = await sharedStrings(zip, named('sharedStrings'));
  const formats = await cellFormats(zip, named('styles'));
  const sheet = new Sheet(strings, formats, from1904);
  const xml = new Xml(sheet);
  await zip.text(parts.get(chosen.id)!.target, most.sheet, (text) => xml.push(text), progress);
  sheet.end();
  const others = sheets.length - 1;
  const notes = others === 0 ? [] : [`The sheet “${chosen.name}” is read; ${others === 1 ? 'the other one is' : `the other ${others} are`} not.`];
  return { lines: sheet.lines(), columns: sheet.columns(), mistakes: sheet.mistakes, mistaken: sheet.mistaken, notes: [...notes, ...sheet.notes()] };
}

interface Relation {
  kind: string;
  target: string;
}

const read = async (zip: Zip, name: string, limit: number, to: Partial<Elements>): Promise<void> => {
  const nothing = () => undefined;
  const xml = new Xml({ open: nothing, close: nothing, text: nothing, ...to });
  await zip.text(name, limit, (text) => xml.push(text));
};

/** What a part refers to, by id. */
async function relations(zip: Zip, name: string, folder: string): Promise<Map<string, Relation>> {
  const found = new Map<string, Relation>();
  if (!zip.has(name)) return found;
  await read(zip, name, most.other, {
    open: (element, a) => {
      const target = attribute(a, 'Target');
      if (element !== 'Relationship' || target === undefined || attribute(a, 'TargetMode') === 'External') return;
      const kind = attribute(a, 'Type')?.split('/').at(-1) ?? '';
      found.set(attribute(a, 'Id') ?? '', { kind, target: target.startsWith('/') ? target.slice(1) : plainPath(folder + target) });
    },
  });
  return found;
}

/** A path without . and .. in it. */
function plainPath(path: string): string {
  const parts: string[] = [];
  for (const part of path.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '.') parts.push(part);
  }
  return parts.join('/');
}

async function contents(zip: Zip, name: string) {
  const sheets: Array<{ name: string; id: string; hidden: boolean }> = [];
  let from1904 = false;
  await read(zip, name, most.other, {
    open: (element, a) => {
      if (element === 'workbookPr') from1904 = ['1', 'true'].includes(attribute(a, 'date1904') ?? '');
      if (element !== 'sheet') return;
      sheets.push({ name: attribute(a, 'name') ?? '', id: attribute(a, 'id') ?? '', hidden: (attribute(a, 'state') ?? 'visible') !== 'visible' });
    },
  });
  return { sheets, from1904 };
}

/** The texts that cells share, without how to pronounce them. */
async function sharedStrings(zip: Zip, name: string | undefined): Promise<string[]> {
  const all: string[] = [];
  if (name === undefined || !zip.has(name)) return all;
  let text = '';
  let inside = false;
  let beside = 0;
  await read(zip, name, most.strings, {
    open: (element) => {
      if (element === 'si') text = '';
      else if (element === 'rPh') beside++;
      else if (element === 't') inside = beside === 0;
    },
    close: (element) => {
      if (element === 'rPh') beside--;
      else if (element === 't') inside = false;
      else if (element === 'si' && all.push(meant(text)) > mostStrings) throw new BookError('The workbook has more texts than can be read here: save the sheet as “CSV UTF-8”.');
    },
    text: (piece) => {
      if (inside) text += piece;
    },
  });
  return all;
}

/** How cells of each style show numbers. */
async function cellFormats(zip: Zip, name: string | undefined): Promise<Shown[]> {
  const codes = new Map<number, string>();
  const all: Shown[] = [];
  if (name === undefined || !zip.has(name)) return all;
  let inCells = false;
  await read(zip, name, most.other, {
    open: (element, a) => {
      if (element === 'numFmt') codes.set(Number(attribute(a, 'numFmtId')), attribute(a, 'formatCode') ?? '');
      else if (element === 'cellXfs') inCells = true;
      else if (element === 'xf' && inCells && all.length < mostFormats) {
        const id = Number(attribute(a, 'numFmtId') ?? 0);
        all.push(shownBy(id, codes.get(id)));
      }
    },
    close: (element) => {
      if (element === 'cellXfs') inCells = false;
    },
  });
  return all;
}
