import { describe, expect, it } from 'vitest';

import { clock, count, cut, exact, percent, pretty, relative, span, took } from '../src/lib/format';

const now = Date.parse('2026-03-03T12:00:00Z');

describe('count', () => {
  it('groups digits by spaces that no line breaks at', () => {
    expect([0, 12, 999, 1000, 1_234_567].map(count)).toEqual(['0', '12', '999', '1\u202f000', '1\u202f234\u202f567']);
  });
});

describe('percent', () => {
  it('is all or nothing only where it is', () => {
    expect(percent(999_999, 1_000_000)).toBe('99 %');
    expect(percent(1, 1_000_000)).toBe('< 1 %');
    expect([percent(0, 5), percent(5, 5), percent(0, 0)]).toEqual(['0 %', '100 %', '–']);
  });
});

describe('span', () => {
  it('says nothing of a second unit that there is none of', () => {
    expect([60, 900, 3600, 7230, 86_400, 86_400 * 90].map(span)).toEqual(['1 min', '15 min', '1 h', '2 h', '1 d', '90 d']);
  });

  it('tells the two largest units', () => {
    expect([0.4, 59, 61, 3600 * 2 + 300, 86_400 * 3 + 3600 * 4].map(span)).toEqual(['0 s', '59 s', '1 min 01 s', '2 h 05 min', '3 d 4 h']);
  });
});

describe('took', () => {
  it('tells milliseconds of what is short', () => {
    const ends = ['00.043', '01.200', '12.400', '00.000'];
    expect(ends.map((s) => took('2026-03-03T12:00:00.000Z', `2026-03-03T12:00:${s}Z`))).toEqual(['43 ms', '1.2 s', '12 s', '0 ms']);
  });
});

describe('times', () => {
  it('are relative to the clock that is passed', () => {
    expect(relative('2026-03-03T11:59:20Z', now)).toBe('40 s ago');
    expect(relative('2026-03-03T14:00:00Z', now)).toBe('in 2 h');
    expect(relative('2026-03-03T12:00:00Z', now)).toBe('now');
  });
  it('name the day where it is not today', () => {
    expect(clock('2026-03-03T09:05:07Z', 'utc', now)).toBe('09:05:07');
    expect(clock('2026-03-01T09:05:07Z', 'utc', now)).toBe('1 Mar 09:05:07');
    expect(clock('2025-03-01T09:05:07Z', 'utc', now)).toBe('1 Mar 2025 09:05:07');
    expect(exact('2026-03-03T09:05:07Z', 'utc')).toBe('2026-03-03 09:05:07 UTC');
  });
});

describe('pretty', () => {
  it('keeps every digit and every letter of a string', () => {
    const text = '{"id":12345678901234567890,"a":[ ],"b":{},"c":[1.10,"x, {y}\\\\\\": z"]}';
    expect(pretty(text)).toBe('{\n  "id": 12345678901234567890,\n  "a": [],\n  "b": {},\n  "c": [\n    1.10,\n    "x, {y}\\\\\\": z"\n  ]\n}');
    expect(JSON.parse(pretty(text))).toEqual(JSON.parse(text));
  });
  it('leaves alone what is no JSON, and what was cut', () => {
    expect(pretty('name=x&y={1}')).toBe('name=x&y={1}');
    expect(pretty('{"a":"cut of')).toBe('{\n  "a": "cut of');
  });
});

describe('cut', () => {
  it('keeps the ends of an id', () => expect(cut('01981f6e-3f1a-7c36-a6bc-5bb7b0b0c2aa')).toBe('01981f6e…c2aa'));
});
