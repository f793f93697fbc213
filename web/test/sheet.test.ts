import { describe, expect, it } from 'vitest';

import type { StoreField } from '../src/api/client';
import { Exact } from '../src/lib/exact';
import { placeMistakes, sheetOf, valueOf } from '../src/lib/sheet';

const fields: StoreField[] = [
  { name: 'price', type: 'number' }, { name: 'n', type: 'integer' }, { name: 'vip', type: 'boolean' }, { name: 'note', type: 'string' }, { name: 'tags', type: 'array' },
];
const options = { key: 'id', layer: 'own', clear: false };

describe('a sheet', () => {
  it('is a write for each row, each cell of the type of its field', () => {
    const sheet = sheetOf('\uFEFFid,price,n,vip,note,tags\r\n7,1.50,9007199254740993,true,007,"[""a""]"\r\n\r\n8,,,,,\r\n', fields, options);
    expect(sheet).toEqual({
      mistakes: [], lines: [2, 4],
      writes: [
        { key: '7', layer: 'own', values: { price: new Exact('1.50'), n: new Exact('9007199254740993'), vip: true, note: '007', tags: ['a'] } },
        { key: '8', layer: 'own', values: {} },
      ],
    });
  });

  it('takes a value away by an empty cell, where that is meant', () => {
    expect(sheetOf('id,n\n8,\n', fields, { ...options, clear: true }).writes).toEqual([{ key: '8', layer: 'own', values: { n: null } }]);
  });

  it('says every mistake with its line, and writes no row that has one', () => {
    const sheet = sheetOf('id,n,vip,tags\n1,1.5,yes,{}\n,2,true,[]\n3,3,false\n4,4,true,[]\n4,5,true,[]\n', fields, options);
    expect(sheet.mistakes.map((m) => `${m.line} ${m.message}`)).toEqual([
      '2 n is no integer: 1.5', '2 vip is neither true nor false: yes', '2 tags is no JSON array: {}', '3 has no id',
      '4 has 3 values, and the first line names 4 columns', '6 says 4 again, which line 5 has',
    ]);
    expect(sheet.writes.map((w) => w.key)).toEqual(['4']);
  });

  it.each([['id,size\n1,2\n', 'names what the store does not have: size'], ['n\n1\n', 'names no column id, which is to be the key'], ['', 'must name the columns: the file is empty']])('refuses the columns of %j', (text, message) => {
    expect(sheetOf(text, fields, options)).toEqual({ writes: [], lines: [], mistakes: [{ line: 1, message }] });
  });

  it('has the mistakes of the service by line', () => {
    expect(placeMistakes([{ loc: ['body', 'records', '1', 'values', 'n'], msg: 'Too big' }, { loc: ['body', 'records', '0', 'key'], msg: 'Bad' }], [2, 5]))
      .toEqual([{ line: 5, message: 'n: Too big' }, { line: 2, message: 'key: Bad' }]);
  });

  it.each(['01', '1.', '+1', 'x', '1e', '0x1'])('takes %s for no number', (text) => expect(() => valueOf('number', text)).toThrow('is no number'));
});
