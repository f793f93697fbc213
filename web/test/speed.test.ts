import { describe, expect, it } from 'vitest';

import { pace, sampled, speedOf, type Sample } from '../src/lib/speed';

const over = (seconds: number[], each: number): Sample[] =>
  seconds.reduce<Sample[]>((all, s) => sampled(all, { at: s * 1000, done: s * each }), []);

describe('the speed of a batch', () => {
  it('is not known at once', () => {
    expect(speedOf([])).toBeUndefined();
    expect(speedOf(over([0, 2], 5))).toBeUndefined();
  });

  it('is that of the last minute', () => {
    expect(speedOf(over([0, 2, 4, 6], 5))).toBe(5);
    let all = over([0, 10, 20, 30, 40, 50, 60], 100);
    for (let s = 70; s <= 200; s += 10) all = sampled(all, { at: s * 1000, done: 6000 });
    expect(speedOf(all)).toBe(0);
    expect(all.length).toBeLessThanOrEqual(8);
  });

  it('knows a batch that nobody looked at for long by what came since', () => {
    expect(speedOf([{ at: 0, done: 0 }, { at: 600_000, done: 1200 }].reduce<Sample[]>((all, s) => sampled(all, s), []))).toBe(2);
  });

  it('takes what comes at once for one sample', () => {
    expect(sampled([{ at: 1000, done: 1 }], { at: 1200, done: 3 })).toEqual([{ at: 1000, done: 3 }]);
  });

  it('is told by the second, the minute or the hour', () => {
    expect([1234, 12.4, 2.04, 1 / 30, 1 / 1000, 0.0001, 0].map(pace)).toEqual(['1\u202f234 a s', '12 a s', '2 a s', '2 a min', '3.6 a h', '< 1 a h', 'nothing']);
  });
});
