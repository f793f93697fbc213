import { describe, expect, it } from 'vitest';

import { lineOf, locate, pick, scan } from '../src/lib/json';

const text = '{\n "name": "a \\"b\\"",\n "steps": [{"id": "x", "n": 12345678901234567890}]\n}';

describe('scan', () => {
  it('knows where each value stands', () => {
    const { place, depth } = locate(scan(text).root!, ['steps', '0', 'n']);
    expect(text.slice(place.from, place.to)).toBe('12345678901234567890');
    expect(depth).toBe(3);
    expect(lineOf(text, place.from)).toBe(3);
  });

  it('goes as far as the text has it', () => {
    const { place, depth } = locate(scan(text).root!, ['steps', '0', 'tasks', '1']);
    expect(depth).toBe(2);
    expect(place.kind).toBe('object');
  });

  it.each([
    ['{"a":1,}', 7], ['{"a" 1}', 5], ['[1 2]', 3], ['{"a":1,"a":2}', 7], ['{"a":tru}', 5], ['"a\nb"', 0], ['{} x', 3], ['', 0], ['[01]', 1], ['["\\x"]', 1],
  ])('finds the mistake of %s', (broken, at) => {
    expect(scan(broken).mistake?.at).toBe(at);
  });

  it('bounds the depth', () => expect(scan('['.repeat(100_000)).mistake?.message).toBe('Too deep.'));
});

it('picks members in their own text', () => {
  expect(pick(text, ['steps', 'none', 'name'])).toBe('{"steps": [{"id": "x", "n": 12345678901234567890}],"name": "a \\"b\\""}');
});
