import { expect, it } from 'vitest';

import { diff } from '../src/lib/diff';

const texts = (lines: ReturnType<typeof diff>) => lines.map((l) => `${l.before ?? ''}${l.same ? '=' : '|'}${l.after ?? ''}`);

it('sets alike lines side by side', () => {
  expect(texts(diff('a\nb\nc\nd', 'a\nx\nc\ny\nd'))).toEqual(['a=a', 'b|x', 'c=c', '|y', 'd=d']);
  expect(texts(diff('a\nb', 'a\nb'))).toEqual(['a=a', 'b=b']);
  expect(texts(diff('a\nb\na', 'a'))).toEqual(['a=a', 'b|', 'a|']);
});

it('stays fast where all differs', () => {
  const long = (letter: string) => Array.from({ length: 5000 }, (_, i) => `${letter}${i}`).join('\n');
  expect(diff(long('a'), long('b')).every((l) => !l.same)).toBe(true);
});
