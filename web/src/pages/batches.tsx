import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useState, type KeyboardEvent } from 'react';

import { flowlane, type Batch, type BatchBulk, type BatchFilter, type BatchStatus, type TriggerType } from '../api/client';
import { again } from '../api/live';
import { useMe } from '../app/frame';
import { count, span, words } from '../lib/format';
import { RecordBar } from '../ui/bar';
import { useFlows } from '../ui/flows';
import { Button, Empty, Failure, Head, Loading, Status, Time } from '../ui/parts';
import { actions, AskBulk } from './bulk';
import './batches.css';

const statuses: BatchStatus[] = ['queued', 'running', 'paused', 'completed', 'partially_failed', 'failed', 'cancelled'];
const ways: TriggerType[] = ['api_call', 'schedule', 'webhook', 'event', 'flow', 'retry'];

/** All batches, newest first. */
export function Batches() {
  const { status, flow, via } = useSearch({ from: '/frame/batches' });
  const navigate = useNavigate();
  const names = useFlows();
  const pages = useInfiniteQuery({
    queryKey: ['batches', status, flow, via],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      flowlane.batches.list({ query: { order: 'desc', limit: 50, status, definition_id: flow, trigger_type: via, cursor: pageParam }, signal }),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    refetchInterval: ({ state: { data } }) => again(data?.pages.length ?? 0, data?.pages.some((p) => p.items.some(moves)) ?? false),
  });
  const go = (change: { status?: BatchStatus; flow?: string; via?: TriggerType }) =>
    void navigate({ to: '/batches', search: { status, flow, via, ...change } });
  const items = pages.data?.pages.flatMap((p) => p.items) ?? [];
  const filtered = status !== undefined || flow !== undefined || via !== undefined;
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => setPicked(new Set()), [status, flow, via]); // what is chosen is seen
  const pick = (ids: string[], on: boolean) => setPicked((before) => {
    const after = new Set(before);
    for (const id of ids) if (on) after.add(id); else after.delete(id);
    return after;
  });
  const all = items.length > 0 && items.every((b) => picked.has(b.id));
  return (
    <>
      <Head title="Batches">
        <span className="faint">{pages.data ? `${count(pages.data.pages[0]!.total)} in all` : ''}</span>
      </Head>
      <div className="filters">
        <Choice label="Status" value={status} all={statuses} name={words} onChange={(v) => go({ status: v as BatchStatus | undefined })} />
        <Choice label="Flow" value={flow} all={[...names.keys()]} name={(id) => names.get(id) ?? id} onChange={(v) => go({ flow: v })} />
        <Choice label="Started by" value={via} all={ways} name={words} onChange={(v) => go({ via: v as TriggerType | undefined })} />
        {filtered && <Button quiet onClick={() => void navigate({ to: '/batches', search: {} })}>Clear</Button>}
      </div>
      {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && items.length === 0 && (filtered
        ? <Empty>No batch is like that. <Button quiet onClick={() => void navigate({ to: '/batches', search: {} })}>Show all</Button></Empty>
        : <Empty>There are no batches yet. Start one: <code>flowlane run FLOW FILE.csv --watch</code></Empty>)}
      {picked.size > 0 && (
        <Chosen
          picked={picked} total={pages.data?.pages[0]?.total ?? 0} filter={filtered ? { status, definition_id: flow, trigger_type: via } : undefined}
          clear={() => setPicked(new Set())}
        />
      )}
      {items.length > 0 && (
        <table onKeyDown={(event) => move(event, (id) => pick([id], !picked.has(id)))}>
          <thead>
            <tr>
              <th className="pick"><input type="checkbox" aria-label="Choose all shown" checked={all} onChange={(e) => pick(items.map((b) => b.id), e.target.checked)} /></th>
              <th>Started</th><th>Flow</th><th>Status</th><th className="wide">Records</th><th className="number">Count</th><th>By</th><th>Took</th>
            </tr>
          </thead>
          <tbody>
            {items.map((b) => (
              <tr key={b.id} data-id={b.id} className={picked.has(b.id) ? 'picked' : undefined}>
                <td className="pick">
                  <input
                    type="checkbox" aria-label={`Choose the batch of ${names.get(b.definition_id) ?? 'a deleted flow'}, ${b.created_at}`}
                    checked={picked.has(b.id)} onChange={(e) => pick([b.id], e.target.checked)}
                  />
                </td>
                <td><Link to="/batches/$batchId" params={{ batchId: b.id }}><Time at={b.created_at} /></Link></td>
                <td>{names.get(b.definition_id) ?? 'a deleted flow'} <span className="faint">v{b.definition_version}</span></td>
                <td title={b.status_reason ?? undefined}><Status status={b.status} /></td>
                <td className="wide"><RecordBar counts={b.job_counts} records={b.record_count} /></td>
                <td className="number">{count(b.record_count)}</td>
                <td>{words(b.trigger_type)}</td>
                <td>{took(b)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
    </>
  );
}

/** Goes from row to row by j and k, and chooses the one that has the focus by x. */
function move(event: KeyboardEvent<HTMLTableElement>, toggle: (id: string) => void): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const row = event.target instanceof HTMLElement ? event.target.closest<HTMLTableRowElement>('tr[data-id]') : null;
  const to = event.key === 'j' ? row?.nextElementSibling : event.key === 'k' ? row?.previousElementSibling : undefined;
  to?.querySelector('a')?.focus();
  if (event.key === 'x' && row?.dataset.id) toggle(row.dataset.id);
}

interface ChosenProps {
  picked: ReadonlySet<string>;
  /** How many there are in all, by the filter; none that is chosen by it where nothing is filtered. */
  total: number;
  filter: BatchFilter | undefined;
  clear: () => void;
}

/** What can be done with the batches that are chosen, or with all that the filter finds. */
function Chosen({ picked, total, filter, clear }: ChosenProps) {
  const me = useMe();
  const [whole, setWhole] = useState(false);
  const [action, setAction] = useState<BatchBulk['action']>();
  const chosen = whole ? total : picked.size;
  const may = me?.role === 'admin';
  return (
    <div className="chosen" role="group" aria-label="Chosen batches">
      <strong>{count(chosen)} chosen</strong>
      {!whole && total > picked.size && (
        <Button quiet disabled={!filter} title={filter ? undefined : 'Choose a status, a flow or a start first: without one, it would be every batch there is'} onClick={() => setWhole(true)}>
          All {count(total)} matching
        </Button>
      )}
      {whole && <Button quiet onClick={() => setWhole(false)}>Only the {count(picked.size)} picked</Button>}
      {(Object.keys(actions) as Array<BatchBulk['action']>).map((a) => (
        <Button key={a} disabled={!may} title={may ? undefined : 'Only an admin may do this'} onClick={() => setAction(a)}>{actions[a].label}</Button>
      ))}
      <Button quiet onClick={clear}>Clear the choice</Button>
      {action && (
        <AskBulk
          action={action} filter={whole && filter ? filter : { ids: [...picked] }} chosen={chosen}
          close={() => setAction(undefined)}
        />
      )}
    </div>
  );
}

/** Whether a batch may change by itself. */
export const moves = (b: Batch): boolean => b.status === 'running' || b.status === 'queued';

/** How long a batch took, or takes until now. */
function took(b: Batch): string {
  if (!b.started_at) return '–';
  const end = b.completed_at ? Date.parse(b.completed_at) : Date.now();
  return span((end - Date.parse(b.started_at)) / 1000);
}

interface ChoiceProps {
  label: string;
  value: string | undefined;
  all: string[];
  name: (value: string) => string;
  onChange: (value: string | undefined) => void;
}

/** One of several values, or any. */
export function Choice({ label, value, all, name, onChange }: ChoiceProps) {
  return (
    <label className="inline">
      {label}{' '}
      <select value={value ?? ''} onChange={(event) => onChange(event.target.value || undefined)}>
        <option value="">any</option>
        {all.map((v) => <option key={v} value={v}>{name(v)}</option>)}
      </select>
    </label>
  );
}
