import { Link, useNavigate } from '@tanstack/react-router';
import { useRef, useState } from 'react';

import type { Definition, RecordSet, TriggerRequest } from '../api/client';
import { useChange } from '../api/live';
import { count, span } from '../lib/format';
import { RequestKey } from '../lib/key';
import { Button, Failure } from '../ui/parts';
import { startBatch, type Job, type State } from '../upload/job';
import { Progress, useFocus } from './start-progress';

/** More records than this are started only when somebody types their number in. */
const typedAbove = 100_000;

interface Props {
  flow: Definition;
  records: number;
  plan: TriggerRequest | string;
  set: RecordSet | undefined;
  current: { job: Job; state: State } | undefined;
  may: boolean;
}

/** The button that starts, and how far the upload is. */
export function Go({ flow, records, plan, set, current, may }: Props) {
  const [typed, setTyped] = useState('');
  const navigate = useNavigate();
  const [key] = useState(() => new RequestKey());
  const start = useChange(async (request: TriggerRequest) => {
    const batchId = await startBatch({ flow: flow.id, request }, set!.id, key.for([flow.id, request]));
    await navigate({ to: '/batches/$batchId', params: { batchId }, search: {} });
  });
  const phase = current?.state.phase;
  if (current && phase !== 'read' && phase !== 'sealed') return <Upload {...current} records={records} />;

  const sure = records <= typedAbove || typed.replace(/\D/g, '') === String(records);
  const usable = !set || set.status === 'sealed';
  const why = !may ? 'Only an admin may start a batch' : typeof plan === 'string' ? plan : !usable ? 'This set cannot be started' : sure ? undefined : 'Type in the number of records first';
  const go = () => {
    if (why !== undefined || typeof plan === 'string') return;
    if (current) void current.job.go({ flow: flow.id, request: plan });
    else start.mutate(plan);
  };
  const error = current?.state.error ?? start.error;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
    >
      {typeof plan === 'string' && <div className="note failure" role="alert">{plan}</div>}
      {error != null && <Failure error={error} />}
      {phase === 'sealed' && error == null && <p>All is uploaded. It waits among the <Link to="/sets">record sets</Link>, or starts now.</p>}
      <div className="go">
        {records > typedAbove && may && usable && (
          <label>
            To start {count(records)} records, type their number
            <input inputMode="numeric" autoComplete="off" value={typed} onChange={(e) => setTyped(e.target.value)} />
          </label>
        )}
        <Button strong type="submit" disabled={why !== undefined || start.isPending} title={why}>
          {start.isPending ? 'One moment…' : `Start ${count(records)} ${records === 1 ? 'record' : 'records'}`}
        </Button>
        {current && phase === 'read' && (
          <Button disabled={!may} title={may ? 'The records wait among the record sets' : 'Only an admin may upload'} onClick={() => void current.job.go(undefined)}>Upload only</Button>
        )}
        {why !== undefined && <span className="faint">{why}.</span>}
      </div>
    </form>
  );
}

function Upload({ job, state, records }: { job: Job; state: State; records: number }) {
  const { phase, stored, rate, error } = state;
  const place = useRef<HTMLDivElement>(null);
  useFocus(place);
  if (phase === 'starting' || phase === 'started') return <p role="status">All is uploaded. The batch starts…</p>;
  const left = rate > 0 ? (records - stored) / rate : undefined;
  const speed = rate > 0 ? ` · ${count(rate)} a second${left !== undefined && left > 1 ? ` · ${span(left)} left` : ''}` : '';
  const text = `${count(stored)} of ${count(records)} records${phase === 'sending' ? speed : ''}`;
  return (
    <div ref={place} tabIndex={-1} className="upload">
      <Progress label={phase === 'paused' ? 'Paused' : phase === 'stopped' ? 'Stopped' : 'Uploading'} part={stored} whole={records} text={text} />
      {phase === 'stopped' && <Failure error={error} />}
      <div className="go">
        {phase === 'sending'
          ? <Button onClick={() => job.pause()}>Pause the upload</Button>
          : <Button strong onClick={() => job.resume()}>Resume the upload</Button>}
        <span className="faint">You may look at other screens meanwhile. Should this one be closed, the same file goes on where it was.</span>
      </div>
    </div>
  );
}
