/** The shares of weights in percent, whole numbers that add up to a hundred: what is left over goes to those that lost most. */
export function shares(weights: readonly number[]): number[] {
  const sum = weights.reduce((a, b) => a + b, 0);
  if (sum === 0) return weights.map(() => 0);
  const exact = weights.map((w) => (100 * w) / sum);
  const out = exact.map(Math.floor);
  const order = exact.map((e, i) => ({ i, lost: e - out[i]! })).sort((a, b) => b.lost - a.lost || a.i - b.i);
  for (let left = 100 - out.reduce((a, b) => a + b, 0), n = 0; left > 0; left--, n++) out[order[n]!.i]!++;
  return out;
}
