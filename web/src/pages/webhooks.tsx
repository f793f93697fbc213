import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type Webhook, type WebhookDelivery, type WebhookDeliveryStatus, type WebhookInput } from '../api/client';
import { useLive } from '../api/live';
import { exactly } from '../lib/exact';
import { count, words } from '../lib/format';
import { useFlows } from '../ui/flows';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Listing } from '../ui/listing';
import { Copy, Facts, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';
import { Secret } from '../ui/secret';
import { Choice } from './batches';
import { Body, ReplayDead } from './webhook-delivery';
import { CheckSignature, TestSender } from './webhook-try';

/** Addresses that others send to, and what each starts. */
export function Webhooks() {
  const flows = useFlows();
  const [secret, setSecret] = useState<{ signing_secret: string; receive_url: string }>();
  return (
    <>
      <Head title="Webhooks">
        <Act label="New webhook" strong ask={(close) => <Edit close={close} made={setSecret} />} />
      </Head>
      {secret && (
        <Secret title="The secret of the webhook" secret={secret.signing_secret} onClose={() => setSecret(undefined)}>
          <p>The sender signs with it what it sends to</p><pre>{`${location.origin}/v1${secret.receive_url}`}</pre>
          <details><summary>Send a test with it</summary><TestSender address={`${location.origin}/v1${secret.receive_url}`} secret={secret.signing_secret} /></details>
        </Secret>
      )}
      <Listing<Webhook>
        of={['webhooks']} row={(w) => w.id} empty="Nobody can send anything here yet. Make a webhook of a flow that is active."
        read={(cursor, signal) => flowlane.webhooks.list({ query: { limit: 50, cursor, order: 'desc' }, signal })}
        columns={[
          { head: 'Webhook', cell: (w) => <Link to="/webhooks/$webhookId" params={{ webhookId: w.id }}>{w.description || w.id}</Link> },
          { head: 'Flow', cell: (w) => flows.get(w.definition_id) ?? 'a deleted flow' },
          { head: 'Status', cell: (w) => <Status status={w.enabled ? 'enabled' : 'paused'} /> },
          { head: 'Made', cell: (w) => <Time at={w.created_at} /> },
        ]}
      />
    </>
  );
}

const statuses: WebhookDeliveryStatus[] = ['accepted', 'dispatched', 'failed', 'dead'];

/** One webhook: its address, and what arrived. */
export function WebhookPage() {
  const { webhookId } = useParams({ from: '/frame/webhooks/$webhookId' });
  const { status } = useSearch({ from: '/frame/webhooks/$webhookId' });
  const navigate = useNavigate();
  const flows = useFlows();
  const [secret, setSecret] = useState<{ signing_secret: string; previous_valid_until: string }>();
  const path = { webhook_id: webhookId };
  const read = useLive(['webhook', webhookId], (signal) => exactly(flowlane.webhooks.get({ path, signal, parseAs: 'text' })));
  const w = read.data;
  if (!w) return read.error ? <Failure error={read.error} retry={() => void read.refetch()} /> : <Loading />;
  const remove = async () => {
    await flowlane.webhooks.delete({ path });
    await navigate({ to: '/webhooks' });
  };
  const rotate = async () => setSecret(await flowlane.webhooks.rotateSecret({ path }));
  return (
    <>
      <Head title={w.description || 'Webhook'} back={{ to: '/webhooks', label: 'Webhooks' }}>
        <Act label={w.enabled ? 'Pause' : 'Resume'} run={() => flowlane.webhooks.update({ path, body: { enabled: !w.enabled } })} />
        <Act label="Edit" ask={(close) => <Edit webhook={w} close={close} />} />
        <Act
          label="New secret"
          ask={(close) => (
            <Confirm title="Make a new secret" action="Make it" onGo={rotate} onClose={close}>
              <p>The secret of before counts for a while longer, so that nothing is refused until the sender has the new one.</p>
            </Confirm>
          )}
        />
        <Act
          label="Delete"
          ask={(close) => (
            <Confirm title="Delete this webhook" action="Delete it" onGo={remove} onClose={close}>
              <p>What is sent to its address is refused from then on.</p>
            </Confirm>
          )}
        />
      </Head>
      {secret && (
        <Secret title="The new secret" secret={secret.signing_secret} onClose={() => setSecret(undefined)}>
          <p>The one of before counts until <Time at={secret.previous_valid_until} />.</p>
          <details><summary>Send a test with it</summary><TestSender address={addressOf(w)} secret={secret.signing_secret} /></details>
        </Secret>
      )}
      <p className="lead"><Status status={w.enabled ? 'enabled' : 'paused'} /> <Id id={w.id} /></p>
      <Facts
        facts={[
          ['Flow', flows.get(w.definition_id) ?? 'a deleted flow'],
          ['Address', <><code>{addressOf(w)}</code> <Copy text={addressOf(w)}>Copy</Copy></>],
          ['At most', `${count(w.rate_limit ?? usualRate)} a minute`],
        ]}
      />
      <details><summary>How a sender signs</summary><pre>{example(w)}</pre></details>
      <details><summary>Send a test</summary><TestSender address={addressOf(w)} /></details>
      <details><summary>Check a signature</summary><CheckSignature /></details>
      <section>
        <h2>Deliveries</h2>
        <div className="filters">
          <Choice
            label="Status" value={status} all={statuses} name={words}
            onChange={(v) => void navigate({ to: '/webhooks/$webhookId', params: { webhookId }, search: { status: v as WebhookDeliveryStatus | undefined } })}
          />
          <ReplayDead path={path} />
        </div>
        <Listing<WebhookDelivery>
          of={['deliveries', webhookId, status]} row={(d) => d.id} empty={status ? `No delivery is ${status}.` : 'Nothing has arrived yet.'} moves
          read={(cursor, signal) => flowlane.webhooks.listDeliveries({ path, query: { limit: 50, cursor, status }, signal })}
          columns={[
            { head: 'Arrived', cell: (d) => <Time at={d.received_at} /> },
            { head: 'Id of the sender', cell: (d) => <><code>{d.webhook_message_id}</code>{d.duplicates > 0 && <span className="faint"> sent {count(d.duplicates)} more times</span>}</> },
            { head: 'Status', cell: (d) => <Status status={d.status} /> },
            { head: 'Body', cell: (d) => <Body path={path} delivery={d} />, number: true },
            { head: 'Attempts', cell: (d) => count(d.attempts), number: true },
            { head: 'What came of it', cell: (d) => (d.batch_id ? <Link to="/batches/$batchId" params={{ batchId: d.batch_id }}>The batch</Link> : d.last_error) },
            {
              head: 'Again',
              cell: (d) => (d.status === 'failed' || d.status === 'dead') && (
                <Act label="Replay" run={() => flowlane.webhooks.replayDelivery({ path: { ...path, delivery_id: d.id } })} />
              ),
            },
          ]}
        />
      </section>
    </>
  );
}

const addressOf = (w: Webhook): string => `${location.origin}/v1/flows/webhooks/${w.provider}/${w.id}`;

/** A shell that signs a message and sends it, with the secret in a variable. */
const example = (w: Webhook): string => `# WEBHOOK_SECRET holds the secret, whsec_…
id=order-17
body='{"order": 17}'
timestamp=$(date +%s)
key=$(printf %s "\${WEBHOOK_SECRET#whsec_}" | openssl base64 -d -A | od -An -v -tx1 | tr -d ' \\n')
signature=v1,$(printf %s "$id.$timestamp.$body" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | openssl base64 -A)
curl --data-binary "$body" -H 'Content-Type: application/json' -H "webhook-id: $id" -H "webhook-timestamp: $timestamp" \\
  -H "webhook-signature: $signature" ${addressOf(w)}`;

/** How many messages a minute are taken where a webhook has no limit of its own. */
const usualRate = 1000;

interface EditProps {
  webhook?: Webhook;
  close: () => void;
  made?: (secret: { signing_secret: string; receive_url: string }) => void;
}

function Edit({ webhook: w, close, made }: EditProps) {
  const flows = useFlows();
  const fields: Field[] = [
    { name: 'description', label: 'Name', value: w?.description, required: true },
    { name: 'definition_id', label: 'Flow', value: w?.definition_id, options: [...flows], required: true },
    { name: 'rate_limit', label: 'At most so many a minute', kind: 'number', value: w?.rate_limit, hint: `empty for ${count(usualRate)}` },
    { name: 'input_template', label: 'Input of the flow', kind: 'json', value: w?.input_template, hint: 'JSON with {{ }}; empty for what was sent' },
  ];
  return (
    <Form
      title={w ? 'Edit the webhook' : 'New webhook'} action={w ? 'Save' : 'Make it'} fields={fields} onClose={close}
      onSend={async (body) => {
        if (w) return flowlane.webhooks.update({ path: { webhook_id: w.id }, body });
        return made?.(await flowlane.webhooks.create({ body: body as unknown as WebhookInput }));
      }}
    />
  );
}
