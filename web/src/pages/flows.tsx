import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';

import { flowlane, type Batch, type Definition, type DefinitionStatus, type Template } from '../api/client';
import { resting, upTo, useChange, useLive } from '../api/live';
import { useMe } from '../app/frame';
import { count } from '../lib/format';
import { Ask, Button, Empty, Failure, Head, Loading, Status, Time } from '../ui/parts';
import { Choice } from './batches';
import './flows.css';

const statuses: DefinitionStatus[] = ['active', 'draft', 'archived'];

/** Why somebody may not do something; undefined for an admin. */
export const onlyAdmins = (role: string | undefined): string | undefined => (role === 'admin' ? undefined : 'Only an admin may do this');

/** All flows: what they are, what came of them lately, and what starts them. */
export function Flows() {
  const { status, name } = useSearch({ from: '/frame/flows' });
  const navigate = useNavigate();
  const reason = onlyAdmins(useMe()?.role);
  const pages = useInfiniteQuery({
    queryKey: ['flows', status, name],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      flowlane.definitions.list({ query: { order: 'desc', limit: 50, status, name, cursor: pageParam }, signal }),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    refetchInterval: resting,
  });
  const items = pages.data?.pages.flatMap((p) => p.items) ?? [];
  const go = (change: { status?: DefinitionStatus; name?: string }) =>
    void navigate({ to: '/flows', search: { status, name, ...change }, replace: true });
  const filtered = status !== undefined || name !== undefined;
  return (
    <div className="flows">
      <Head title="Flows">
        {pages.data && <span className="faint">{count(pages.data.pages[0]!.total)} in all</span>}
        <Button strong disabled={reason !== undefined} title={reason} onClick={() => void navigate({ to: '/flows/$flowId', params: { flowId: 'new' } })}>
          New flow
        </Button>
      </Head>
      <div className="filters">
        <Search label="Name begins with" value={name} onChange={(v) => go({ name: v })} />
        <Choice label="Status" value={status} all={statuses} name={(s) => s} onChange={(v) => go({ status: v as DefinitionStatus | undefined })} />
        {filtered && <Button quiet onClick={() => go({ status: undefined, name: undefined })}>Clear</Button>}
      </div>
      {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && items.length === 0 && <Empty>{filtered ? 'No flow is like that.' : 'There are no flows yet. Begin with a template below, or with a new flow.'}</Empty>}
      {items.length > 0 && <Rows flows={items} />}
      {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
      <Templates reason={reason} />
    </div>
  );
}

/** A field whose text becomes a filter once nobody types any more. */
export function Search({ label, value, onChange }: { label: string; value: string | undefined; onChange: (value: string | undefined) => void }) {
  const [text, setText] = useState(value ?? '');
  useEffect(() => setText(value ?? ''), [value]);
  useEffect(() => {
    if (text === (value ?? '')) return;
    const timer = setTimeout(() => onChange(text || undefined), 300);
    return () => clearTimeout(timer);
  });
  return (
    <label className="inline">
      {label}
      <input type="search" value={text} onChange={(event) => setText(event.target.value)} />
    </label>
  );
}

/** How many of each kind that starts flows are read: there may be ten thousand. */
const most = 1000;

function Rows({ flows }: { flows: Definition[] }) {
  const batches = useLive(['flows', 'batches'], (signal) => flowlane.batches.list({ query: { order: 'desc', limit: 200 }, signal }));
  const starts = useLive(['flows', 'starts'], async (signal) => {
    const [schedule, webhook, event] = await Promise.all([
      upTo(most, (page) => flowlane.schedules.list({ query: { limit: 200, ...page }, signal })),
      upTo(most, (page) => flowlane.webhooks.list({ query: { limit: 200, ...page }, signal })),
      upTo(most, (page) => flowlane.events.listSubscriptions({ query: { limit: 200, ...page }, signal })),
    ]);
    return { whole: schedule.whole && webhook.whole && event.whole, found: { schedule: schedule.items, webhook: webhook.items, event: event.items } };
  });
  const lately = (id: string): Batch[] => (batches.data?.items ?? []).filter((b) => b.definition_id === id).slice(0, 3);
  const uses = (id: string): string =>
    Object.entries(starts.data?.found ?? {}).flatMap(([kind, items]) => {
      const n = items.filter((item) => item.definition_id === id).length;
      return n === 0 ? [] : [`${count(n)} ${kind}${n === 1 ? '' : 's'}`];
    }).join(', ');
  return (
    <div className="scroll">
      <table>
        <thead><tr><th>Name</th><th>Status</th><th>Version</th><th>Changed</th><th>Last batches</th><th>Started by</th></tr></thead>
        <tbody>
          {flows.map((f) => (
            <tr key={f.id}>
              <td className="break"><Link to="/flows/$flowId" params={{ flowId: f.id }}>{f.name}</Link></td>
              <td><FlowStatus status={f.status} /></td>
              <td>{f.version}</td>
              <td><Time at={f.updated_at} ago /></td>
              <td>
                <span className="lately">
                  {lately(f.id).map((b) => (
                    <Link key={b.id} to="/batches/$batchId" params={{ batchId: b.id }}><Status status={b.status} /></Link>
                  ))}
                  {lately(f.id).length === 0 && <span className="faint">none lately</span>}
                </span>
              </td>
              <td>{uses(f.id) || (starts.data?.whole && <span className="faint">requests only</span>)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The status of a flow, which is not that of work. */
export function FlowStatus({ status }: { status: DefinitionStatus }) {
  return (
    <span className={`status status-${status === 'active' ? 'ok' : 'waiting'}`}>
      <span className="shape" aria-hidden="true" />{status}
    </span>
  );
}

function Templates({ reason }: { reason: string | undefined }) {
  const [chosen, setChosen] = useState<Template>();
  const templates = useQuery({ queryKey: ['templates'], queryFn: ({ signal }) => flowlane.templates.list({ query: { limit: 200 }, signal }), staleTime: 600_000 });
  const items = templates.data?.items.filter((t) => t.status === 'active') ?? [];
  return (
    <>
      <h2>Templates</h2>
      {templates.error && <Failure error={templates.error} retry={() => void templates.refetch()} />}
      {templates.data && items.length === 0 && <Empty>This installation has no templates.</Empty>}
      <ul className="cards templates">
        {items.map((t) => (
          <li key={t.id} className="card">
            <strong>{t.name}</strong>
            <span className="faint">{t.description}</span>
            <div><Button disabled={reason !== undefined} title={reason} aria-label={`Use ${t.name}`} onClick={() => setChosen(t)}>Use</Button></div>
          </li>
        ))}
      </ul>
      {chosen && <FromTemplate template={chosen} onClose={() => setChosen(undefined)} />}
    </>
  );
}

/** Makes a flow of a template, with a credential for each of its slots. */
function FromTemplate({ template, onClose }: { template: Template; onClose: () => void }) {
  const navigate = useNavigate();
  const [name, setName] = useState(template.name);
  const [bindings, setBindings] = useState<Record<string, string>>({});
  const credentials = useQuery({ queryKey: ['credentials', 'all'], queryFn: ({ signal }) => flowlane.credentials.list({ query: { limit: 1000 }, signal }) });
  const create = useChange(async () => {
    const made = await flowlane.definitions.create({ body: { name, template_id: template.id, bindings, status: 'draft' } });
    await navigate({ to: '/flows/$flowId', params: { flowId: made.id } });
  }, onClose);
  return (
    <Ask title={`A flow from ${template.name}`} action="Make a draft" busy={create.isPending} error={create.error} onGo={() => create.mutate()} onClose={onClose}>
      <label>Name <input required maxLength={200} value={name} onChange={(event) => setName(event.target.value)} /></label>
      {template.slots.map((slot) => (
        <label key={slot.name}>
          Credential: {slot.name}{slot.platform_id && ` (${slot.platform_id})`}
          <select required value={bindings[slot.name] ?? ''} onChange={(event) => setBindings({ ...bindings, [slot.name]: event.target.value })}>
            <option value="">choose one</option>
            {credentials.data?.items.filter((c) => slot.platform_id === null || c.platform_id === slot.platform_id).map((c) => (
              <option key={c.id} value={c.id}>{c.name}</option>
            ))}
          </select>
          <span className="faint">{slot.description}</span>
        </label>
      ))}
    </Ask>
  );
}
