import { readFileSync, writeFileSync } from 'node:fs';
import { defineConfig } from '@hey-api/openapi-ts';

const input = '../../openapi.yaml';

// What the name of an operation need not say within its group: batches.list, not batches.listBatches.
const nouns: Record<string, string> = { Batches: 'Batch', Variables: 'VariableSet', 'Record sets': 'RecordSet' };
const text = readFileSync(input, 'utf8');
const groups = new Map(
  [...text.matchAll(/operationId: (\w+)[^]*?tags: \[(.+?)\]/g)].map(([, id, tag]) => [id!, tag!]),
);

function methodName(operationId: string): string {
  const group = groups.get(operationId);
  if (!group) throw new Error(`${operationId} has no tag`);
  const noun = nouns[group] ?? group.replace(/s$/, '');
  return operationId.replace(new RegExp(`${noun}(es|s)?(?=[A-Z]|$)`), '');
}

// The operations that take an Idempotency-Key: the client gives them one by itself.
const keyed: string[] = [];
let path = '';
let method = '';
for (const line of text.split('\n')) {
  path = /^  (\/\S+):$/.exec(line)?.[1] ?? path;
  method = /^    (get|put|post|patch|delete):$/.exec(line)?.[1] ?? method;
  if (line.includes('#/components/parameters/IdempotencyKey"')) keyed.push(`  '${method.toUpperCase()} ${path}',\n`);
}
writeFileSync(
  'src/keyed.gen.ts',
  `// The operations that take an Idempotency-Key; written by openapi-ts.config.ts.\nexport const keyed = new Set([\n${keyed.join('')}]);\n`,
);

// src/gen follows from the API document; `make generate` writes it anew.
export default defineConfig({
  input,
  logs: { file: false, level: 'warn' },
  output: { path: 'src/gen', clean: true },
  plugins: [
    { name: '@hey-api/client-fetch', throwOnError: true },
    { name: '@hey-api/typescript' },
    {
      name: '@hey-api/sdk',
      responseStyle: 'data',
      operations: { strategy: 'byTags', containerName: '{{name}}Operations', methods: 'instance', nesting: 'operationId', methodName },
    },
  ],
});
