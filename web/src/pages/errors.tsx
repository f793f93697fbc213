import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type Batch, type ErrorGroup, type JobStatus } from '../api/client';
import { useLive } from '../api/live';
import { useMe } from '../app/frame';
import { count } from '../lib/format';
import { Button, Empty, Failure, Loading, Status } from '../ui/parts';
import { moves } from './batches';
import { Decide } from './decide';
import { RetryBatch } from './steer';

/** What went wrong in a batch, alike things together, and what can be done about each. */
export function Errors({ batch, only }: { batch: Batch; only?: JobStatus[] }) {
  const errors = useLive(['errors', batch.id], (signal) => flowlane.batches.listErrors({ path: { batch_id: batch.id }, signal }), moves(batch));
  if (errors.error && !errors.data) return <Failure error={errors.error} retry={() => void errors.refetch()} />;
  if (!errors.data) return <Loading />;
  if (errors.data.items.length === 0) return <Empty>Nothing went wrong so far.</Empty>;
  return (
    <>
      <ul className="cards">
        {errors.data.items.filter((g) => !only || only.includes(g.status)).map((g) => <Group key={g.id} batch={batch} group={g} />)}
      </ul>
      {!only && errors.data.others > 0 && <p className="faint">{count(errors.data.others)} more records failed in other ways; the results have them all.</p>}
    </>
  );
}

function Group({ batch, group: g }: { batch: Batch; group: ErrorGroup }) {
  const [open, setOpen] = useState<'retry' | 'resolve'>();
  const me = useMe();
  const unknown = g.status === 'unresolved' || g.status === 'needs_reconcile';
  const may = me?.role === 'admin';
  const at = [g.error.step_id, g.error.task_id].filter(Boolean).join(' › ');
  return (
    <li className="card">
      <div className="group">
        <div>
          <p><Status status={g.status} /> <strong>{count(g.count)}</strong> {g.count === 1 ? 'record' : 'records'}{at && <span className="faint"> in {at}</span>}</p>
          <p className="message">{g.error.provider_message ?? g.error.message}</p>
          <p className="faint">
            <code>{g.error.code}</code>
            {g.error.provider_status != null && <> · HTTP {g.error.provider_status}</>}
            {g.error.provider_code && <> · <code>{g.error.provider_code}</code></>}
            {g.error.provider_message && g.error.message !== g.error.provider_message && <> · {g.error.message}</>}
          </p>
          <p className="faint">
            For example{' '}
            {g.examples.slice(0, 5).map((e, i) => (
              <span key={e.job_id}>
                {i > 0 && ', '}
                <Link to="/batches/$batchId/$position" params={{ batchId: batch.id, position: String(e.position) }}>record {count(e.position)}</Link>
              </span>
            ))}
          </p>
        </div>
        <div className="actions">
          {unknown && <Button disabled={!may} title={may ? undefined : 'Only an admin may decide'} onClick={() => setOpen('resolve')}>Decide…</Button>}
          {!unknown && batch.completed_at && (
            <Button disabled={!may} title={may ? undefined : 'Only an admin may retry'} onClick={() => setOpen('retry')}>Retry these</Button>
          )}
        </div>
      </div>
      {open === 'retry' && <RetryBatch batch={batch} groups={{ ids: [g.id], records: g.count }} close={() => setOpen(undefined)} />}
      {open === 'resolve' && (
        <Decide
          records={g.count} status={g.status} close={() => setOpen(undefined)}
          send={(outcome, note) => flowlane.batches.resolve({ path: { batch_id: batch.id }, body: { outcome, note, groups: [g.id], expected_count: g.count } })}
        />
      )}
    </li>
  );
}
