import { describe, expect, it, vi } from 'vitest';

import type { BatchBulk, BatchBulkResult } from '../src/api/client';
import { BulkRun, type Bulk } from '../src/lib/bulk';
import { startBulk } from '../src/ui/bulk';

vi.mock('../src/api/client', () => ({ patient: { batches: { change: () => new Promise(() => undefined) } } }));

const body: BatchBulk = { action: 'cancel', filter: { status: 'running' } };
const piece = (ids: string[], next: string | null): BatchBulkResult => ({
  matched: 3, done: ids.length, refused: 0, left: 0, next_cursor: next,
  batches: ids.map((batch_id) => ({ batch_id, outcome: 'done', detail: null, started_batch_id: null })),
});

describe('many batches', () => {
  it('are asked for by their number once, then by the cursor', async () => {
    const sent: BatchBulk[] = [];
    const answers = [piece(['a', 'b'], 'c1'), piece(['c'], null)];
    const run = new BulkRun(body, 3, async (b) => (sent.push(b), answers.shift()!), () => undefined);
    await run.go();
    expect(sent).toEqual([{ ...body, expected_count: 3 }, { ...body, cursor: 'c1' }]);
    expect(run.bulk.state).toBe('done');
    expect(run.bulk.items.map((i) => i.batch_id)).toEqual(['a', 'b', 'c']);
  });

  it('stop between two pieces, and go on where they stopped', async () => {
    const sent: BatchBulk[] = [];
    const answers = [piece(['a'], 'c1'), piece(['b'], null)];
    const run: BulkRun = new BulkRun(body, 2, async (b) => {
      sent.push(b);
      run.stop();
      return answers.shift()!;
    }, () => undefined);
    await run.go();
    expect(run.bulk.state).toBe('stopped');
    expect(sent.length).toBe(1);
    await run.go();
    expect(run.bulk.state).toBe('done');
    expect(sent[1]).toEqual({ ...body, cursor: 'c1' });
  });

  it('keep what was done where a piece fails', async () => {
    const told: Array<Bulk['state']> = [];
    let n = 0;
    const run = new BulkRun(body, 2, async () => {
      if (n++ === 1) throw new Error('gone');
      return piece(['a'], 'c1');
    }, (bulk) => told.push(bulk.state));
    await run.go();
    expect(run.bulk.items.length).toBe(1);
    expect(told.at(-1)).toBe('failed');
    expect(String(run.bulk.error)).toContain('gone');
  });

  it('do not begin beside others, which could not be stopped any more', () => {
    startBulk(body, 2);
    expect(() => startBulk({ ...body, action: 'pause' }, 1)).toThrow('wait until it is over, or stop it');
  });
});
