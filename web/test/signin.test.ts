import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import type { Service } from '../src/api/client';
import { anyAddress, bodyOf, fieldOf, secretsOf, settingsOf, wayName, waysOf } from '../src/lib/signin';

const service = (part: Partial<Service>) => ({ kind: 'api', auth_method: 'none', base_url: '', auth_methods: [], ...part }) as unknown as Service;
const basic = { auth_method: 'basic_auth' as const, grant_type: null, credential_fields: [] };
const names = (fields: Array<{ name: string; required?: boolean }>) => fields.filter((f) => f.required).map((f) => f.name);
const core = waysOf([service({})]);
const way = (name: string) => core.find((w) => wayName(w) === name)!;

describe('the ways to sign in', () => {
  it('are those of the catalog, each once', () => {
    const services = [service({ base_url: 'https://a.example', auth_methods: [basic] }), service({ base_url: 'https://b.example', auth_methods: [basic] })];
    expect(anyAddress(services)).toBe(false);
    expect(waysOf(services).map(wayName)).toEqual(['basic auth']);
  });

  it('are all that the API has, where flows name the addresses', () => {
    const document = readFileSync(new URL('../../openapi.yaml', import.meta.url), 'utf8');
    const methods = /\n    AuthMethod:\n[\s\S]*?enum: \[(.*?)\]/.exec(document)![1]!.split(', ').sort();
    expect([...new Set(core.map((w) => w.method))].sort()).toEqual(methods);
    const grants = [...document.matchAll(/^ {8}\| `(\w+)`(?: \(default\))? \| .*`client_id`|^ {8}\| `(jwt_bearer)`/gm)].map((m) => m[1] ?? m[2]).sort();
    expect(core.flatMap((w) => w.grant ?? []).sort()).toEqual(grants);
  });
});

describe('the form of a way', () => {
  it('asks where a key goes and may be sent', () => {
    expect(names(settingsOf(way('api key'), true))).toEqual(['place_name', 'allowed_origins']);
    expect(names(settingsOf(way('api key'), false))).toEqual([]);
    expect(names(settingsOf(way('oauth2, authorization code'), true))).toEqual(['token_url', 'authorize_url', 'allowed_origins']);
    expect(settingsOf(way('aws access key'), true).map((f) => f.name)).toContain('aws_region');
  });

  it('never hides what is required', () => {
    for (const w of core) for (const any of [true, false]) expect([...secretsOf(w), ...settingsOf(w, any)].filter((f) => f.more && f.required)).toEqual([]);
  });

  it('takes the lines of a key, and hides a secret of one line', () => {
    const field = (name: string, secret: boolean) => fieldOf({ name, label: '', type: 'string', required: true, secret }).kind;
    expect([field('key', true), field('api_key', true), field('issuer', false)]).toEqual(['long', 'secret', 'text']);
  });

  it('says no more than was typed', () => {
    const values = {
      name: 'mine', 'credentials.api_key': 'k', 'credentials.server_ca': null, place: 'header_name', place_name: 'Authorization', scheme: 'Token',
      allowed_origins: ['https://a.example'], scopes: [], audience: null,
    };
    expect(bodyOf('core', way('api key'), values)).toEqual({
      name: 'mine', platform_id: 'core', auth_method: 'api_key', credentials: { api_key: 'k' }, allowed_origins: ['https://a.example'],
      api_key_placement: { header_name: 'Authorization', scheme: 'Token' },
    });
    expect(bodyOf('core', way('api key'), { ...values, place: 'query_param', place_name: 'key' }).api_key_placement).toEqual({ query_param: 'key' });
    expect(bodyOf('x', way('oauth2, password'), { name: 'n', place: '', place_name: null }).grant_type).toBe('password');
  });
});
