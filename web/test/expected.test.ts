import { describe, expect, it } from 'vitest';

import type { EstimateAtStart } from '../src/api/client';
import { against } from '../src/lib/expected';

const told = (eta_at: string | null): EstimateAtStart => ({
  made_at: '2026-03-03T12:00:00Z', tenancy_id: 't', bucket: 'b', estimated_calls: 3, pct_of_remaining_day: null, eta_at, unknown_reason: null,
});
const now = Date.parse('2026-03-03T12:30:00Z');

describe('what came, against what was expected', () => {
  it('tells how much earlier or later a batch ended', () => {
    const of = (completed_at: string) => against(told('2026-03-03T12:20:00Z'), { completed_at, status: 'completed' }, now);
    expect(of('2026-03-03T12:05:00Z')).toBe('15 min earlier');
    expect(of('2026-03-03T12:20:00Z')).toBe('just then');
    expect(of('2026-03-03T12:22:05Z')).toBe('2 min 05 s later');
  });

  it('says of one that goes on only that it is late', () => {
    const of = (eta_at: string | null) => against(told(eta_at), { completed_at: null, status: 'running' }, now);
    expect(of('2026-03-03T12:20:00Z')).toBe('10 min late so far');
    expect(of('2026-03-03T12:40:00Z')).toBeUndefined();
    expect(of(null)).toBeUndefined();
  });

  it('holds nothing against one that was cancelled', () => {
    expect(against(told('2026-03-03T12:20:00Z'), { completed_at: '2026-03-03T12:05:00Z', status: 'cancelled' }, now)).toBeUndefined();
  });
});
