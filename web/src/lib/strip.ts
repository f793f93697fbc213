import type { Fire, FireStatus } from '../api/client';

/** What became of the slots of a day. */
export interface Day {
  /** The day in the zone of the schedule: 2026-03-29. */
  date: string;
  counts: Record<FireStatus, number>;
  /** Why slots started nothing, each reason once. */
  reasons: string[];
}

const worst: FireStatus[] = ['failed', 'skipped', 'fired'];

/** The worst that happened on a day; undefined where nothing was due. */
export const kindOfDay = (day: Day): FireStatus | undefined => worst.find((status) => day.counts[status] > 0);

/** The days up to now in a zone, the oldest first, with what became of their slots. */
export function daysOf(fires: Array<Pick<Fire, 'slot_at' | 'status' | 'reason'>>, now: Date, zone: string, many = 90): Day[] {
  const format = new Intl.DateTimeFormat('en-CA', { timeZone: zone, year: 'numeric', month: '2-digit', day: '2-digit' });
  const [year, month, day] = format.format(now).split('-').map(Number) as [number, number, number];
  const days = Array.from({ length: many }, (_, i): Day => ({
    date: new Date(Date.UTC(year, month - 1, day - many + 1 + i)).toISOString().slice(0, 10), counts: { fired: 0, skipped: 0, failed: 0 }, reasons: [],
  }));
  const byDate = new Map(days.map((d) => [d.date, d]));
  for (const { slot_at: at, status, reason } of fires) {
    const found = byDate.get(format.format(new Date(at)));
    if (!found) continue;
    found.counts[status]++;
    if (reason !== null && !found.reasons.includes(reason)) found.reasons.push(reason);
  }
  return days;
}

/** A day in words. */
export function tellDay(day: Day): string {
  const told = worst.toReversed().filter((s) => day.counts[s] > 0).map((s) => `${day.counts[s]} ${s}`);
  return [`${day.date}: ${told.join(', ') || 'nothing was due'}`, ...day.reasons].join('; ');
}
