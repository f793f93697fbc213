import { useNavigate, useParams } from '@tanstack/react-router';

import { flowlane, type Store, type StoreField, type StoreLayer, type StoreRecordDetail } from '../api/client';
import { useLive } from '../api/live';
import { exactly } from '../lib/exact';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Facts, Failure, Head, Id, Loading, Time } from '../ui/parts';
import { shown } from './store';
import './store.css';

/** A record of a store: the value of each field, the layer that it comes from, and what every layer says. */
export function StoreRecordPage() {
  const { store, key } = useParams({ from: '/frame/stores/$store/$key' });
  const read = useLive(['store-record', store, key], async (signal) => {
    const [config, record] = await Promise.all([
      flowlane.stores.get({ path: { store }, signal }),
      exactly(flowlane.stores.getRecord({ path: { store, key }, query: { include: 'layers' }, signal, parseAs: 'text' })),
    ]);
    return { config, record };
  });
  if (!read.data) return read.error ? <Failure error={read.error} retry={() => void read.refetch()} /> : <Loading />;
  const { config, record } = read.data;
  return (
    <>
      <Head title={key} back={{ to: `/stores/${encodeURIComponent(store)}`, label: store }} />
      {read.error && <Failure error={read.error} retry={() => void read.refetch()} />}
      <Facts facts={[['Made', <Time at={record.created_at} />], ['Written', <Time at={record.updated_at} />], ['Layers, the first one wins', layersOf(config, record).join(' › ')]]} />
      <Layers store={config} record={record} />
    </>
  );
}

/** The layers of a store and of a record, from the highest precedence to the lowest, behind them those that no longer count. */
function layersOf(store: Store, record: StoreRecordDetail): string[] {
  const gone = (record.layers ?? []).map((l) => l.layer).filter((l) => !store.layers.includes(l));
  return [...store.layers.toReversed(), ...gone];
}

function Layers({ store, record }: { store: Store; record: StoreRecordDetail }) {
  const byName = new Map((record.layers ?? []).map((l) => [l.layer, l]));
  const layers = layersOf(store, record);
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Layers">
      <table className="layers">
        <thead>
          <tr>
            <th>Field</th><th>Shows</th>
            {layers.map((l) => <th key={l}><LayerHead store={store} record={record} name={l} layer={byName.get(l)} last={byName.size === 1} /></th>)}
          </tr>
        </thead>
        <tbody>
          {store.fields.map((f) => {
            const from = record.provenance?.[f.name];
            return (
              <tr key={f.name}>
                <th scope="row"><code>{f.name}</code> <span className="faint">{f.type}</span></th>
                <td><strong>{shown(record.resolved[f.name])}</strong>{from && <span className="faint"> from {from}</span>}</td>
                {layers.map((l) => (
                  <td key={l} className={from === l ? 'wins' : undefined}>
                    {shown(byName.get(l)?.values[f.name])}{' '}
                    {store.layers.includes(l) && <Act label={`Edit ${f.name} in ${l}`} short="Edit" ask={(close) => <EditValue store={store} record={record} field={f} layer={l} value={byName.get(l)?.values[f.name]} close={close} />} />}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

interface LayerProps {
  store: Store;
  record: StoreRecordDetail;
  name: string;
  layer: StoreLayer | undefined;
  last: boolean;
}

function LayerHead({ store, record, name, layer, last }: LayerProps) {
  const navigate = useNavigate();
  const remove = async () => {
    await flowlane.stores.deleteLayer({ path: { store: store.name, key: record.key, layer: name } });
    if (last) await navigate({ to: '/stores/$store', params: { store: store.name } });
  };
  return (
    <>
      {name}{!store.layers.includes(name) && <span className="tag">no longer counts</span>}
      {layer && (
        <>
          {' '}<Time at={layer.updated_at} ago /> by <Id id={layer.updated_by} />{' '}
          <Act
            label={`Delete layer ${name}`} short="Delete"
            ask={(close) => (
              <Confirm title={`Delete what ${name} says`} action="Delete it" onGo={remove} onClose={close}>
                <p>{last ? 'It is the last layer of this record, which goes with it.' : 'The other layers show through.'}</p>
              </Confirm>
            )}
          />
        </>
      )}
    </>
  );
}

interface EditProps {
  store: Store;
  record: StoreRecordDetail;
  field: StoreField;
  layer: string;
  value: unknown;
  close: () => void;
}

/** Changes what one layer says of one field. */
function EditValue({ store, record, field: f, layer, value, close }: EditProps) {
  const text = f.type === 'string' || f.type === 'datetime';
  const field: Field = { name: 'value', label: f.name, kind: text ? 'long' : 'json', value, hint: `${f.type}; empty takes it away` };
  return (
    <Form
      title={`What ${layer} says`} action="Save" fields={[field]} onClose={close}
      onSend={({ value: next }) => flowlane.stores.upsertRecords({ path: { store: store.name }, body: { records: [{ key: record.key, layer, values: { [f.name]: next ?? null } }] } })}
    />
  );
}
