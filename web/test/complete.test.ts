import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { complete, functions, type Known } from '../src/lib/complete';

const known: Known = {
  actions: [
    { id: 'core__flow__delay', name: 'Wait', params_schema: { properties: { seconds: { description: 'How long.' } } } },
    { id: 'core__flow__transform', name: 'Compute', params_schema: {} },
  ],
  flow: { steps: [{ id: 'check', tasks: [{ id: 'parse' }] }] },
  fields: ['email', 'n'],
};

/** What is offered where the caret stands, which is written as |. */
const offers = (text: string) => {
  const at = text.indexOf('|');
  return complete(text.replace('|', ''), at, known)?.options.map((o) => o.text);
};

describe('complete', () => {
  it.each([
    ['"action_id": "del|', ['core__flow__delay']],
    ['"action_id": "compute|', ['core__flow__transform']],
    ['"x": "{{ input.|', ['email', 'n']],
    ['"when": "{{ steps.|', ['check']],
    ['"when": "{{ steps.check.|', ['parse']],
    ['"x": "{{ steps.check.parse.|', ['output', 'error', 'skipped']],
    ['"x": "{{ hmac|', ['hmacSha256']],
    ['"x": "{{ a }} in|', undefined],
    ['{"action_id": "core__flow__delay", "params": {\n "s|', ['seconds']],
    ['{"action_id": "core__flow__delay", "params": {"a": {\n "s|', undefined],
    ['{"action_id": "core__flow__delay", "params": {}},\n {"s|', undefined],
  ])('offers at %s', (text, options) => expect(offers(text)).toEqual(options));
});

it('knows the functions of the service', () => {
  const source = readFileSync(new URL('../../internal/expr/function.go', import.meta.url), 'utf8');
  const there = [...source.matchAll(/^\t"(\w+)":\s+\{/gm)].map(([, name]) => name);
  expect([...functions].sort()).toEqual(there.sort());
});
