import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';

import { flowlane, type Definition } from '../api/client';
import { all, useLive } from '../api/live';
import { useMe } from '../app/frame';
import { Empty, Failure, Head, Loading } from '../ui/parts';
import { take, useJob } from '../upload/job';
import { Columns } from './start-columns';
import { FileSource, SetSource } from './start-file';
import { Go } from './start-go';
import { blank, metadataOf, planOf, Settings, type Form } from './start-plan';
import { Rehearsal } from './start-rehearsal';
import './start.css';

/** Takes a file of records to a batch: what it holds, what would be sent, what it costs, go. */
export function Start() {
  const { flow, set } = useSearch({ from: '/frame/start' });
  const navigate = useNavigate();
  const me = useMe();
  const flows = useLive(['flows', 'active'], (signal) =>
    all((page) => flowlane.definitions.list({ query: { status: 'active', limit: 200, ...page }, signal })));
  const only = flows.data?.length === 1 ? flows.data[0]!.id : undefined;
  const chosen = flow ?? only;
  useEffect(() => {
    // A file that is dropped beside the field must not take the place of the page.
    const stay = (event: DragEvent) => event.preventDefault();
    addEventListener('dragover', stay);
    addEventListener('drop', stay);
    return () => {
      removeEventListener('dragover', stay);
      removeEventListener('drop', stay);
    };
  }, []);
  const choose = (id: string) => void navigate({ to: '/start', search: { flow: id || undefined, set }, replace: true });
  return (
    <div className="start">
      <Head title="Start a batch"><Link to="/sets">Record sets</Link></Head>
      {me?.role === 'member' && <div className="note">Only an admin may start a batch. You can look at what a file holds, what would be sent for it and what it costs.</div>}
      {flows.error && <Failure error={flows.error} retry={() => void flows.refetch()} />}
      {flows.isPending && <Loading />}
      {flows.data?.length === 0 && (
        <Empty>
          No flow is active yet, and a batch is a flow that runs for each record. The <a href="/docs/tutorial.html">tutorial</a> makes one
          in a few minutes; the <a href="/docs/cookbook.html">cookbook</a> has some to copy.
        </Empty>
      )}
      {flows.data && flows.data.length > 0 && (
        <>
          <section aria-labelledby="start-flow">
            <h2 id="start-flow">1. The flow</h2>
            <FlowChoice flows={flows.data} chosen={chosen} choose={choose} />
          </section>
          <Records flow={flows.data.find((f) => f.id === chosen)} set={set} may={me?.role === 'admin'} />
        </>
      )}
    </div>
  );
}

function FlowChoice({ flows, chosen, choose }: { flows: Definition[]; chosen: string | undefined; choose: (id: string) => void }) {
  const flow = flows.find((f) => f.id === chosen);
  const { job } = useJob() ?? {};
  const busy = job !== undefined && ['sending', 'paused', 'stopped', 'starting'].includes(job.state.phase);
  return (
    <>
      <label className="inline">
        Flow
        <select className="flow" value={flow?.id ?? ''} disabled={busy} onChange={(e) => choose(e.target.value)}>
          <option value="">choose one</option>
          {flows.map((f) => <option key={f.id} value={f.id}>{f.name}</option>)}
        </select>
        {flow && <span className="faint">version {flow.version}</span>}
      </label>
      {chosen && !flow && <p className="bad">The flow of this address is not active, or there is none: choose another.</p>}
      {flow?.description && <p className="faint">{flow.description}</p>}
    </>
  );
}

function Records({ flow, set: setId, may }: { flow: Definition | undefined; set: string | undefined; may: boolean }) {
  const current = useJob();
  const navigate = useNavigate();
  const [form, setForm] = useState<Form>(blank);
  const set = useQuery({
    queryKey: ['record-set', setId],
    queryFn: ({ signal }) => flowlane.records.get({ path: { record_set_id: setId! }, signal }),
    enabled: setId !== undefined,
  });
  const batchId = current?.state.batchId;
  useEffect(() => {
    if (!batchId) return;
    take(undefined);
    void navigate({ to: '/batches/$batchId', params: { batchId }, search: {} });
  }, [batchId, navigate]);
  const report = setId ? undefined : current?.state.report;
  const records = setId ? set.data?.received_count : report?.mistaken === 0 ? report.records : undefined;
  return (
    <>
      <section aria-labelledby="start-records">
        <h2 id="start-records">2. The records</h2>
        {setId ? <SetSource set={set.data} error={set.error} /> : <FileSource current={current} />}
      </section>
      {!flow && records !== undefined && <p className="note attention">Choose a flow, and see what it would do with these records.</p>}
      {flow && report && records !== undefined && (
        <section aria-labelledby="start-columns">
          <h2 id="start-columns">3. What the flow reads</h2>
          <Columns flow={flow} report={report} />
          <Rehearsal flow={flow} report={report} metadata={metadataOf(form)} />
        </section>
      )}
      {flow && records !== undefined && (
        <section aria-labelledby="start-cost">
          <h2 id="start-cost">{report ? 4 : 3}. What it costs, and how it goes out</h2>
          <Settings flow={flow} records={records} sample={report?.first?.json} form={form} change={setForm} fixed={current !== undefined && ['sending', 'paused', 'stopped', 'starting'].includes(current.state.phase)} />
          <Go key={setId ?? current?.job.file.name} flow={flow} records={records} plan={planOf(form)} set={setId ? set.data : undefined} current={setId ? undefined : current} may={may} />
        </section>
      )}
    </>
  );
}
