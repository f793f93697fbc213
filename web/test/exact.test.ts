import { describe, expect, it } from 'vitest';

import { Exact, exactly, read, write } from '../src/lib/exact';
import { textOf, valuesOf, type Field } from '../src/ui/fields';

const text = '{"n":9007199254740993,"f":1.50,"e":1E400,"s":"9007199254740993 \\"1.50\\"","l":[-0,7,true,null],"o":{"12345678901234567890":-12345678901234567890}}';

describe('exact JSON', () => {
  it('is written as it was read', () => expect(write(read(text))).toBe(text));

  it('is what it would be, where no digit gets lost', () => {
    expect(read('{"a":[1,2.5,"x"],"__proto__":1}')).toEqual(JSON.parse('{"a":[1,2.5,"x"],"__proto__":1}'));
    expect(read(text)).toMatchObject({ n: new Exact('9007199254740993'), l: [expect.anything(), 7, true, null] });
  });

  it('is read of an answer', async () => expect(await exactly(Promise.resolve('[1.0]' as unknown))).toEqual([new Exact('1.0')]));

  it.each(['', '{"a":01}', '[1 2]', '{"n":+1}', '"a'])('refuses %s', (broken) => expect(() => read(broken)).toThrow(SyntaxError));

  it('leaves out what is undefined, and is a rounded number to others', () => {
    expect(write({ a: undefined, b: new Exact('1.0') })).toBe('{"b":1.0}');
    expect(JSON.stringify({ b: new Exact('1.0') })).toBe('{"b":1}');
  });
});

describe('a form', () => {
  const field: Field = { name: 'keys', label: 'Keys', kind: 'json' };

  it('sends the digits that were typed', () => expect(write(valuesOf([field], { keys: '[{"n": 9007199254740993}]' }))).toBe('{"keys":[{"n":9007199254740993}]}'));

  it('begins with the digits that were read', () => expect(textOf({ ...field, value: read('[1.50]') })).toBe('[\n  1.50\n]'));

  it('says what is no JSON', () => expect(() => valuesOf([field], { keys: '{' })).toThrow(/^Keys is no JSON: /));
});
