// Runs the main job against a live service, as a program of a customer would: FLOWLANE_URL and FLOWLANE_API_KEY say where
// and who. It prints what it saw as one line of JSON; the test that started it compares that with what the service did.
import * as flow from '../src/index.js';

declare const process: { env: Record<string, string | undefined> };

const client = flow.connect({ url: process.env.FLOWLANE_URL!, apiKey: process.env.FLOWLANE_API_KEY! });

/** Returns the answer of an operation, or throws what the service said. */
async function ok<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (error !== undefined || data === undefined) throw new Error(`${response.url}: ${response.status} ${JSON.stringify(error)}`);
  return data;
}

const credential = await ok(
  flow.createCredential({
    client,
    body: { name: 'smoke', platform_id: 'dialer', auth_method: 'basic_auth', credentials: { username: 'acme', password: 'x' } },
  }),
);

const definition = await ok(
  flow.createDefinition({
    client,
    body: {
      name: 'smoke',
      status: 'active',
      steps: [
        {
          id: 'send',
          tasks: [
            {
              id: 'up',
              action_id: 'dialer__api__upload',
              credential_id: credential.id,
              params: { list: 'smoke', key_field: 'id', row: '{{ input }}' },
            },
          ],
        },
      ],
    },
  }),
);

const set = await ok(flow.createRecordSet({ client, body: { chunk_size: 2 } }));
const path = { record_set_id: set.id };
await ok(flow.appendRecords({ client, path, body: { chunk_index: 0, records: [{ id: 'a', n: 1 }, { id: 'b', n: 2 }] } }));
await ok(flow.appendRecords({ client, path, body: { chunk_index: 1, records: [{ id: 'c', n: 3 }] } }));
const sealed = await ok(flow.sealRecordSet({ client, path, body: { expected_count: 3 } }));

const start = {
  client,
  path: { definition_id: definition.id },
  body: { record_set_id: set.id },
  headers: { 'Idempotency-Key': crypto.randomUUID() },
};
const started = await ok(flow.triggerDefinition(start));
const again = await ok(flow.triggerDefinition(start));

let batch = await ok(flow.getBatch({ client, path: { batch_id: started.batch_id } }));
while (batch.completed_at === null) {
  await new Promise((done) => setTimeout(done, 50));
  batch = await ok(flow.getBatch({ client, path: { batch_id: started.batch_id } }));
}

const results: flow.Result[] = [];
for (let cursor: string | undefined; ; ) {
  const page = await ok(
    flow.listBatchResults({ client, path: { batch_id: batch.id }, query: { limit: 2, ...(cursor ? { cursor } : {}) } }),
  );
  results.push(...page.items);
  if (page.next_cursor === null) break;
  cursor = page.next_cursor;
}

const events: string[] = [];
const { stream } = await flow.streamExecution({
  client,
  path: { execution_id: `${batch.id}.0.1` },
  onSseEvent: (event) => event.event && events.push(event.event), // the first one only says when to try again
  onSseError: (error) => events.push(String(error)),
  sseMaxRetryAttempts: 1,
});
for await (const _ of stream); // onSseEvent has them

const unknown = await flow.getBatch({ client, path: { batch_id: 'unknown' } });

console.log(
  JSON.stringify({
    batch_id: batch.id,
    again: again.batch_id,
    status: batch.status,
    content_hash: sealed.content_hash,
    results: results.map((r) => [r.position, r.status]),
    events,
    unknown: [unknown.response?.status, unknown.error],
  }),
);
