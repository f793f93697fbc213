import type { Batch, EstimateAtStart } from '../api/client';
import { span } from './format';

/** How the end of a batch, or now while it goes on, lies to what its start was told; undefined where that says nothing yet. */
export function against(e: EstimateAtStart, batch: Pick<Batch, 'completed_at' | 'status'>, now: number): string | undefined {
  if (e.eta_at === null || batch.status === 'cancelled') return undefined;
  const late = ((batch.completed_at ? Date.parse(batch.completed_at) : now) - Date.parse(e.eta_at)) / 1000;
  if (!batch.completed_at) return late >= 1 ? `${span(late)} late so far` : undefined;
  if (Math.abs(late) < 1) return 'just then';
  return late > 0 ? `${span(late)} later` : `${span(-late)} earlier`;
}
