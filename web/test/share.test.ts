import { expect, it } from 'vitest';

import { shares } from '../src/lib/share';

it('makes shares of weights that add up to a hundred', () => {
  expect(shares([1, 1, 1])).toEqual([34, 33, 33]);
  expect(shares([30, 10])).toEqual([75, 25]);
  expect(shares([100, 1, 1, 1])).toEqual([97, 1, 1, 1]);
  expect(shares([7, 5, 3, 2]).reduce((a, b) => a + b)).toBe(100);
  expect(shares([0, 0])).toEqual([0, 0]);
});
