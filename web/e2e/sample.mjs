// What an organization has after some days of work, so that no screen is empty; made through the API.
import { createHmac, randomUUID } from 'node:crypto';

import { until } from './page.mjs';

/** The names that people see in the pictures of the documentation. */
export const plain = {
  flow: 'Call list of the morning', webhook: 'Orders of the shop', schedule: 'Every night at three', set: 'Regions', store: 'customers',
  credential: 'Dialer, second account', tenant: 'Branch of Ulm', key: 'The reporting job', reason: 'The list is being checked', file: 'people.csv', person: 'Ada',
};

const markup = '<img src=x onerror=alert(1)><b>"&amp;{{ input.n }}';
/** Names of which each is markup, and too long for any column. */
export const hostile = Object.fromEntries(Object.keys(plain).map((name) =>
  [name, name === 'store' ? 'x'.repeat(63) : `${name} ${markup} ${'unbroken'.repeat(12)}`]));

/** The batch of a flow, once it is over, or for as long as it stands as it is wanted. */
export async function ended(server, id, as = (b) => b.completed_at !== null) {
  await until(async () => as(await server.api('GET', `/flows/batches/${id}`)), `the end of batch ${id}`, 60);
  return id;
}

const task = (id, action, params, more = {}) => ({ id, action_id: action, params, ...more });

/** Starts a flow with records. */
export const run = async (server, flow, records, more = {}) =>
  (await server.api('POST', `/flows/definitions/${flow.id}/trigger`, { records, ...more })).batch_id;

/** Has the provider take calls and cut them off, so that nobody knows of their records; returns the batch. */
export async function unknown(server, name, records) {
  const dialer = (await server.api('GET', '/credentials')).items.find((c) => c.platform_id === 'dialer');
  const flow = await server.api('POST', '/flows/definitions', {
    name, description: '', status: 'active',
    steps: [{ id: 'call', name: 'Call', tasks: [task('dial', 'dialer__api__dial', { number: '{{ input.phone }}', campaign: 'morning' }, { credential_id: dialer.id })] }],
  });
  await control(server, 'faults', [{ fault: 'cut_after_accept', operation: 'dial', count: records }]);
  const id = await run(server, flow, Array.from({ length: records }, (_, i) => ({ phone: `+4930123456${10 + i}` })));
  return ended(server, id, (b) => b.job_counts.unresolved === records);
}

