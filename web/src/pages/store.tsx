import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';

import { flowlane, type Store, type StoreRecord, type StoreReplace } from '../api/client';
import { useLive } from '../api/live';
import { exactly, write } from '../lib/exact';
import { count } from '../lib/format';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Listing, type Column } from '../ui/listing';
import { Button, Facts, Failure, Head, Loading, Status, Time } from '../ui/parts';
import { WriteSheet } from './store-sheet';

/** A value of a record as it stands in a cell. */
export const shown = (value: unknown): string => (value === null || value === undefined ? '–' : typeof value === 'string' ? value : write(value));

/** A store: its fields and layers, and its records as they show. */
export function StorePage() {
  const { store } = useParams({ from: '/frame/stores/$store' });
  const search = useSearch({ from: '/frame/stores/$store' });
  const navigate = useNavigate();
  const read = useLive(['store', store], (signal) => flowlane.stores.get({ path: { store }, signal }), (s) => s.resolving);
  const s = read.data;
  if (!s) return read.error ? <Failure error={read.error} retry={() => void read.refetch()} /> : <Loading />;
  const remove = async () => {
    await flowlane.stores.delete({ path: { store } });
    await navigate({ to: '/stores' });
  };
  const { filter, sort } = search;
  const go = (change: typeof search) => void navigate({ to: '/stores/$store', params: { store }, search: { ...search, ...change } });
  return (
    <>
      <Head title={s.name} back={{ to: '/stores', label: 'Stores' }}>
        <Act label="New record" strong ask={(close) => <MakeRecord store={s} close={close} />} />
        <Act label="Write CSV" ask={(close) => <WriteSheet store={s} close={close} />} />
        <Act label="Edit" ask={(close) => <EditStore store={s} close={close} />} />
        <Act
          label="Delete"
          ask={(close) => (
            <Confirm title="Delete this store" action="Delete it" onGo={remove} onClose={close}>
              <p>Its {count(s.record_count)} records go with it, and do not come back.</p>
            </Confirm>
          )}
        />
      </Head>
      {read.error && <Failure error={read.error} retry={() => void read.refetch()} />}
      {s.resolving && <p className="note" role="status"><Status status="running" /> Records are put together by the newest fields and layers; some show as they were before.</p>}
      <Facts facts={[
        ['Records', count(s.record_count)], ['Layers, the last one wins', s.layers.join(' › ')], ['Configuration', s.config_version], ['Changed', <Time at={s.updated_at} />],
      ]} />
      <Filters key={filter} store={s} filter={filter} sort={sort} go={go} />
      <Listing<StoreRecord>
        of={['store-records', store, filter, sort]} row={(r) => r.key} moves={s.resolving}
        empty={filter ? <>No record shows {filter}. <Button quiet onClick={() => go({ filter: undefined })}>Show all</Button></> : 'There are no records yet. Make one, write a file of CSV, or have a flow write them.'}
        read={(cursor, signal) => exactly(flowlane.stores.listRecords({
          path: { store }, query: { limit: 50, cursor, filter: filter ? [filter] : undefined, ...(sort ? { sort_by: 'updated_at', order: 'desc' } : {}) }, signal, parseAs: 'text',
        }))}
        columns={columnsOf(s)}
      />
    </>
  );
}

const columnsOf = (s: Store): Array<Column<StoreRecord>> => [
  { head: 'Key', cell: (r) => <Link to="/stores/$store/$key" params={{ store: s.name, key: r.key }}>{r.key}</Link> },
  ...s.fields.map((f) => ({ head: f.name, number: f.type === 'number' || f.type === 'integer', cell: (r: StoreRecord) => <span className="one-line">{shown(r.resolved[f.name])}</span> })),
  { head: 'Written', cell: (r) => <Time at={r.updated_at} ago /> },
];

interface FiltersProps {
  store: Store;
  filter: string | undefined;
  sort: 'written' | undefined;
  go: (change: { filter?: string; sort?: 'written' }) => void;
}

/** Which records are listed, and in which order. */
function Filters({ store, filter, sort, go }: FiltersProps) {
  const [field = '', ...rest] = (filter ?? '').split('=');
  return (
    <form
      className="filters"
      onSubmit={(event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget);
        const [name, value] = [String(form.get('field')), String(form.get('value'))];
        go({ filter: value === '' ? undefined : `${name}=${value}` });
      }}
    >
      <label className="inline">Where <select name="field" defaultValue={field || undefined}>{store.fields.map((f) => <option key={f.name} value={f.name}>{f.name}</option>)}</select></label>
      <label className="inline">is <input name="value" defaultValue={rest.join('=')} autoComplete="off" /></label>
      <button className="button" type="submit">Search</button>
      {filter && <Button quiet onClick={() => go({ filter: undefined })}>Clear</Button>}
      <label className="inline">
        Order <select value={sort ?? ''} onChange={(e) => go({ sort: e.target.value === 'written' ? 'written' : undefined })}>
          <option value="">by key</option><option value="written">written last</option>
        </select>
      </label>
    </form>
  );
}

function MakeRecord({ store: s, close }: { store: Store; close: () => void }) {
  const navigate = useNavigate();
  const fields: Field[] = [
    { name: 'key', label: 'Key', required: true },
    { name: 'layer', label: 'Layer', options: s.layers.map((l) => [l, l]), value: s.layers.at(-1), required: true },
    { name: 'values', label: 'Values', kind: 'json', value: Object.fromEntries(s.fields.map((f) => [f.name, null])), required: true, hint: 'JSON; null for none' },
  ];
  return (
    <Form
      title="New record" action="Write it" fields={fields} onClose={close}
      onSend={async ({ key, layer, values }) => {
        await flowlane.stores.upsertRecords({ path: { store: s.name }, body: { records: [{ key: String(key), layer: String(layer), values: values as Record<string, unknown> }] } });
        await navigate({ to: '/stores/$store/$key', params: { store: s.name, key: String(key) } });
      }}
    />
  );
}

function EditStore({ store: s, close }: { store: Store; close: () => void }) {
  const fields: Field[] = [
    { name: 'fields', label: 'Fields', kind: 'json', value: s.fields, required: true, hint: 'JSON' },
    { name: 'layers', label: 'Layers', kind: 'lines', value: s.layers, required: true, hint: 'one a line; the last one wins' },
  ];
  return (
    <Form title="Edit the store" action="Save" fields={fields} onClose={close} onSend={(body) => flowlane.stores.replace({ path: { store: s.name }, body: body as unknown as StoreReplace })}>
      <p>All {count(s.record_count)} records are put together anew. Layers keep what was written to them, also for fields that go.</p>
    </Form>
  );
}
