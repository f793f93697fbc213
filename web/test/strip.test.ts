import { describe, expect, it } from 'vitest';

import { daysOf, kindOfDay, tellDay } from '../src/lib/strip';

const now = new Date('2026-03-30T10:30:00Z'); // the 31st in Auckland, the day after the clocks of Berlin went forward

describe('the days of a schedule', () => {
  it('are those of its zone, each once', () => {
    const days = daysOf([], now, 'Pacific/Kiritimati');
    expect([days.length, days[0]!.date, days.at(-1)!.date]).toEqual([90, '2026-01-01', '2026-03-31']);
    expect(daysOf([], now, 'Europe/Berlin', 3).map((d) => d.date)).toEqual(['2026-03-28', '2026-03-29', '2026-03-30']);
  });

  it('count what became of their slots, and say why', () => {
    const days = daysOf([
      { slot_at: '2026-03-29T21:59:00Z', status: 'fired', reason: null }, { slot_at: '2026-03-29T22:00:00Z', status: 'failed', reason: 'Definition is not active' },
      { slot_at: '2026-03-30T01:00:00Z', status: 'skipped', reason: 'Late' }, { slot_at: '2026-03-30T02:00:00Z', status: 'skipped', reason: 'Late' },
      { slot_at: '2020-01-01T00:00:00Z', status: 'failed', reason: 'long ago' },
    ], now, 'Europe/Berlin', 3);
    expect(days.map(kindOfDay)).toEqual([undefined, 'fired', 'failed']);
    expect(days.map(tellDay)).toEqual(['2026-03-28: nothing was due', '2026-03-29: 1 fired', '2026-03-30: 2 skipped, 1 failed; Definition is not active; Late']);
  });
});
