import { Link } from '@tanstack/react-router';

import { flowlane, type Store, type StoreInput, type Tenant, type VariableSet, type VariableSetInput } from '../api/client';
import { exactly, write } from '../lib/exact';
import { count } from '../lib/format';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Listing } from '../ui/listing';
import { Head, Id, Status, Time } from '../ui/parts';

/** Sets of variables that flows read, and their versions. */
export function Variables() {
  return (
    <>
      <Head title="Variables"><Act label="New set" strong ask={(close) => <EditVariables close={close} />} /></Head>
      <Listing<VariableSet>
        of={['variables']} row={(v) => v.id} empty="There are no variables yet. Flows read them instead of values written in their tasks."
        read={(cursor, signal) => exactly(flowlane.variables.list({ query: { limit: 50, cursor }, signal, parseAs: 'text' }))}
        columns={[
          { head: 'Set', cell: (v) => <>{v.name} <Id id={v.id} /></> },
          { head: 'Keys', cell: (v) => <details><summary>{count(v.keys.length)}</summary><pre>{write(v.keys, 2)}</pre></details> },
          { head: 'Versions', cell: (v) => <details><summary>{v.versions.map((n) => n.name).join(', ') || 'none'}</summary><pre>{write(v.versions, 2)}</pre></details> },
          { head: 'Changed', cell: (v) => <Time at={v.updated_at} /> },
          {
            head: 'Change',
            cell: (v) => (
              <span className="actions">
                <Act label="Edit" ask={(close) => <EditVariables set={v} close={close} />} />
                <Act
                  label="Delete"
                  ask={(close) => (
                    <Confirm title="Delete this set" action="Delete it" onGo={() => flowlane.variables.delete({ path: { variable_set_id: v.id } })} onClose={close}>
                      <p>Flows that read {v.name} fail from then on.</p>
                    </Confirm>
                  )}
                />
              </span>
            ),
          },
        ]}
      />
    </>
  );
}

function EditVariables({ set, close }: { set?: VariableSet; close: () => void }) {
  const fields: Field[] = [
    { name: 'name', label: 'Name', value: set?.name, required: true },
    { name: 'keys', label: 'Keys', kind: 'json', value: set?.keys ?? [{ name: 'region', type: 'string', default: 'eu' }], required: true, hint: 'JSON' },
    { name: 'versions', label: 'Versions', kind: 'json', value: set?.versions ?? [], required: true, hint: 'JSON: name and values of each' },
  ];
  return (
    <Form
      title={set ? 'Edit the variables' : 'New set of variables'} action={set ? 'Save' : 'Make it'} fields={fields} onClose={close}
      onSend={(values) => {
        const body = values as unknown as VariableSetInput;
        return set ? flowlane.variables.replace({ path: { variable_set_id: set.id }, body }) : flowlane.variables.create({ body });
      }}
    />
  );
}

/** Stores of records that are put together of layers. */
export function Stores() {
  return (
    <>
      <Head title="Stores"><Act label="New store" strong ask={(close) => <MakeStore close={close} />} /></Head>
      <Listing<Store>
        of={['stores']} row={(s) => s.name} empty="There are no stores yet. A store keeps one record for each key, put together of layers."
        read={(cursor, signal) => flowlane.stores.list({ query: { limit: 50, cursor }, signal })}
        columns={[
          { head: 'Store', cell: (s) => <Link to="/stores/$store" params={{ store: s.name }}>{s.name}</Link> },
          { head: 'Fields', cell: (s) => s.fields.map((f) => `${f.name}: ${f.type}`).join(', ') },
          { head: 'Layers', cell: (s) => s.layers.join(' › ') },
          { head: 'Records', cell: (s) => count(s.record_count), number: true },
          { head: 'State', cell: (s) => s.resolving && <Status status="running" /> },
          { head: 'Changed', cell: (s) => <Time at={s.updated_at} /> },
        ]}
      />
    </>
  );
}

function MakeStore({ close }: { close: () => void }) {
  const fields: Field[] = [
    { name: 'name', label: 'Name', required: true },
    { name: 'fields', label: 'Fields', kind: 'json', value: [{ name: 'price', type: 'number' }], required: true, hint: 'JSON' },
    { name: 'layers', label: 'Layers', kind: 'lines', required: true, hint: 'one a line' },
  ];
  return <Form title="New store" action="Make it" fields={fields} onSend={(body) => flowlane.stores.create({ body: body as unknown as StoreInput })} onClose={close} />;
}

/** The provider accounts that credentials belong to. */
export function Tenants() {
  return (
    <>
      <Head title="Tenants"><Act label="New tenant" strong ask={(close) => <MakeTenant close={close} />} /></Head>
      <Listing<Tenant>
        of={['tenants']} row={(t) => t.id} empty="No account is known yet. One shows up when a credential is tested."
        read={(cursor, signal) => flowlane.tenants.list({ query: { limit: 50, cursor }, signal })}
        columns={[
          { head: 'Name', cell: (t) => <>{t.label} <Id id={t.id} /></> },
          { head: 'Platform', cell: (t) => t.platform_id },
          { head: 'Number', cell: (t) => t.account_number ?? '–' },
          { head: 'Made', cell: (t) => <><Time at={t.created_at} />{t.is_manual && <span className="faint"> by hand</span>}</> },
          {
            head: 'Change',
            cell: (t) => (
              <Act
                label="Rename"
                ask={(close) => (
                  <Form
                    title="Rename the tenant" action="Save" fields={[{ name: 'label', label: 'Name', value: t.label, required: true }]} onClose={close}
                    onSend={(body) => flowlane.tenants.update({ path: { tenancy_id: t.id }, body })}
                  />
                )}
              />
            ),
          },
        ]}
      />
    </>
  );
}

function MakeTenant({ close }: { close: () => void }) {
  const fields: Field[] = [
    { name: 'platform_id', label: 'Platform', required: true }, { name: 'label', label: 'Name', required: true },
    { name: 'account_number', label: 'Number at the provider', hint: 'empty where it has none' },
  ];
  return (
    <Form
      title="New tenant" action="Make it" fields={fields} onClose={close}
      onSend={(v) => flowlane.tenants.create({ body: { platform_id: String(v.platform_id), label: String(v.label), account_number: v.account_number as string | null } })}
    />
  );
}
