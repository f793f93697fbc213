import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';

import { flowlane, type BatchBulk, type BatchFilter } from '../api/client';
import type { Bulk } from '../lib/bulk';
import { count, percent } from '../lib/format';
import { closeBulk, resumeBulk, startBulk, stopBulk } from '../ui/bulk';
import { Ask, Button, Failure, Id, Loading, Status } from '../ui/parts';
import './bulk.css';

/** What can be done to many batches: the button, what stands after it, and what comes of it. */
export const actions: Record<BatchBulk['action'], { label: string; done: string; effect: string }> = {
  pause: { label: 'Pause', done: 'paused', effect: 'Calls that are under way end; nothing new is sent from a second on.' },
  resume: { label: 'Resume', done: 'resumed', effect: 'They go on where they stood.' },
  cancel: { label: 'Cancel', done: 'cancelled', effect: 'What was not sent will not be. What was sent cannot be taken back, and nothing undoes this.' },
  retry: { label: 'Retry', done: 'retried', effect: 'The failed, rejected and unprocessed records of each become a new batch of the same flow.' },
  raise_priority: { label: 'Raise priority', done: 'put first', effect: 'They go before the other batches of their lane.' },
  lower_priority: { label: 'Lower priority', done: 'put back', effect: 'They go with the other batches of their lane, by their age.' },
};

const batches = (n: number): string => `${count(n)} ${n === 1 ? 'batch' : 'batches'}`;

interface Props {
  action: BatchBulk['action'];
  filter: BatchFilter;
  /** How many were chosen, of which some may be such that the action does not apply. */
  chosen: number;
  close: () => void;
}

/** Asks before something is done to many batches, with their number as the service counts it now. */
export function AskBulk({ action, filter, chosen, close }: Props) {
  const [reason, setReason] = useState('');
  const [minutes, setMinutes] = useState('');
  const [typed, setTyped] = useState('');
  const [refused, setRefused] = useState<Error>();
  const { label, effect } = actions[action];
  const meant = useQuery({
    queryKey: ['bulk', action, filter], gcTime: 0, staleTime: 0,
    queryFn: ({ signal }) => flowlane.batches.change({ body: { action, filter }, signal }),
  });
  const total = meant.data?.matched ?? 0;
  const confirmed = action !== 'cancel' || typed === String(total);
  const go = () => {
    const body: BatchBulk = { action, filter };
    if (reason) body.reason = reason;
    if (minutes) body.duration_seconds = Math.round(Number(minutes) * 60);
    try {
      startBulk(body, total);
      close();
    } catch (error) {
      setRefused(error as Error);
    }
  };
  return (
    <Ask
      title={`${label} batches`} action={meant.data ? `${label}: ${batches(total)}` : label}
      busy={meant.isFetching} disabled={total === 0 || !confirmed} error={meant.error ?? refused} onGo={go} onClose={close}
    >
      {meant.isPending && <Loading />}
      {meant.data && (total === 0
        ? <p>None of them is such that this can be done.</p>
        : <p><strong>{batches(total)}</strong>{chosen > total && <> of {count(chosen)}; with the others this cannot be done</>}. {effect}</p>)}
      {(action === 'pause' || action === 'cancel') && (
        <label>Why (others read it)<input value={reason} maxLength={200} onChange={(e) => setReason(e.target.value)} /></label>
      )}
      {action === 'pause' && (
        <label>
          For how many minutes
          <input type="number" min="1" max="10080" value={minutes} placeholder="until somebody resumes them" onChange={(e) => setMinutes(e.target.value)} />
        </label>
      )}
      {action === 'cancel' && total > 0 && (
        <label>
          Type {total} to cancel as many
          <input inputMode="numeric" autoComplete="off" required value={typed} onChange={(e) => setTyped(e.target.value.trim())} />
        </label>
      )}
    </Ask>
  );
}

/** How far it is with many batches, and what became of each. */
export function BulkDrawer({ bulk }: { bulk: Bulk }) {
  const queries = useQueryClient();
  const over = bulk.state !== 'running';
  useEffect(() => {
    if (over) void queries.invalidateQueries();
  }, [queries, over]);
  const refused = bulk.items.filter((item) => item.outcome === 'refused');
  const started = bulk.items.filter((item) => item.started_batch_id !== null);
  const { label, done } = actions[bulk.body.action];
  const text = `${count(bulk.items.length - refused.length)} of ${batches(bulk.total)} ${done}${refused.length > 0 ? `, ${count(refused.length)} refused` : ''}`;
  return (
    <aside className="drawer" aria-label="Many batches">
      <h2>{label} <span className="faint">{bulk.state === 'running' ? percent(bulk.items.length, bulk.total) : bulk.state}</span></h2>
      <svg className="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
        <rect className="fill-ok" width={(100 * (bulk.items.length - refused.length)) / Math.max(bulk.total, 1)} height="4" />
        <rect
          className="fill-failed" x={(100 * (bulk.items.length - refused.length)) / Math.max(bulk.total, 1)}
          width={(100 * refused.length) / Math.max(bulk.total, 1)} height="4"
        />
      </svg>
      <p role="status">{text}.</p>
      {bulk.error != null && <Failure error={bulk.error} />}
      <Items title="Refused" rows={refused.map((item) => ({ id: item.batch_id, to: item.batch_id, note: item.detail ?? '' }))} />
      <Items title="Started" rows={started.map((item) => ({ id: item.batch_id, to: item.started_batch_id!, note: 'as a new batch' }))} />
      <details>
        <summary>Every batch</summary>
        <ul className="outcomes">
          {bulk.items.slice(0, 500).map((item) => <li key={item.batch_id}><Status status={item.outcome === 'done' ? 'succeeded' : 'refused'} /> <Id id={item.batch_id} /></li>)}
        </ul>
      </details>
      <div className="actions">
        {bulk.state === 'running' && <Button onClick={stopBulk}>Stop</Button>}
        {(bulk.state === 'stopped' || bulk.state === 'failed') && <Button onClick={resumeBulk}>Go on</Button>}
        {over && <Button strong onClick={closeBulk}>Close</Button>}
      </div>
    </aside>
  );
}

function Items({ title, rows }: { title: string; rows: Array<{ id: string; to: string; note: string }> }) {
  if (rows.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul className="outcomes">
        {rows.slice(0, 100).map((r) => (
          <li key={r.id}><Link to="/batches/$batchId" params={{ batchId: r.to }}>batch</Link> <Id id={r.to} /> <span className="faint">{r.note}</span></li>
        ))}
      </ul>
      {rows.length > 100 && <p className="faint">and {count(rows.length - 100)} more</p>}
    </>
  );
}
