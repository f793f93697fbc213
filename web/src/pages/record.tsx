import { useQueryClient } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';

import { flowlane, type ExecutionList, type ExecutionTask } from '../api/client';
import { useLive } from '../api/live';
import { useExecutionStream } from '../api/stream';
import { exactly, write } from '../lib/exact';
import { count, took } from '../lib/format';
import { Facts, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';
import { Calls } from './calls';

const over = new Set(['completed', 'accepted', 'rejected', 'failed', 'cancelled', 'unprocessed']);

/** What exactly happened to one record: its steps, what was sent for it and what was answered. */
export function RecordPage() {
  const { batchId, position } = useParams({ from: '/frame/batches/$batchId/$position' });
  const jobId = `${batchId}.${position}`;
  const queries = useQueryClient();
  const known = queries.getQueryData<ExecutionList>(['executions', jobId])?.items.at(-1);
  const streamed = useExecutionStream(known, () => {
    for (const what of ['job', 'executions', 'execution', 'calls']) void queries.invalidateQueries({ queryKey: [what] });
  });
  const job = useLive(['job', jobId], (signal) => exactly(flowlane.jobs.get({ path: { job_id: jobId }, signal, parseAs: 'text' })),
    (j) => !streamed && !over.has(j.status));
  const executions = useLive(['executions', jobId], (signal) => flowlane.executions.list({ query: { job_id: jobId, limit: 50 }, signal }),
    (list) => !streamed && list.items.some((e) => e.status === 'running' || e.status === 'pending'));
  const last = executions.data?.items.at(-1);
  const execution = useLive(['execution', last?.id, last?.updated_at],
    async (signal) => (last ? exactly(flowlane.executions.get({ path: { execution_id: last.id }, signal, parseAs: 'text' })) : null));
  if (job.error && !job.data) return <Failure error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return <Loading />;
  const j = job.data;
  return (
    <>
      <Head title={`Record ${count(j.position)}`}>
        <Link className="button" to="/batches/$batchId" params={{ batchId }}>The batch</Link>
        {j.position > 0 && <Link className="button" to="/batches/$batchId/$position" params={{ batchId, position: String(j.position - 1) }}>Previous</Link>}
        <Link className="button" to="/batches/$batchId/$position" params={{ batchId, position: String(j.position + 1) }}>Next</Link>
      </Head>
      <p className="lead"><Status status={j.status} /> <Id id={j.id} /></p>
      {j.error && (
        <div className="note failure">
          <p>{j.error.provider_message ?? j.error.message}</p>
          <p className="faint">
            <code>{j.error.code}</code>{j.error.provider_status != null && ` · HTTP ${j.error.provider_status}`}
            {j.error.provider_code && ` · ${j.error.provider_code}`}{j.error.provider_message && ` · ${j.error.message}`}
          </p>
        </div>
      )}
      <Facts facts={[['Attempts', count(j.attempts)], ['Created', <Time at={j.created_at} />], ['Started', <Time at={j.started_at} />], ['Changed', <Time at={j.updated_at} />]]} />
      <section>
        <h2>Steps</h2>
        {execution.data?.steps.map((step) => (
          <div key={step.id} className="step">
            <h3>{step.name || step.id} <Status status={step.status} /></h3>
            {step.tasks.map((task) => <Task key={task.id} task={task} />)}
          </div>
        ))}
      </section>
      <section>
        <h2>Calls</h2>
        <Calls query={{ job_id: jobId }} live={!streamed && !over.has(j.status)} />
      </section>
      <section className="columns-two">
        <div><h2>Input</h2><pre>{write(j.input_data, 2)}</pre></div>
        <div><h2>Output</h2><pre>{j.output == null ? 'none' : write(j.output, 2)}</pre></div>
      </section>
    </>
  );
}

function Task({ task }: { task: ExecutionTask }) {
  return (
    <details className="task">
      <summary>
        <Status status={task.status} /> <strong>{task.id}</strong> <code>{task.action_id}</code>{' '}
        <span className="faint">
          {task.attempts > 1 && `${task.attempts} attempts · `}
          {task.started_at && task.completed_at ? took(task.started_at, task.completed_at) : <Time at={task.started_at} />}
        </span>
      </summary>
      {task.error && <p className="message">{task.error.provider_message ?? task.error.message}</p>}
      {task.elements && <p className="faint">{count(task.elements.length)} elements, {count(task.elements.filter((e) => e.status === 'completed').length)} done</p>}
      <pre>{task.output == null ? 'no output' : write(task.output, 2)}</pre>
    </details>
  );
}
