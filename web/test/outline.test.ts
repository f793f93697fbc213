import { describe, expect, it } from 'vitest';

import { documentOf, outlineOf } from '../src/lib/outline';

const yaml = `
openapi: 3.0.3
info: {title: Shop}
servers: [{url: /v1}]
paths:
  /orders:
    parameters: []
    get: {tags: [Orders, Reads]}
    post: {tags: [Orders]}
  /health:
    get: {}
components:
  securitySchemes:
    Key: {type: apiKey, in: header, name: X-Key}
    Person: {type: oauth2, flows: {authorizationCode: {}}}
`;

describe('the outline of a document', () => {
  it('names its ways to sign in and its operations by tag', async () => {
    expect(outlineOf(await documentOf(yaml))).toEqual({
      title: 'Shop', operations: 3, servers: ['/v1'],
      schemes: [{ name: 'Key', what: 'a key in the header X-Key' }, { name: 'Person', what: 'oauth2: authorizationCode' }],
      tags: [{ name: '', operations: 1 }, { name: 'Orders', operations: 2 }, { name: 'Reads', operations: 1 }],
    });
  });

  it.each(['{}', '{"swagger":"2.0"}', '[]', 'null', '"x"', '{"openapi":3}'])('is none of %s', async (text) => {
    expect(outlineOf(await documentOf(text))).toMatch(/^This is no OpenAPI document/);
  });

  it('bears what stands where it should not', () => {
    expect(outlineOf({ openapi: '3.1.0', info: 1, paths: { a: null, b: { get: 1, 'x-y': {} } }, servers: {} })).toMatchObject({ operations: 1, servers: [] });
  });
});
