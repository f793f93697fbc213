import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';

import { flowlane, type Action, type RateBucket } from '../api/client';
import { count, span, words } from '../lib/format';
import { Button, Copy, Empty, Facts, Failure, Head, Loading } from '../ui/parts';
import { Search } from './flows';
import './flows.css';

/** Everything that a task can do, found by words of its id, name, description, service or platform. */
export function Catalog() {
  const { q, action } = useSearch({ from: '/frame/catalog' });
  const navigate = useNavigate();
  const pages = useInfiniteQuery({
    queryKey: ['catalog', q],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => flowlane.catalog.listActions({ query: { q, limit: 50, cursor: pageParam }, signal }),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    staleTime: 600_000,
  });
  const items = pages.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <div className="catalog">
      <Head title="Catalog"><Link className="button" to="/catalog/imports">Imported platforms</Link>{pages.data && <span className="faint">{count(pages.data.pages[0]!.total)} actions</span>}</Head>
      <div className="filters">
        <Search label="Search" value={q} onChange={(next) => void navigate({ to: '/catalog', search: { q: next }, replace: true })} />
      </div>
      {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && items.length === 0 && <Empty>No action has all of these words. Platforms that are missing come by the import of an OpenAPI document.</Empty>}
      <div className="found">
        <section aria-label="Actions">
          <ul className="actions-found">
            {items.map((a) => (
              <li key={a.id}>
                <Link to="/catalog" search={{ q, action: a.id }} aria-current={a.id === action ? 'true' : undefined}>
                  {a.name}{a.deprecated && <span className="tag">deprecated</span>}<code>{a.id}</code>
                </Link>
              </li>
            ))}
          </ul>
          {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
        </section>
        <section aria-label="The action">{action ? <Detail id={action} /> : items.length > 0 && <Empty>Choose an action to see what it takes, gives and costs.</Empty>}</section>
      </div>
    </div>
  );
}

const checks: Record<Action['outcome_check'], string> = {
  safe: 'Sending it again changes nothing, so a call of which nobody knows whether it arrived is sent again.',
  keyed: 'Each call carries a key by which the provider knows it again, so it is sent again without harm.',
  lookup: 'Where nobody knows whether a call arrived, the provider is asked before it is sent again.',
  none: 'Where nobody knows whether a call arrived, only a person can tell: the record waits in the inbox, unless the task is delivered at least once.',
};

function Detail({ id }: { id: string }) {
  const action = useQuery({ queryKey: ['action', id], queryFn: ({ signal }) => flowlane.catalog.getAction({ path: { action_id: id }, signal }), staleTime: 600_000 });
  const service = useQuery({
    queryKey: ['service', action.data?.service_id],
    queryFn: ({ signal }) => flowlane.catalog.getService({ path: { service_id: action.data!.service_id }, signal }),
    enabled: action.data !== undefined,
    staleTime: 600_000,
  });
  if (!action.data) return action.error ? <Failure error={action.error} retry={() => void action.refetch()} /> : <Loading />;
  const a = action.data;
  return (
    <>
      <div className="action-head"><h2>{a.name}</h2><Copy text={taskOf(a)}>Use in flow: copy a task</Copy></div>
      <p><code>{a.id}</code></p>
      <p className="break">{a.description}</p>
      <Facts facts={[
        ['Records in a call', a.bulk ? `up to ${count(a.max_records_per_request)}` : 'one'],
        ['Bytes in a call', a.max_bytes_per_request === null ? 'no limit known' : `up to ${count(a.max_bytes_per_request)}`],
        ['Lane', a.default_lane], ['Credential', service.data ? (service.data.requires_connection ? words(service.data.auth_method) : 'none needed') : '…'],
      ]} />
      <h3>When an outcome is unknown</h3>
      <p>{checks[a.outcome_check]}</p>
      <h3>What a call spends</h3>
      {a.buckets.length === 0 ? <p>Nothing: it is not metered.</p> : (
        <ul>{a.buckets.map((name) => <li key={name}>{budget(name, service.data?.rate_buckets[name])}</li>)}</ul>
      )}
      <Parameters schema={a.params_schema} />
      <details><summary>Schema of the parameters</summary><pre tabIndex={0} role="region" aria-label="Schema of the parameters">{JSON.stringify(a.params_schema, null, 2)}</pre></details>
      <details><summary>Schema of the output</summary><pre tabIndex={0} role="region" aria-label="Schema of the output">{JSON.stringify(a.output_schema, null, 2)}</pre></details>
    </>
  );
}

/** A budget in words: how many calls in which windows. */
function budget(name: string, bucket: RateBucket | undefined): string {
  if (!bucket) return name;
  const windows = [
    ...Object.entries(bucket.windows).map(([seconds, calls]) => `${count(calls)} calls in ${span(Number(seconds))}`),
    ...bucket.further_windows.map((w) => `${count(w.calls)} calls in any ${span(w.seconds)}`),
    ...(bucket.max_in_flight === null ? [] : [`${count(bucket.max_in_flight)} at once`]),
  ];
  return `${bucket.label || name}: ${windows.join(', ') || 'no limit known'}`;
}

interface Shape {
  type?: string | string[];
  description?: string;
  properties?: Record<string, Shape>;
  required?: string[];
}

function Parameters({ schema }: { schema: Shape }) {
  const names = Object.entries(schema.properties ?? {});
  return (
    <>
      <h3>Parameters</h3>
      {names.length === 0 ? <p className="faint">It names none.</p> : (
        <table>
          <thead><tr><th>Name</th><th>Type</th><th>What it is</th></tr></thead>
          <tbody>
            {names.map(([name, { type, description }]) => (
              <tr key={name}>
                <td><code>{name}</code>{schema.required?.includes(name) && <span className="faint"> required</span>}</td>
                <td>{[type ?? 'any'].flat().join(' or ')}</td><td className="break">{description}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

/** A task with the action, to be pasted into the text of a flow: what it must name reads a field of the record of that name. */
function taskOf(action: Action): string {
  const schema: Shape = action.params_schema;
  const params = Object.fromEntries((schema.required ?? []).map((name) => [name, `{{ input.${name} }}`]));
  return JSON.stringify({ id: action.id.split('__').at(-1), action_id: action.id, params }, null, 2);
}
