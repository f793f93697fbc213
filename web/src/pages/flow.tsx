import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type Definition, type DefinitionStatus, type Task } from '../api/client';
import { all, useChange, useLive } from '../api/live';
import { useMe } from '../app/frame';
import { locate, pick, scan } from '../lib/json';
import { count, pretty } from '../lib/format';
import { Ask, Button, Empty, Facts, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';
import { Diff } from './flow-diff';
import { Editor } from './flow-editor';
import { FlowStatus, onlyAdmins } from './flows';
import './flows.css';

const tabs = ['steps', 'text', 'versions', 'used by'] as const;

/** What somebody writes of a flow; the rest of it is kept by the service. */
const written = ['name', 'description', 'key', 'lane', 'variable_set_id', 'variable_version', 'input_schema', 'failure_threshold', 'steps'];

/** What a flow begins with. */
const blank = pretty(JSON.stringify({
  name: 'A new flow', steps: [{ id: 'first', tasks: [{ id: 'say', action_id: 'core__flow__transform', params: { value: '{{ input }}' } }] }],
}));

/** The text of a flow or of a version as it can be written again, with each number as the service has it. */
const textOf = (answer: unknown): string => pretty(pick(String(answer), written));

/** A flow: its steps, its text, its versions and what starts it. */
export function FlowPage() {
  const { flowId } = useParams({ from: '/frame/flows/$flowId' });
  const reason = onlyAdmins(useMe()?.role);
  if (flowId !== 'new') return <Known id={flowId} reason={reason} />;
  return (
    <div className="flow">
      <Head title="New flow" back={{ to: '/flows', label: 'Flows' }} />
      <Editor before={blank} reason={reason} />
    </div>
  );
}

function Known({ id, reason }: { id: string; reason: string | undefined }) {
  const { tab = 'steps', v } = useSearch({ from: '/frame/flows/$flowId' });
  const navigate = useNavigate();
  const flow = useLive(['flow', id], (signal) => flowlane.definitions.get({ path: { definition_id: id }, signal }));
  const text = useQuery({
    queryKey: ['flow', id, 'text', flow.data?.version, flow.data?.updated_at],
    queryFn: async ({ signal }) => textOf(await flowlane.definitions.get({ path: { definition_id: id }, signal, parseAs: 'text' })),
    enabled: flow.data !== undefined,
    refetchOnWindowFocus: false,
  });
  if (flow.isPending) return <Loading />;
  if (!flow.data) return <Failure error={flow.error} retry={() => void flow.refetch()} />;
  const f = flow.data;
  return (
    <div className="flow">
      <Head title={f.name} back={{ to: '/flows', label: 'Flows' }}>
        <Activate flow={f} reason={reason} />
        <Link to="/start" search={{ flow: f.id }} className="button">Start</Link>
      </Head>
      {flow.error && <Failure error={flow.error} retry={() => void flow.refetch()} />}
      {f.description && <p className="break">{f.description}</p>}
      <Facts facts={[
        ['Status', <FlowStatus key="s" status={f.status} />], ['Version', f.version], ['Changed', <Time key="t" at={f.updated_at} ago />],
        ['Lane', f.lane ?? 'of each action'], ['Id', <Id key="i" id={f.id} />],
      ]} />
      <div className="tabs" role="tablist">
        {tabs.map((t) => (
          <button
            key={t} type="button" role="tab" aria-selected={t === tab}
            onClick={() => void navigate({ to: '/flows/$flowId', params: { flowId: id }, search: { tab: t === 'steps' ? undefined : t } })}
          >
            {t}
          </button>
        ))}
      </div>
      {tab === 'steps' && <Steps flow={f} text={text.data} />}
      {text.error && <Failure error={text.error} retry={() => void text.refetch()} />}
      {tab === 'text' && (text.data ? <Editor key={id} flow={f} before={text.data} reason={reason} /> : <Loading />)}
      {tab === 'versions' && (text.data ? <Versions flow={f} newest={text.data} chosen={v} reason={reason} /> : <Loading />)}
      {tab === 'used by' && <Uses flow={f} />}
    </div>
  );
}

/** Lets a flow be started, or not. */
function Activate({ flow, reason }: { flow: Definition; reason: string | undefined }) {
  const [asks, setAsks] = useState(false);
  const to: DefinitionStatus = flow.status === 'active' ? 'archived' : 'active';
  const change = useChange(() => flowlane.definitions.update({ path: { definition_id: flow.id }, body: { status: to } }), () => setAsks(false));
  const word = to === 'active' ? 'Activate' : 'Deactivate';
  return (
    <>
      <Button disabled={reason !== undefined} title={reason} onClick={() => setAsks(true)}>{word}</Button>
      {asks && (
        <Ask title={`${word} ${flow.name}`} action={word} busy={change.isPending} error={change.error} onGo={() => change.mutate(undefined)} onClose={() => setAsks(false)}>
          <p>{to === 'active' ? 'It can be started from now on.' : 'Nothing starts it any more, nor do its schedules, webhooks and events. What runs goes on.'}</p>
        </Ask>
      )}
    </>
  );
}

/** The steps one below the other, the tasks of each side by side, as they run. */
function Steps({ flow, text }: { flow: Definition; text: string | undefined }) {
  const root = text === undefined ? undefined : scan(text).root;
  return (
    <ol className="steps">
      {flow.steps.map((step, i) => (
        <li key={step.id}>
          <h3>{i + 1}. {step.name || step.id} <span className="faint">{step.id}</span></h3>
          {step.tasks.length > 1 && <p className="faint">{count(step.tasks.length)} tasks, side by side</p>}
          <ul className="tasks">
            {step.tasks.map((task, j) => {
              const at = root && locate(root, ['steps', String(i), 'tasks', String(j), 'params']).place;
              return <TaskCard key={task.id} task={task} params={at && pretty(text!.slice(at.from, at.to))} />;
            })}
          </ul>
        </li>
      ))}
    </ol>
  );
}

/** A task, with its parameters in the text of the flow. */
function TaskCard({ task, params }: { task: Task; params: string | undefined }) {
  const { retry } = task;
  const rules: Array<[string, string | null]> = [
    ['when', task.when], ['for each', task.for_each], ['credential', task.credential_id],
    ['timeout', task.timeout_seconds === null ? null : `${task.timeout_seconds} s`],
    ['retry', retry && `${retry.max_attempts} attempts, first pause ${retry.initial_seconds} s, × ${retry.factor}, at most ${retry.max_seconds} s`],
    ['on error', task.on_error === 'continue' ? 'the record goes on' : null],
    ['delivery', task.delivery === 'at_least_once' ? 'sent again when nobody knows whether it arrived' : null],
  ];
  return (
    <li className="task">
      <strong>{task.id}</strong>{' '}
      <Link to="/catalog" search={{ q: task.action_id, action: task.action_id }}><code>{task.action_id}</code></Link>
      <dl>
        {rules.map(([name, value]) => value !== null && [<dt key={name}>{name}</dt>, <dd key={`${name} value`}><code>{value}</code></dd>])}
      </dl>
      {Object.keys(task.params).length > 0 && (
        <pre tabIndex={0} role="region" aria-label={`Parameters of ${task.id}`}>{params}</pre>
      )}
    </li>
  );
}

/** The versions, and one of them beside the newest. */
function Versions({ flow, newest, chosen, reason }: { flow: Definition; newest: string; chosen: number | undefined; reason: string | undefined }) {
  const navigate = useNavigate();
  const [asks, setAsks] = useState(false);
  const versions = useQuery({
    queryKey: ['flow', flow.id, 'versions', flow.version],
    queryFn: ({ signal }) => flowlane.definitions.listVersions({ path: { definition_id: flow.id }, query: { limit: 200, skip: Math.max(0, flow.version - 200) }, signal }),
  });
  const old = useQuery({
    queryKey: ['flow', flow.id, 'version', chosen],
    queryFn: async ({ signal }) => String(await flowlane.definitions.getVersion({ path: { definition_id: flow.id, version: String(chosen) }, signal, parseAs: 'text' })),
    enabled: chosen !== undefined,
  });
  const kept = written.filter((name) => name !== 'name' && name !== 'description');
  const before = old.data && pretty(pick(old.data, kept));
  const restore = useChange(
    () => flowlane.definitions.replace({
      path: { definition_id: flow.id }, bodySerializer: null,
      body: `{${[pick(newest, ['name', 'description']), pick(old.data!, kept)].map((t) => t.slice(1, -1)).join(',')}}` as never,
    }),
    () => setAsks(false),
  );
  if (!versions.data) return versions.error ? <Failure error={versions.error} retry={() => void versions.refetch()} /> : <Loading />;
  return (
    <>
      <table>
        <thead><tr><th>Version</th><th>Made</th><th className="number">Steps</th><th /></tr></thead>
        <tbody>
          {versions.data.items.toSorted((a, b) => b.version - a.version).map((item) => (
            <tr key={item.version}>
              <td>{item.version}{item.version === flow.version && <span className="faint"> the newest</span>}</td>
              <td><Time at={item.created_at} /></td>
              <td className="number">{item.steps.length}</td>
              <td>
                {item.version !== flow.version && (
                  <Link to="/flows/$flowId" params={{ flowId: flow.id }} search={{ tab: 'versions', v: item.version }}>Compare version {item.version}</Link>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {versions.data.items.length === 1 && <Empty>There is one version. Each change of what the flow does makes another one.</Empty>}
      {old.error && <Failure error={old.error} />}
      {before && (
        <>
          <Diff before={before} after={pretty(pick(newest, kept))} names={[`Version ${chosen}`, `Version ${flow.version}`]} />
          <div className="state">
            <Button disabled={reason !== undefined} title={reason} onClick={() => setAsks(true)}>Restore version {chosen}</Button>
            <Button quiet onClick={() => void navigate({ to: '/flows/$flowId', params: { flowId: flow.id }, search: { tab: 'versions' } })}>Close</Button>
          </div>
        </>
      )}
      {asks && (
        <Ask title={`Restore version ${chosen}`} action="Restore" busy={restore.isPending} error={restore.error} onGo={() => restore.mutate(undefined)} onClose={() => setAsks(false)}>
          <p>The flow does again what version {chosen} did, as a new version. What runs goes on with its own.</p>
        </Ask>
      )}
    </>
  );
}

/** What starts a flow, and its last batches. */
function Uses({ flow }: { flow: Definition }) {
  const uses = useLive(['flow', flow.id, 'uses'], async (signal) => {
    const of = { limit: 200, definition_id: flow.id };
    const [schedules, webhooks, events, batches] = await Promise.all([
      all((page) => flowlane.schedules.list({ query: { ...of, ...page }, signal })), all((page) => flowlane.webhooks.list({ query: { ...of, ...page }, signal })),
      all((page) => flowlane.events.listSubscriptions({ query: { ...of, ...page }, signal })),
      flowlane.batches.list({ query: { limit: 10, definition_id: flow.id, order: 'desc' }, signal }),
    ]);
    return { schedules, webhooks, events, batches: batches.items };
  });
  if (!uses.data) return uses.error ? <Failure error={uses.error} retry={() => void uses.refetch()} /> : <Loading />;
  const { schedules, webhooks, events, batches } = uses.data;
  const rows = [
    ...schedules.map((s) => ({ id: s.id, kind: 'schedule', what: `${s.cron_expression} ${s.timezone}`, note: s.description, enabled: s.enabled })),
    ...webhooks.map((w) => ({ id: w.id, kind: 'webhook', what: w.provider, note: w.description, enabled: w.enabled })),
    ...events.map((e) => ({ id: e.id, kind: 'event', what: e.event_kind, note: e.description, enabled: e.enabled })),
  ];
  return (
    <>
      {rows.length === 0 ? <Empty>No schedule, webhook or event starts this flow: only requests do.</Empty> : (
        <table>
          <thead><tr><th>Started by</th><th>What</th><th>Description</th><th>State</th></tr></thead>
          <tbody>
            {rows.map((r) => (
              <tr key={r.id}><td>{r.kind}</td><td className="break"><code>{r.what}</code></td><td className="break">{r.note}</td><td>{r.enabled ? 'on' : 'off'}</td></tr>
            ))}
          </tbody>
        </table>
      )}
      <h2>Last batches</h2>
      {batches.length === 0 ? <Empty>It was not started yet.</Empty> : (
        <table>
          <thead><tr><th>Started</th><th>Status</th><th className="number">Records</th><th className="number">Version</th></tr></thead>
          <tbody>
            {batches.map((b) => (
              <tr key={b.id}>
                <td><Link to="/batches/$batchId" params={{ batchId: b.id }}><Time at={b.created_at} /></Link></td>
                <td><Status status={b.status} /></td><td className="number">{count(b.record_count)}</td><td className="number">{b.definition_version}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
