import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { flowlane, type Job } from '../api/client';
import { useLive } from '../api/live';
import { useFlows } from '../ui/flows';
import { Act } from '../ui/form';
import { Empty, Failure, Head, Loading, Status, Time } from '../ui/parts';
import { exactly, write } from '../lib/exact';
import { count } from '../lib/format';
import { Decide } from './decide';
import { Errors } from './errors';

/** The records of which nobody knows whether the provider has them, by batch and by what is known. */
export function Inbox() {
  const jobs = useLive(['jobs', 'unknown'], async (signal) => {
    const read = (status: 'unresolved' | 'needs_reconcile') => exactly(
      flowlane.jobs.list({ query: { status, limit: 100 }, signal, parseAs: 'text' }));
    const [open, looking] = await Promise.all([read('unresolved'), read('needs_reconcile')]);
    return { items: [...open.items, ...looking.items], total: open.total + looking.total };
  });
  const batches = new Map<string, Job[]>();
  for (const job of jobs.data?.items ?? []) batches.set(job.batch_id, [...(batches.get(job.batch_id) ?? []), job]);
  return (
    <>
      <Head title="Unknown outcomes">
        <span className="faint">{jobs.data && jobs.data.total > 0 ? `${count(jobs.data.total)} records` : ''}</span>
      </Head>
      {jobs.error && <Failure error={jobs.error} retry={() => void jobs.refetch()} />}
      {jobs.isPending && <Loading />}
      {jobs.data?.items.length === 0 && <Empty>Every outcome is known.</Empty>}
      {[...batches].map(([id, all]) => <OfBatch key={id} id={id} jobs={all} />)}
      {jobs.data && jobs.data.total > jobs.data.items.length && (
        <p className="faint">The first {count(jobs.data.items.length)} are shown; others follow when these are decided.</p>
      )}
    </>
  );
}

function OfBatch({ id, jobs }: { id: string; jobs: Job[] }) {
  const flows = useFlows();
  const batch = useQuery({ queryKey: ['batch', id], queryFn: ({ signal }) => flowlane.batches.get({ path: { batch_id: id }, signal }) });
  return (
    <section>
      <h2>
        <Link to="/batches/$batchId" params={{ batchId: id }}>{flows.get(jobs[0]!.definition_id) ?? 'A batch'}</Link>{' '}
        <span className="faint">started <Time at={batch.data?.created_at} /></span>
      </h2>
      {batch.data && <Errors batch={batch.data} only={['unresolved', 'needs_reconcile']} />}
      <details>
        <summary>{count(jobs.length)} {jobs.length === 1 ? 'record' : 'records'}, one by one</summary>
        {jobs.map((job) => <One key={job.id} job={job} />)}
      </details>
    </section>
  );
}

/** One record: what was sent for it, when and where. */
function One({ job }: { job: Job }) {
  const calls = useQuery({ queryKey: ['calls', job.id], queryFn: ({ signal }) => flowlane.calls.list({ query: { job_id: job.id, purpose: 'call', limit: 1 }, signal }) });
  const call = calls.data?.items[0];
  return (
    <div className="group line">
      <div>
        <p>
          <Status status={job.status} />{' '}
          <Link to="/batches/$batchId/$position" params={{ batchId: job.batch_id, position: String(job.position) }}>Record {count(job.position)}</Link>
          {job.key && <> · <code>{job.key}</code></>}
        </p>
        <p className="faint">
          {call ? <><code>{call.request ? `${call.request.method} ${call.request.url}` : call.action_id}</code> sent <Time at={call.sent_at} /></>
            : <>changed <Time at={job.updated_at} /></>}
        </p>
        {job.error && <p className="message">{job.error.provider_message ?? job.error.message}</p>}
        <details><summary>What was sent for it</summary><pre>{write(job.input_data, 2)}</pre></details>
      </div>
      <Act
        label="Decide…"
        ask={(close) => (
          <Decide
            records={1} status={job.status} close={close}
            send={(outcome, note) => flowlane.jobs.resolve({ path: { job_id: job.id }, body: { outcome, note } })}
          />
        )}
      />
    </div>
  );
}
