import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type Batch, type ErrorGroup } from '../api/client';
import { useChange, useLive } from '../api/live';
import { useMe } from '../app/frame';
import { count, words } from '../lib/format';
import { Ask, Button, Empty, Failure, Loading, Status } from '../ui/parts';
import { moves } from './batches';
import { RetryBatch } from './steer';

/** What went wrong in a batch, alike things together, and what can be done about each. */
export function Errors({ batch }: { batch: Batch }) {
  const errors = useLive(['errors', batch.id], (signal) => flowlane.batches.listErrors({ path: { batch_id: batch.id }, signal }), moves(batch));
  if (errors.error && !errors.data) return <Failure error={errors.error} retry={() => void errors.refetch()} />;
  if (!errors.data) return <Loading />;
  if (errors.data.items.length === 0) return <Empty>Nothing went wrong so far.</Empty>;
  return (
    <>
      <ul className="cards">
        {errors.data.items.map((g) => <Group key={g.id} batch={batch} group={g} />)}
      </ul>
      {errors.data.others > 0 && <p className="faint">{count(errors.data.others)} more records failed in other ways; the results have them all.</p>}
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
      {open === 'resolve' && <Decide batch={batch} group={g} close={() => setOpen(undefined)} />}
    </li>
  );
}

type Outcome = 'accepted' | 'rejected' | 'requeue';

const outcomes: Array<[Outcome, string]> = [
  ['accepted', 'The provider has them: count them as accepted'],
  ['rejected', 'The provider does not have them, and shall not: count them as rejected'],
  ['requeue', 'The provider does not have them: send them again'],
];

/** Says what became of records of which nobody knows. Sending again is never the default: it cannot be unsent. */
function Decide({ batch, group, close }: { batch: Batch; group: ErrorGroup; close: () => void }) {
  const [outcome, setOutcome] = useState<Outcome>('accepted');
  const [note, setNote] = useState('');
  const decide = useChange(
    () => flowlane.batches.resolve({ path: { batch_id: batch.id }, body: { outcome, note, groups: [group.id], expected_count: group.count } }),
    close,
  );
  return (
    <Ask
      title={`Decide about ${count(group.count)} ${group.count === 1 ? 'record' : 'records'}`} action="Decide" busy={decide.isPending || note.trim() === ''}
      error={decide.error} onGo={() => decide.mutate(undefined)} onClose={close}
    >
      <p>No answer came that says whether the provider took them ({words(group.status)}). Look there first.</p>
      {outcomes.map(([value, text]) => (
        <label key={value} className="check">
          <input type="radio" name="outcome" checked={outcome === value} onChange={() => setOutcome(value)} />
          {text}
        </label>
      ))}
      {outcome === 'requeue' && <p className="note attention">If the provider has them after all, it gets them twice.</p>}
      <label>What you saw there (kept with the decision)<input value={note} required maxLength={500} onChange={(e) => setNote(e.target.value)} /></label>
    </Ask>
  );
}
