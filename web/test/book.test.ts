import { readFile } from 'node:fs/promises';
import { deflateRawSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';

import { lettersOf, numberText, shownBy } from '../src/upload/cells';
import { chunks } from '../src/upload/chunks';
import { checkBook } from '../src/upload/report';

const look = (file: Blob) => checkBook(file, () => undefined);

/** A workbook that openpyxl 3.0.9 made. */
const made = async (name: string) => new Blob([new Uint8Array(await readFile(new URL(`data/${name}`, import.meta.url)))]);

async function records(lines: Blob): Promise<unknown[]> {
  for await (const chunk of chunks(lines, 'ndjson', 1000, 0)) {
    return (JSON.parse(new TextDecoder().decode(chunk.body)) as { records: unknown[] }).records;
  }
  return [];
}

/** A ZIP file of some parts, as few programs would write it. */
function zip(parts: Record<string, string | Uint8Array>, flags = 0): Blob {
  const all: Uint8Array<ArrayBuffer>[] = [];
  const list: Uint8Array<ArrayBuffer>[] = [];
  let at = 0;
  const bytes = (write: (v: DataView) => void, size: number, name: Uint8Array, ...more: Uint8Array[]) => {
    const head = new Uint8Array(size);
    write(new DataView(head.buffer));
    return new Uint8Array(Buffer.concat([head, name, ...more]));
  };
  for (const [part, text] of Object.entries(parts)) {
    const name = new TextEncoder().encode(part);
    const packed = typeof text === 'string' ? deflateRawSync(text) : text;
    const local = bytes((v) => {
      v.setUint32(0, 0x04034b50, true);
      v.setUint16(6, flags, true);
      v.setUint16(26, name.length, true);
    }, 30, name, packed);
    list.push(bytes((v) => {
      v.setUint32(0, 0x02014b50, true);
      v.setUint16(10, 8, true);
      v.setUint32(20, packed.length, true);
      v.setUint16(28, name.length, true);
      v.setUint32(42, at, true);
    }, 46, name));
    all.push(local);
    at += local.length;
  }
  const size = list.reduce((sum, l) => sum + l.length, 0);
  const end = bytes((v) => {
    v.setUint32(0, 0x06054b50, true);
    v.setUint16(10, list.length, true);
    v.setUint32(12, size, true);
    v.setUint32(16, at, true);
  }, 22, new Uint8Array(0));
  return new Blob([...all, ...list, end]);
}

const type = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships/';
const parts = (sheet: string, more: Record<string, string | Uint8Array> = {}) => ({
  '_rels/.rels': `<Relationships><Relationship Id="r" Type="${type}officeDocument" Target="xl/workbook.xml"/></Relationships>`,
  'xl/workbook.xml': '<workbook><sheets><sheet name="One" sheetId="1" r:id="s"/></sheets></workbook>',
  'xl/_rels/workbook.xml.rels': `<Relationships><Relationship Id="s" Type="${type}worksheet" Target="worksheets/sheet1.xml"/>`
    + `<Relationship Id="t" Type="${type}sharedStrings" Target="/xl/sharedStrings.xml"/></Relationships>`,
  'xl/worksheets/sheet1.xml': sheet,
  ...more,
});
const sheetOf = (rows: string, more?: Record<string, string | Uint8Array>) => zip(parts(`<worksheet><sheetData>${rows}</sheetData></worksheet>`, more));
const text = (t: string, cell = '') => `<c${cell && ` r="${cell}"`} t="inlineStr"><is><t>${t}</t></is></c>`;
const wrong = async (file: Blob) => (await look(file)).report.mistakes.map((m) => `${m.line} ${m.message}`);

describe('a workbook that another program made', () => {
  it('becomes the records that its first sheet shows', async () => {
    const { report, lines } = await look(await made('people.xlsx'));
    expect(await records(lines)).toEqual([
      {
        id: '007', name: 'Ada <b>"Lovelace"</b> & co', born: '1915-12-10', seen: '2024-02-29 13:05:09', at: '07:30:00', phone: '493012345678', share: '0.125',
        mhz: '122.9', sum: '0.3', member: 'TRUE', note: 'two\nlines',
      },
      {
        id: '0042', name: 'Бо 😀', born: '1900-01-01', seen: '1999-12-31 23:59:59', at: '00:00:01', phone: '12345678901234600', share: '1',
        mhz: '-0.5', sum: '1000000000000000000000', member: 'FALSE', note: '',
      },
      { id: '3', name: 'hidden', born: '', seen: '', at: '', phone: '', share: '', mhz: '', sum: '', member: '', note: 'x' },
    ]);
    expect(report.notes).toEqual(['The sheet “People & more” is read; the other one is not.', 'One row is hidden, and is read, too.']);
    expect([report.format, report.records, report.mistaken, report.first?.line]).toEqual(['xlsx', 3, 0, 2]);
    expect(report.columns.filter((c) => c.filled < 3).map((c) => c.name)).toEqual(['born', 'seen', 'at', 'phone', 'share', 'mhz', 'sum', 'member', 'note']);
    expect((await look(await made('people.xlsx'))).report.fingerprint).toBe(report.fingerprint);
  });

  it('is refused where it has formulas without their values, or values below no name', async () => {
    expect(await wrong(await made('formula.xlsx'))).toEqual([
      '2 has a formula in column B whose value is not in the file: open it in a spreadsheet program, and save it again', '3 has a value in column C, which has no name',
    ]);
  });
});

describe('a sheet', () => {
  it('is read with the values of formulas, errors as they are shown, and rich text without its sounds', async () => {
    const strings = '<sst><si><r><t>id</t></r></si><si><r><t xml:space="preserve">a </t></r><r><t>b</t></r><rPh><t>no</t></rPh></si><si><t>x_x0041_&amp;&#66;<![CDATA[<c>]]></t></si></sst>';
    const { report, lines } = await look(sheetOf(
      '<!-- > --><row r="3" a=">" b=\'"/>\' c = "/>"\n><c r="B3" t="s"><v>0</v></c><c r="D3" t="s"><v>2</v></c></row>'
      + '<row r="5"><c r="B5" t="str"><f>A1&gt;2</f><v>yes</v></c><c r="D5" t="e"><f>1/0</f><v>#DIV/0!</v></c></row><row><c r="B6" t="s"><v>1</v></c></row>',
      { 'xl/sharedStrings.xml': strings },
    ));
    expect(await records(lines)).toEqual([{ id: 'yes', 'xA&B<c>': '#DIV/0!' }, { id: 'a b', 'xA&B<c>': '' }]);
    expect(report.first?.line).toBe(5);
    expect(report.notes).toEqual([
      '2 cells are formulas: they are read with the values that were saved.', 'One cell shows an error, such as #N/A, and is read as that text.',
    ]);
  });

  it('is the first that is not hidden', async () => {
    const { report } = await look(zip(parts('<worksheet/>', {
      'xl/workbook.xml': '<workbook><sheets><sheet name="One" r:id="s" state="hidden"/><sheet name="Two" r:id="u"/><sheet name="Three" r:id="s"/></sheets></workbook>',
      'xl/_rels/workbook.xml.rels': `<Relationships><Relationship Id="s" Type="${type}worksheet" Target="worksheets/sheet1.xml"/>`
        + `<Relationship Id="u" Type="${type}worksheet" Target="../xl/worksheets/two.xml"/></Relationships>`,
      'xl/worksheets/two.xml': `<x:worksheet xmlns:x="y"><x:sheetData><x:row>${text('id')}</x:row><x:row>${text('1')}</x:row></x:sheetData></x:worksheet>`,
    })));
    expect([report.records, report.notes]).toEqual([1, ['The sheet “Two” is read; the other 2 are not.']]);
  });

  it('is refused where its names are no names', async () => {
    expect(await wrong(sheetOf(`<row>${text('a')}${text('a')}</row><row>${text('1')}</row>`))).toEqual(['0 Row 1 names columns A and B both "a".']);
    expect(await wrong(sheetOf(''))).toEqual(['0 The sheet is empty: its first row must name the columns.']);
    expect(await wrong(sheetOf(`<row>${text('a')}</row>`))).toEqual(['1 is followed by no record']);
    expect(await wrong(sheetOf(`<row>${text('a')}</row><row>${text('x_x0000_')}</row>`))).toEqual(['2 holds a NUL byte, which cannot be stored']);
  });
});

describe('numbers', () => {
  const show = (n: string, code: string | number, from1904 = false) =>
    numberText(n, typeof code === 'number' ? shownBy(code, undefined) : shownBy(200, code), from1904);

  it('are days and times where their format says so', () => {
    expect([show('45351', 14), show('45351.5', 22), show('0.25', 20), show('45351.99999999', 'dd/mm/yyyy hh:mm')]).toEqual([
      '2024-02-29', '2024-02-29 12:00:00', '06:00:00', '2024-03-01 00:00:00']);
    expect([show('1', 14), show('59', 14), show('60', 14), show('61', 14)]).toEqual(['1900-01-01', '1900-02-28', '1900-02-29', '1900-03-01']);
    expect([show('0', 14, true), show('1.5', '[h]:mm'), show('45351', 'mmm\\ yy'), show('45351', '[$-409]d\\-mmm;@')]).toEqual([
      '1904-01-01', '36:00:00', '2024-02-29', '2024-02-29']);
    expect([show('-1', 14), show('99999999', 14)]).toEqual(['-1', '99999999']);
  });

  it('have all of their digits otherwise, and the zeros before them that their format shows', () => {
    expect([show('7', '000'), show('1234', '000'), show('-7', '000'), show('49301234567890123', 0)]).toEqual(['007', '1234', '-7', '49301234567890123']);
    expect([show('122.90000000000001', 0), show('1.5', '"days" 0.00'), show('5', '[Red]0.0'), show('1E-3', 11), show('1.2E+22', 'General')]).toEqual([
      '122.9', '1.5', '5', '0.001', '12000000000000000000000']);
  });

  it('stand in columns with letters', () => expect([0, 25, 26, 701, 702, 16_383].map(lettersOf)).toEqual(['A', 'Z', 'AA', 'ZZ', 'AAA', 'XFD']));
});

describe('a file that is no good workbook', () => {
  it('is refused with what it is', async () => {
    expect(await wrong(new Blob(['PK']))).toEqual(['0 The workbook cannot be read: it is damaged, or no workbook.']);
    expect(await wrong(new Blob([new Uint8Array([0xd0, 0xcf, 0x11, 0xe0])]))).toEqual(
      ['0 The workbook is protected by a password, or of the old format .xls: save it as .xlsx without a password.']);
    expect(await wrong(zip({ 'word/document.xml': '<a/>' }))).toEqual(['0 The file is no workbook of the format .xlsx.']);
    expect(await wrong(zip(parts('<worksheet/>'), 1))).toEqual(['0 The workbook is protected by a password: save it without one.']);
    expect(await wrong(sheetOf('', { 'xl/workbook.xml': new Uint8Array([1, 2, 3]) }))).toEqual(['0 The workbook cannot be read: it is damaged, or no workbook.']);
  });

  it('is refused where it would grow without end', async () => {
    const entities = `<!DOCTYPE x [<!ENTITY a "${'b'.repeat(100)}">]><workbook>&a;</workbook>`;
    expect(await wrong(sheetOf('', { 'xl/workbook.xml': entities }))).toEqual(['0 The workbook cannot be read: it has a document type, which no program writes.']);
    const bomb = deflateRawSync(Buffer.alloc(17 << 20, '<a/>'));
    expect(bomb.length).toBeLessThan(100_000);
    expect(await wrong(sheetOf('', { 'xl/workbook.xml': bomb }))).toEqual(['0 The workbook holds more than can be read here: a part of it has more than 16 MiB.']);
    expect(await wrong(sheetOf(`<c a="${'x'.repeat(2 << 20)}`))).toEqual(['0 The workbook cannot be read: a part of it has no end.']);
    const long = `<si><t>${'y'.repeat(900_000)}</t></si>`;
    const shared = Array.from({ length: 20 }, () => '<c t="s"><v>0</v></c>').join('');
    const names = Array.from({ length: 20 }, (_, i) => text(`c${i}`)).join('');
    expect(await wrong(sheetOf(`<row>${names}</row><row>${shared}</row>`, { 'xl/sharedStrings.xml': `<sst>${long}</sst>` }))).toEqual(
      ['2 is a record of more than 15728640 bytes']);
    expect(await wrong(sheetOf(`<row>${text('a')}</row><row r="9999999">${text('b')}</row>`))).toEqual(['0 The sheet has more than 1\u202f048\u202f576 rows.']);
    expect(await wrong(sheetOf(`<row r="2">${text('a')}</row><row r="2">${text('b')}</row>`))).toEqual(['0 The workbook cannot be read: its rows are in no order.']);
    expect(await wrong(sheetOf(`<row>${text('a', 'ZZZZ1')}</row>`))).toEqual(['0 The workbook cannot be read: a cell has no place in it.']);
  });
});
