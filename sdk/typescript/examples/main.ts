// The whole way with a service that FLOWLANE_URL and FLOWLANE_API_KEY name: a credential, a flow, an upload, a run, its results, and a
// retry of what failed.
import { Flowlane, NotFoundError } from '@flowlane/client';

declare const process: { env: Record<string, string | undefined> };

const flow = new Flowlane({ url: process.env.FLOWLANE_URL!, apiKey: process.env.FLOWLANE_API_KEY! });

const credential = await flow.credentials.create({
  body: { name: 'example', platform_id: 'dialer', auth_method: 'basic_auth', credentials: { username: 'acme', password: 'x' } },
});
const definition = await flow.definitions.create({
  body: {
    name: 'example',
    status: 'active',
    steps: [
      {
        id: 'send',
        tasks: [
          {
            id: 'up',
            action_id: 'dialer__api__upload',
            credential_id: credential.id,
            params: { list: 'example', key_field: 'id', row: '{{ input }}' },
          },
        ],
      },
    ],
  },
});

const records = [{ id: 'a' }, { id: 'b', bad: 'yes' }, { id: 'c' }];
const set = await flow.records.upload(records, {
  chunkSize: 2,
  concurrency: 1,
  onProgress: ({ records }) => console.log(`stored ${records}`),
});

const { batch_id } = await flow.definitions.trigger({ path: { definition_id: definition.id }, body: { record_set_id: set.id } });
const batch = await flow.batches.wait(batch_id);
console.log(`batch ${batch.status}`);
for await (const result of flow.batches.results(batch.id)) {
  console.log(`${result.position} ${result.status} ${result.error?.provider_message ?? ''}`.trim());
}
for await (const { event } of flow.executions.follow(`${batch.id}.0.1`)) console.log(event);

const retry = await flow.batches.retry({ path: { batch_id }, body: { job_statuses: ['rejected'] } });
console.log(`retry ${(await flow.batches.wait(retry.batch_id)).status}`);
for await (const result of flow.batches.results(retry.batch_id)) console.log(`${result.position} ${result.status}`);

try {
  await flow.batches.get({ path: { batch_id: 'unknown' } });
} catch (error) {
  if (!(error instanceof NotFoundError)) throw error;
  console.log(`${error.status} ${error.code} ${error.requestId !== ''}`);
}
