import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';

import { flowlane, type Definition, type DryRun, type DryRunTask } from '../api/client';
import { exactly, write } from '../lib/exact';
import { pretty } from '../lib/format';
import { Failure, Loading, Status } from '../ui/parts';
import type { Report } from '../upload/report';

/** A record and the metadata as the text of JSON, and of how many records the cost is asked. */
export interface Sample {
  sample: string | undefined;
  records: number;
  metadata: string;
}

/** Rehearses a flow with a record as it stands in the file, so that its numbers keep every digit. */
export function useRehearsal(flow: Definition, { sample, records, metadata }: Sample) {
  return useQuery({
    queryKey: ['rehearsal', flow.id, flow.version, sample, records, metadata],
    queryFn: ({ signal }) => {
      const body = `{"input_data":${sample ?? '{}'},"record_count":${records},"metadata":${metadata}}`;
      return exactly(flowlane.definitions.dryRun({
        path: { definition_id: flow.id }, body: body as never, bodySerializer: null, signal, parseAs: 'text',
      }));
    },
    staleTime: 60_000,
    refetchOnWindowFocus: false,
  });
}

/** What would be done with a record of the file. Nothing is sent. */
export function Rehearsal({ flow, report, metadata }: { flow: Definition; report: Report; metadata: string }) {
  const [longest, setLongest] = useState(false);
  const two = report.first?.line !== report.longest?.line;
  const sample = longest && two ? report.longest : report.first;
  const run = useRehearsal(flow, { sample: sample?.json, records: report.records, metadata });
  return (
    <>
      <h3>Rehearsal {!two && '(nothing is sent)'}</h3>
      {two && (
        <label className="inline">
          With
          <select value={longest ? 'longest' : 'first'} onChange={(e) => setLongest(e.target.value === 'longest')}>
            <option value="first">the first record, line {report.first?.line}</option>
            <option value="longest">the longest record, line {report.longest?.line}</option>
          </select>
          <span className="faint">Nothing is sent.</span>
        </label>
      )}
      {run.isPending && <Loading />}
      {run.error && <Failure error={run.error} retry={() => void run.refetch()} />}
      {run.data && <Outcome run={run.data} record={sample?.json ?? '{}'} />}
    </>
  );
}

/** What a rehearsal came to, task by task. */
export function Outcome({ run, record }: { run: DryRun; record: string }) {
  return (
    <>
      {run.input_error && <div className="note failure" role="alert">This record would fail before its first task: {run.input_error.message}</div>}
      <details>
        <summary>The record</summary>
        <pre tabIndex={0} aria-label="The record">{pretty(record)}</pre>
      </details>
      {run.steps.flatMap((step) => step.tasks.map((task) => <Task key={`${step.id} ${task.id}`} step={step.name || step.id} task={task} />))}
    </>
  );
}

function Task({ step, task }: { step: string; task: DryRunTask }) {
  const { call, error } = task;
  return (
    <details open={error !== null}>
      <summary>
        <Status status={task.status} /> {step} · {task.id} <span className="faint">{task.action_id}</span>
        {call && <> <code>{call.method} {call.url}</code></>}
        {task.elements !== null && <span className="faint"> for each of {task.elements}</span>}
      </summary>
      {error && <p className="bad">{error.message}</p>}
      {call?.body != null && <pre tabIndex={0} aria-label={`Body of ${task.id}`}>{typeof call.body === 'string' ? pretty(call.body) : write(call.body, 2)}</pre>}
      {!call && task.output != null && <pre tabIndex={0} aria-label={`Output of ${task.id}`}>{write(task.output, 2)}</pre>}
    </details>
  );
}
