import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';

import { flowlane, type Batch, type EstimateAtStart, type JobStatus } from '../api/client';
import { again, useChange, useLive } from '../api/live';
import { exactly, write } from '../lib/exact';
import { useBatch } from '../api/stream';
import { useMe } from '../app/frame';
import { against } from '../lib/expected';
import { count, span, words } from '../lib/format';
import { doneOf, pace } from '../lib/speed';
import { RecordBar } from '../ui/bar';
import { Button, Copy, Empty, Facts, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';
import { Choice, moves } from './batches';
import { Speed, useSpeed } from './batch-speed';
import { Calls } from './calls';
import { Errors } from './errors';
import { CancelBatch, DeleteBatch, PauseBatch, RetryBatch } from './steer';

const tabs = ['errors', 'records', 'calls', 'speed', 'origin'] as const;
const statuses: JobStatus[] = [
  'queued', 'started', 'completed', 'accepted', 'rejected', 'failed', 'unresolved', 'needs_reconcile', 'unprocessed', 'staged',
];

/** How far a batch is, why not further, and what went wrong. */
export function BatchPage() {
  const { batchId } = useParams({ from: '/frame/batches/$batchId' });
  const search = useSearch({ from: '/frame/batches/$batchId' });
  const navigate = useNavigate();
  const batch = useBatch(batchId, moves);
  const flow = useLive(['flow', batch.data?.definition_id], async (signal) =>
    batch.data ? flowlane.definitions.get({ path: { definition_id: batch.data.definition_id }, signal }).catch(() => null) : null);
  const speed = useSpeed(batch.data, batch.dataUpdatedAt);
  if (batch.error && !batch.data) return <Failure error={batch.error} retry={() => void batch.refetch()} />;
  if (!batch.data) return <Loading />;
  const b = batch.data;
  const bad = b.job_counts.failed + b.job_counts.rejected + b.job_counts.unresolved + b.job_counts.needs_reconcile;
  const tab = search.tab ?? (bad > 0 ? 'errors' : 'records');
  return (
    <>
      <Head title={<>{flow.data?.name ?? 'A deleted flow'} <span className="faint">v{b.definition_version}</span></>} back={{ to: '/batches', label: 'Batches' }}>
        <Steering batch={b} />
      </Head>
      {batch.error && <Failure error={batch.error} retry={() => void batch.refetch()} />}
      <p className="lead">
        <Status status={b.status} /> {b.status_reason && <span>{b.status_reason}</span>} <Id id={b.id} />
      </p>
      <RecordBar counts={b.job_counts} records={b.record_count} />
      <Facts facts={figures(b, speed)} />
      <div className="tabs" role="tablist" aria-label="Parts of the batch">
        {tabs.map((t) => (
          <button
            key={t} type="button" role="tab" aria-selected={t === tab}
            onClick={() => void navigate({ to: '/batches/$batchId', params: { batchId }, search: { tab: t } })}
          >
            {t === 'errors' && bad > 0 ? `errors (${count(bad)})` : t}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-label={tab}>
        {tab === 'errors' && <Errors batch={b} />}
        {tab === 'records' && <Records batch={b} status={search.status} />}
        {tab === 'calls' && <Calls query={{ batch_id: b.id }} live={moves(b)} />}
        {tab === 'speed' && <Speed batch={b} />}
        {tab === 'origin' && <Origin batch={b} />}
      </div>
    </>
  );
}

function figures(b: Batch, speed: number | undefined): Array<[string, React.ReactNode]> {
  const c = b.job_counts;
  const facts: Array<[string, React.ReactNode]> = [['Records', count(b.record_count)], ['Progress', `${Math.floor(b.progress_percent)} %`]];
  const shown: Array<[string, number]> = [
    ['Succeeded', c.completed + c.accepted], ['Rejected', c.rejected], ['Failed', c.failed], ['Outcome unknown', c.unresolved + c.needs_reconcile],
    ['Under way', c.started + c.pending], ['Waiting', c.queued + c.staged], ['Left out', c.unprocessed + c.cancelled],
  ];
  for (const [name, n] of shown) if (n > 0) facts.push([name, count(n)]);
  facts.push(['Started', <Time at={b.started_at} />]);
  if (b.completed_at) facts.push(['Ended', <Time at={b.completed_at} />]);
  if (b.started_at) facts.push(['Took', span(((b.completed_at ? Date.parse(b.completed_at) : Date.now()) - Date.parse(b.started_at)) / 1000)]);
  if (speed !== undefined) {
    const left = b.record_count - doneOf(b.job_counts);
    facts.push(['Speed', pace(speed)]);
    if (speed > 0 && left > 0) facts.push(['At this speed', <>done <Time at={new Date(Date.now() + (1000 * left) / speed).toISOString()} ago /></>]);
  }
  if (b.estimate_at_start) facts.push(...expected(b, b.estimate_at_start));
  if (b.pacing) facts.push(['Paced', `${count(b.pacing.records_per_period)} each ${span(b.pacing.period_minutes * 60)}`]);
  if (b.lane) facts.push(['Lane', b.lane]);
  return facts;
}

/** What the start was told, and how that compares with what came. */
function expected(b: Batch, e: EstimateAtStart): Array<[string, React.ReactNode]> {
  const calls = `${count(e.estimated_calls)} ${e.estimated_calls === 1 ? 'call' : 'calls'}`;
  const compared = against(e, b, Date.now());
  return [
    ['Expected at the start', e.eta_at ? <>done by <Time at={e.eta_at} />, {calls}</> : `${calls}; when done nobody could say: ${words(e.unknown_reason ?? '')}`],
    ...(compared ? [['Against that', compared] as [string, string]] : []),
  ];
}

/** What can be done to a batch as it is now. */
function Steering({ batch }: { batch: Batch }) {
  const [open, setOpen] = useState<'pause' | 'cancel' | 'delete' | 'retry'>();
  const me = useMe();
  const resume = useChange(() => flowlane.dispatch.resumeBatch({ path: { batch_id: batch.id } }));
  const close = () => setOpen(undefined);
  const over = batch.completed_at !== null;
  const may = me?.role === 'admin';
  const why = may ? undefined : 'Only an admin may do this';
  const { failed, rejected, unprocessed, cancelled } = batch.job_counts;
  return (
    <>
      {resume.error && <Failure error={resume.error} />}
      {!over && batch.status !== 'paused' && <Button disabled={!may} title={why} onClick={() => setOpen('pause')}>Pause</Button>}
      {batch.status === 'paused' && <Button strong disabled={!may || resume.isPending} title={why} onClick={() => resume.mutate(undefined)}>Resume</Button>}
      {!over && <Button onClick={() => setOpen('cancel')}>Cancel</Button>}
      {over && failed + rejected + unprocessed + cancelled > 0 && <Button strong disabled={!may} title={why} onClick={() => setOpen('retry')}>Retry</Button>}
      <a className="button" href={`/v1/flows/batches/${batch.id}/results?format=csv`} download>Results as CSV</a>
      <Copy text={`flowlane batches get ${batch.id}`}>Copy command</Copy>
      {over && !batch.retry_of && <Button disabled={!may} title={why} onClick={() => setOpen('delete')}>Delete</Button>}
      {open === 'pause' && <PauseBatch batch={batch} close={close} />}
      {open === 'cancel' && <CancelBatch batch={batch} close={close} />}
      {open === 'delete' && <DeleteBatch batch={batch} close={close} />}
      {open === 'retry' && <RetryBatch batch={batch} close={close} />}
    </>
  );
}

function Records({ batch, status }: { batch: Batch; status: JobStatus | undefined }) {
  const navigate = useNavigate();
  const pages = useInfiniteQuery({
    queryKey: ['results', batch.id, status],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => exactly(flowlane.batches.listResults({
      path: { batch_id: batch.id }, query: { limit: 50, status, cursor: pageParam }, signal, parseAs: 'text',
    })),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    refetchInterval: ({ state }) => again(state.data?.pages.length ?? 0, moves(batch)),
  });
  const queries = useQueryClient();
  useEffect(() => {
    // The list that was read last may be from before the end, after which it is seldom read.
    if (batch.completed_at) void queries.invalidateQueries({ queryKey: ['results', batch.id] });
  }, [queries, batch.id, batch.completed_at]);
  const items = pages.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <>
      <div className="filters">
        <Choice
          label="Status" value={status} all={statuses} name={words}
          onChange={(v) => void navigate({ to: '/batches/$batchId', params: { batchId: batch.id }, search: { tab: 'records', status: v as JobStatus | undefined } })}
        />
      </div>
      {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && items.length === 0 && <Empty>{status ? `No record is ${words(status)}.` : 'The batch has no records.'}</Empty>}
      {items.length > 0 && (
        <table>
          <thead><tr><th className="number">Record</th><th>Status</th><th>What happened</th></tr></thead>
          <tbody>
            {items.map((r) => (
              <tr key={r.position}>
                <td className="number">
                  <Link to="/batches/$batchId/$position" params={{ batchId: batch.id, position: String(r.position) }}>{count(r.position)}</Link>
                </td>
                <td><Status status={r.status} /></td>
                <td className="one-line">{r.error ? r.error.provider_message ?? r.error.message : brief(r.output)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
    </>
  );
}

/** The beginning of an output, on one line. */
function brief(output: unknown): string {
  if (output === null || output === undefined) return '';
  const text = write(output);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}

function Origin({ batch }: { batch: Batch }) {
  const facts: Array<[string, React.ReactNode]> = [
    ['Started by', words(batch.trigger_type)], ['Created', <Time at={batch.created_at} />], ['Trigger', <Id id={batch.trigger_id} />],
  ];
  if (batch.trigger_source) facts.push(['Source', batch.trigger_source]);
  if (batch.retry_of) {
    facts.push(['Retry of', <Link to="/batches/$batchId" params={{ batchId: batch.retry_of }}>an earlier batch</Link>]);
  }
  if (batch.record_set_id) facts.push(['Record set', <Id id={batch.record_set_id} />]);
  if (batch.schedule_id) facts.push(['Schedule', <Id id={batch.schedule_id} />]);
  facts.push(['Flow', <Id id={batch.definition_id} />]);
  return (
    <>
      <Facts facts={facts} />
      <h2>Metadata</h2>
      <pre>{write(batch.metadata, 2)}</pre>
    </>
  );
}
