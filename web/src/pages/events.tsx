import { flowlane, type EventKind, type EventSubscription, type EventSubscriptionInput } from '../api/client';
import { useLive } from '../api/live';
import { exactly } from '../lib/exact';
import { count } from '../lib/format';
import { useFlows } from '../ui/flows';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Listing, Table } from '../ui/listing';
import { Failure, Head, Status, Time } from '../ui/parts';

/** What starts what: the subscriptions, and the kinds of events that there are. */
export function Events() {
  const flows = useFlows();
  const kinds = useLive(['event-kinds'], (signal) => flowlane.events.listKinds({ signal }));
  const all = kinds.data?.items ?? [];
  return (
    <>
      <Head title="Events">
        <Act label="New subscription" strong ask={(close) => <Edit kinds={all} close={close} />} />
      </Head>
      <Listing<EventSubscription>
        of={['subscriptions']} row={(s) => s.id} empty="No flow listens to an event yet. A subscription starts a flow when one comes."
        read={(cursor, signal) => exactly(flowlane.events.listSubscriptions({ query: { limit: 50, cursor, order: 'desc' }, signal, parseAs: 'text' }))}
        columns={[
          { head: 'Subscription', cell: (s) => s.description || s.id },
          { head: 'Upon', cell: (s) => <><code>{s.event_kind}</code>{s.filter && <> where <code>{s.filter}</code></>}</> },
          { head: 'Starts', cell: (s) => flows.get(s.definition_id) ?? 'a deleted flow' },
          { head: 'Status', cell: (s) => <Status status={s.enabled ? 'enabled' : 'paused'} /> },
          { head: 'Started', cell: (s) => <>{count(s.started_count)}, last <Time at={s.last_started_at} /></> },
          { head: 'Failed', cell: (s) => s.failed_count > 0 && <>{count(s.failed_count)}, last <Time at={s.last_failed_at} />: <span className="message">{s.last_error}</span></> },
          { head: 'Change', cell: (s) => <Changes subscription={s} kinds={all} /> },
        ]}
      />
      <h2>Kinds of events</h2>
      {kinds.error && <Failure error={kinds.error} retry={() => void kinds.refetch()} />}
      <Table<EventKind>
        rows={all} row={(k) => k.kind}
        columns={[
          { head: 'Kind', cell: (k) => <code>{k.kind}</code> },
          { head: 'When', cell: (k) => k.description },
          { head: 'What it holds', cell: (k) => <details><summary>schema</summary><pre>{JSON.stringify(k.payload_schema, null, 2)}</pre></details> },
        ]}
      />
    </>
  );
}

function Changes({ subscription: s, kinds }: { subscription: EventSubscription; kinds: EventKind[] }) {
  const path = { subscription_id: s.id };
  return (
    <span className="actions">
      <Act label={s.enabled ? 'Pause' : 'Resume'} run={() => flowlane.events.updateSubscription({ path, body: { enabled: !s.enabled } })} />
      <Act label="Edit" ask={(close) => <Edit subscription={s} kinds={kinds} close={close} />} />
      <Act
        label="Delete"
        ask={(close) => (
          <Confirm title="Delete this subscription" action="Delete it" onGo={() => flowlane.events.deleteSubscription({ path })} onClose={close}>
            <p>{s.description}: nothing more starts by it.</p>
          </Confirm>
        )}
      />
    </span>
  );
}

function Edit({ subscription: s, kinds, close }: { subscription?: EventSubscription; kinds: EventKind[]; close: () => void }) {
  const flows = useFlows();
  const fields: Field[] = [
    { name: 'description', label: 'Name', value: s?.description, required: true },
    { name: 'event_kind', label: 'Upon', value: s?.event_kind, options: kinds.map((k) => [k.kind, k.kind]), required: true },
    { name: 'filter', label: 'Only where', value: s?.filter, hint: 'an expression over event; empty for all' },
    { name: 'definition_id', label: 'Starts', value: s?.definition_id, options: [...flows], required: true },
    { name: 'input_template', label: 'Input of the flow', kind: 'json', value: s?.input_template, hint: 'JSON with {{ }}; empty for the event' },
  ];
  return (
    <Form
      title={s ? 'Edit the subscription' : 'New subscription'} action={s ? 'Save' : 'Make it'} fields={fields} onClose={close}
      onSend={(body) => s
        ? flowlane.events.updateSubscription({ path: { subscription_id: s.id }, body })
        : flowlane.events.createSubscription({ body: body as unknown as EventSubscriptionInput })}
    />
  );
}