/** Tells the simulated provider what to do. */
export async function control(server, what, body) {
  const answer = await fetch(`${server.sim}/_control/${what}`, { method: 'POST', body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`control ${what}: ${answer.status} ${await answer.text()}`);
}

/** The headers that sign a message. */
export function sign(secret, text, id = randomUUID()) {
  const time = Math.floor(Date.now() / 1000);
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const signature = createHmac('sha256', key).update(`${id}.${time}.${text}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': String(time), 'webhook-signature': `v1,${signature}` };
}

/** Sends a message to a webhook as its sender does; a text as it is. */
export async function deliver(server, webhook, body, id = randomUUID()) {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const answer = await fetch(`${server.url}/v1${webhook.receive_url}`, {
    method: 'POST', body: text,
    headers: { 'Content-Type': 'application/json', ...sign(webhook.signing_secret, text, id) },
  });
  if (!answer.ok) throw new Error(`deliver: ${answer.status} ${await answer.text()}`);
}

/** Makes a sample of everything, and returns each screen that shows some of it, by its name, with its place. */
export async function sample(server, names) {
  const { api } = server;
  const flow = await api('POST', '/flows/definitions', {
    name: names.flow, description: names.flow, status: 'active', input_schema: { type: 'object', required: ['id'] },
    steps: [
      { id: 'check', name: 'Check', tasks: [task('number', 'core__flow__transform', { value: '{{ int(input.age) }}' }, { when: '{{ input.age != null }}' })] },
      { id: 'tell', name: names.flow, tasks: [task('say', 'core__flow__transform', { value: '{{ input.name }}' })] },
    ],
  });
  const waits = await api('POST', '/flows/definitions', {
    name: `${names.flow} (waits)`, description: '', status: 'active',
    steps: [{ id: 'wait', name: 'Wait', tasks: [task('wait', 'core__flow__delay', { seconds: 3600 })] }],
  });
  const people = Array.from({ length: 40 }, (_, i) => ({ id: String(i), name: `${names.person} ${i}`, age: i % 13 === 5 ? names.person : String(20 + i) }));
  const set = await api('POST', '/data/record-sets', { metadata: { file: names.file } });
  await api('POST', `/data/record-sets/${set.id}/records`, { chunk_index: 0, records: people });
  await api('POST', `/data/record-sets/${set.id}/seal`, { expected_count: people.length });
  const open = await api('POST', '/data/record-sets', { metadata: { file: names.file } });
  await api('POST', `/data/record-sets/${open.id}/records`, { chunk_index: 0, records: people });
  const { batch_id: batch } = await api('POST', `/flows/definitions/${flow.id}/trigger`, { record_set_id: set.id, metadata: { file: names.file } });
  const held = await run(server, waits, people.slice(0, 12));
  await ended(server, held, (b) => b.status === 'running');
  await api('POST', `/flows/batches/${held}/pause`, { reason: names.reason });
  const moves = await run(server, waits, people.slice(0, 25));

  const schedule = await api('POST', '/flows/schedules', { definition_id: flow.id, cron_expression: '0 3 * * *', timezone: 'Europe/Berlin', description: names.schedule, input_data: people[0] });
  await api('POST', `/flows/schedules/${schedule.id}/run`);
  const webhook = await api('POST', '/flows/webhooks', { definition_id: flow.id, description: names.webhook });
  await deliver(server, webhook, people[1]);
  await api('POST', '/flows/event-subscriptions', { definition_id: flow.id, description: names.webhook, event_kind: 'job.unresolved', filter: '{{ payload.data.batch_id != null }}' });
  await api('POST', '/flows/variables', {
    name: names.set, keys: [{ name: 'list', default: 'demo' }, { name: 'limit', type: 'integer', default: 100 }],
    versions: [{ name: 'north', values: { list: names.person } }, { name: 'south', values: { limit: 7 } }],
  });
  await api('POST', '/data/stores', { name: names.store, fields: [{ name: 'email', type: 'string' }, { name: 'score', type: 'number' }], layers: ['import', 'agent'] });
  await api('POST', `/data/stores/${names.store}/records`, { records: [
    { key: names.person, layer: 'import', values: { email: 'ada@example.com', score: 1.5 } }, { key: names.person, layer: 'agent', values: { email: names.person } },
  ] });
  const credential = await api('POST', '/credentials', {
    name: names.credential, platform_id: 'dialer', auth_method: 'basic_auth', credentials: { username: 'second/robot', password: 'of-a-test' }, allowed_origins: [server.sim],
  });
  await api('POST', `/credentials/${credential.id}/test`);
  await api('POST', '/tenants', { platform_id: 'dialer', label: names.tenant });
  await api('POST', '/account/api-keys', { name: names.key, role: 'member' });
  const lost = await unknown(server, `${names.flow} (calls)`, 3);
  await ended(server, batch);
  const domain = (await api('GET', '/platforms/dialer/domains')).items[0];
  return {
    overview: '', inbox: 'inbox', batches: 'batches', batch: `batches/${batch}`, 'batch-records': `batches/${batch}?tab=records`, 'batch-calls': `batches/${lost}?tab=calls`,
    'batch-origin': `batches/${batch}?tab=origin`, 'batch-paused': `batches/${held}`, 'batch-running': `batches/${moves}`, record: `batches/${batch}/5`, start: 'start', sets: 'sets',
    flows: 'flows', flow: `flows/${flow.id}`, 'flow-text': `flows/${flow.id}?tab=text`, 'flow-versions': `flows/${flow.id}?tab=versions`,
    'flow-used-by': `flows/${flow.id}?tab=used+by`, 'flow-new': 'flows/new', schedules: 'schedules', schedule: `schedules/${schedule.id}`, webhooks: 'webhooks',
    webhook: `webhooks/${webhook.id}`, events: 'events', variables: 'variables', stores: 'stores', store: `stores/${names.store}`,
    'store-record': `stores/${names.store}/${encodeURIComponent(names.person)}`, imports: 'catalog/imports', import: 'catalog/import', accounts: 'accounts',
    account: `accounts/dialer/${domain.tenancy_id}`, credentials: 'credentials', credential: `credentials/${credential.id}`, tenants: 'tenants', catalog: 'catalog',
    'catalog-action': 'catalog?q=flow&action=core__flow__delay', usage: 'usage', limits: 'limits', keys: 'keys', audit: 'audit', nowhere: 'nowhere',
  };
}
