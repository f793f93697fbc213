import type { JobCounts } from '../api/client';
import { count, percent, words } from '../lib/format';
import { kindOf } from './parts';

const order: Array<keyof JobCounts> = [
  'completed', 'accepted', 'rejected', 'failed', 'unresolved', 'needs_reconcile', 'started', 'pending', 'queued', 'staged', 'unprocessed', 'cancelled',
];

/** How many records of a batch are in which state, as one bar and in words for those who do not see it. */
export function RecordBar({ counts, records }: { counts: JobCounts; records: number }) {
  const parts = order.filter((status) => counts[status] > 0);
  const text = parts.map((status) => `${count(counts[status])} ${words(status)}`).join(', ') || 'no records';
  return (
    <svg className="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={text}>
      <title>{text}</title>
      {parts.map((status, i) => {
        const before = parts.slice(0, i).reduce((sum, s) => sum + counts[s], 0);
        const whole = Math.max(records, 1);
        return (
          <rect key={status} className={`fill-${kindOf(status)}`} x={(100 * before) / whole} width={(100 * counts[status]) / whole} height="4" />
        );
      })}
    </svg>
  );
}

/** How much of something limited is used. */
export function Gauge({ used, cap, label }: { used: number; cap: number; label: string }) {
  const share = cap > 0 ? Math.min(100, (100 * used) / cap) : 100;
  const text = `${label}: ${count(used)} of ${count(cap)} used, ${percent(used, cap)}`;
  return (
    <svg className="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={text}>
      <title>{text}</title>
      <rect className={share >= 90 ? 'fill-failed' : share >= 70 ? 'fill-partial' : 'fill-running'} width={share} height="4" />
    </svg>
  );
}
