import type { JobCounts } from '../api/client';

/** How many records were over at a moment, in milliseconds. */
export interface Sample {
  at: number;
  done: number;
}

/** What is looked back on: a minute, and at least some seconds, as batches go on by slices. */
const window = 60_000;
const least = 4000;

/** How many records of a batch are over. */
export const doneOf = (c: JobCounts): number => c.completed + c.accepted + c.rejected + c.failed + c.unprocessed + c.cancelled;

/** The samples with one more; those that nobody looks back on are left out, but for the last of them. */
export function sampled(samples: readonly Sample[], sample: Sample): Sample[] {
  const kept = samples.filter((s, i) => s.at > sample.at - window || (samples[i + 1]?.at ?? sample.at) > sample.at - window);
  const last = kept.at(-1);
  if (last && sample.at - last.at < 500) return [...kept.slice(0, -1), { at: last.at, done: sample.done }];
  return [...kept, sample];
}

/** Records in a second over the last minute; undefined while that is not known yet. */
export function speedOf(samples: readonly Sample[]): number | undefined {
  const first = samples[0];
  const last = samples.at(-1);
  if (!first || !last || last.at - first.at < least) return undefined;
  return Math.max(0, last.done - first.done) / ((last.at - first.at) / 1000);
}

/** A speed as people tell it: by the second, or by the minute or hour where it is less than one. */
export function pace(perSecond: number): string {
  for (const [factor, unit] of [[1, 's'], [60, 'min'], [3600, 'h']] as const) {
    const n = perSecond * factor;
    if (n >= 1) return `${n < 10 ? n.toFixed(1).replace(/\.0$/, '') : String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, '\u202f')} a ${unit}`;
  }
  return perSecond > 0 ? '< 1 a h' : 'nothing';
}
