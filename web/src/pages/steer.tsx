import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type Batch, type BatchRetry } from '../api/client';
import { useChange } from '../api/live';
import { count } from '../lib/format';
import { RequestKey } from '../lib/key';
import { Ask } from '../ui/parts';

interface Props {
  batch: Batch;
  close: () => void;
}

/** Pauses a batch, for a while or until somebody resumes it. */
export function PauseBatch({ batch, close }: Props) {
  const [reason, setReason] = useState('');
  const [minutes, setMinutes] = useState('');
  const pause = useChange(
    () => flowlane.dispatch.pauseBatch({
      path: { batch_id: batch.id },
      body: { reason: reason || null, duration_seconds: minutes ? Math.round(Number(minutes) * 60) : null },
    }),
    close,
  );
  const { queued, staged } = batch.job_counts;
  return (
    <Ask title="Pause this batch" action="Pause" busy={pause.isPending} error={pause.error} onGo={() => pause.mutate(undefined)} onClose={close}>
      <p>{count(queued + staged)} records wait and stay where they are. Calls that are under way end; nothing new is sent from a second on.</p>
      <label>Why (others read it)<input value={reason} maxLength={200} onChange={(e) => setReason(e.target.value)} /></label>
      <label>
        For how many minutes
        <input type="number" min="1" value={minutes} placeholder="until somebody resumes it" onChange={(e) => setMinutes(e.target.value)} />
      </label>
    </Ask>
  );
}

/** Cancels what of a batch was not sent yet. */
export function CancelBatch({ batch, close }: Props) {
  const [reason, setReason] = useState('');
  const cancel = useChange(() => flowlane.batches.cancel({ path: { batch_id: batch.id }, body: reason ? { reason } : {} }), close);
  const { queued, staged, started, pending } = batch.job_counts;
  return (
    <Ask title="Cancel this batch" action="Cancel the batch" busy={cancel.isPending} error={cancel.error} onGo={() => cancel.mutate(undefined)} onClose={close}>
      <p>{count(queued + staged)} records will not be sent. {count(started + pending)} are under way and end as they end: what was sent cannot be taken back.</p>
      <label>Why (others read it)<input value={reason} maxLength={200} onChange={(e) => setReason(e.target.value)} /></label>
    </Ask>
  );
}

/** Deletes a batch that is over, and goes back to the others. */
export function DeleteBatch({ batch, close }: Props) {
  const navigate = useNavigate();
  const remove = useChange(async () => {
    await flowlane.batches.delete({ path: { batch_id: batch.id } });
    await navigate({ to: '/batches', search: {} });
  }, close);
  return (
    <Ask
      title="Delete this batch" action="Delete for good" busy={remove.isPending} error={remove.error}
      onGo={() => remove.mutate(undefined)} onClose={close}
    >
      <p>
        {count(batch.record_count)} records go, with their results, the record set that they came from, and all batches that retried
        some of them. Nobody can bring them back. What was sent stays sent.
      </p>
    </Ask>
  );
}

const retried = ['failed', 'rejected', 'unprocessed', 'cancelled'] as const;

/** Starts records of a batch that is over again, as a new batch. */
export function RetryBatch({ batch, close, groups }: Props & { groups?: { ids: string[]; records: number } }) {
  const navigate = useNavigate();
  const [chosen, setChosen] = useState<string[]>(() => retried.filter((s) => s !== 'rejected' && batch.job_counts[s] > 0));
  const body: BatchRetry = groups ? { groups: groups.ids } : { job_statuses: retried.filter((s) => chosen.includes(s)) };
  const [key] = useState(() => new RequestKey());
  const records = groups ? groups.records : retried.filter((s) => chosen.includes(s)).reduce((n, s) => n + batch.job_counts[s], 0);
  const retry = useChange(async () => {
    const started = await flowlane.batches.retry({ path: { batch_id: batch.id }, body, headers: { 'Idempotency-Key': key.for(body) } });
    await navigate({ to: '/batches/$batchId', params: { batchId: started.batch_id }, search: {} });
  }, close);
  return (
    <Ask
      title="Retry records" action={`Send ${count(records)} again`} busy={retry.isPending || records === 0} error={retry.error}
      onGo={() => retry.mutate(undefined)} onClose={close}
    >
      <p>They become a new batch of the same flow. Records whose outcome nobody knows are not among them: decide about those first.</p>
      {!groups && retried.filter((s) => batch.job_counts[s] > 0).map((s) => (
        <label key={s} className="check">
          <input
            type="checkbox" checked={chosen.includes(s)}
            onChange={(e) => setChosen(e.target.checked ? [...chosen, s] : chosen.filter((c) => c !== s))}
          />
          {count(batch.job_counts[s])} {s}
        </label>
      ))}
    </Ask>
  );
}
