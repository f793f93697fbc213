import type { AuthMethod, CredentialCreate, CredentialField, Service } from '../api/client';
import type { Field } from '../ui/fields';
import { words } from './format';

/** One way to sign in to a platform: the method, for `oauth2` its grant, and what a credential of it holds. */
export interface Way {
  method: AuthMethod;
  grant: string | null;
  fields: CredentialField[];
}

const of = (name: string, label: string, required: boolean, secret = false): CredentialField => ({ name, label, type: secret ? 'password' : 'string', required, secret });
const client = (secret: boolean) => [of('client_id', 'Client id', true), of('client_secret', 'Client secret', secret, true)];
const assertion = [
  of('issuer', 'Issuer', true), of('key', 'Key', true, true), of('algorithm', 'Algorithm: RS256, ES256 or HS256', true),
  of('subject', 'Subject', false), of('key_id', 'Key id', false),
];
const certificate = (required: boolean) => [of('client_certificate', 'Client certificate, PEM', required, true), of('client_key', 'Key of the client certificate, PEM', required, true)];

/** Every way, for a platform whose flows name the addresses themselves: it takes them all. docs/credentials.md has the same. */
const every: Way[] = [
  { method: 'basic_auth', grant: null, fields: [of('username', 'User name', true), of('password', 'Password', true, true)] },
  { method: 'api_key', grant: null, fields: [of('api_key', 'API key', true, true)] },
  { method: 'oauth2', grant: 'client_credentials', fields: client(true) },
  { method: 'oauth2', grant: 'authorization_code', fields: client(false) },
  { method: 'oauth2', grant: 'refresh_token', fields: [...client(false), of('refresh_token', 'Refresh token', true, true)] },
  { method: 'oauth2', grant: 'password', fields: [...client(false), of('username', 'User name', true), of('password', 'Password', true, true)] },
  { method: 'oauth2', grant: 'jwt_bearer', fields: [...assertion, of('client_id', 'Client id', false), of('client_secret', 'Client secret', false, true)] },
  { method: 'jwt', grant: null, fields: assertion },
  {
    method: 'aws_access_key', grant: null,
    fields: [of('access_key_id', 'Access key id', true), of('secret_access_key', 'Secret access key', true, true), of('session_token', 'Session token, of temporary keys', false, true)],
  },
  { method: 'mutual_tls', grant: null, fields: certificate(true) },
];

/** Whether the flows of a platform name its addresses: then a credential says where its secret may go. */
export const anyAddress = (services: Service[]): boolean =>
  services.some((s) => s.kind === 'api' && s.auth_method === 'none' && s.base_url === '' && s.auth_methods.length === 0);

/** The ways to sign in to a platform, each once, in the order of the catalog. */
export function waysOf(services: Service[]): Way[] {
  const ways: Way[] = [];
  for (const { auth_method: method, grant_type: grant, credential_fields: fields } of services.flatMap((s) => s.auth_methods)) {
    if (!ways.some((w) => w.method === method && w.grant === grant)) ways.push({ method, grant, fields });
  }
  return anyAddress(services) ? [...ways, ...every.filter((e) => !ways.some((w) => w.method === e.method && w.grant === e.grant))] : ways;
}

/** A way in words. */
export const wayName = (way: Way): string => (way.grant ? `${words(way.method)}, ${words(way.grant)}` : words(way.method));

/** Keys and certificates have several lines, which a line of text would lose. */
const lined = /^(key|client_key|client_certificate|server_ca|private_key)$/;

/** A field of the catalog as one of a form: a secret is not shown while it is typed. */
export const fieldOf = (f: CredentialField): Field => ({
  name: `credentials.${f.name}`, label: f.label || words(f.name), required: f.required, kind: lined.test(f.name) ? 'long' : f.secret ? 'secret' : 'text',
});

/** What a credential of a way holds, and how its connections are made. */
export function secretsOf(way: Way): Field[] {
  const more = [...certificate(false), of('server_ca', 'Authorities to believe besides, PEM', false)];
  return [...way.fields.map(fieldOf), ...more.filter((m) => !way.fields.some((f) => f.name === m.name)).map((m) => ({ ...fieldOf(m), more: true }))];
}

/** What is said beside a secret. Where the catalog fixes it, it stays empty. */
export function settingsOf(way: Way, any: boolean): Field[] {
  const hint = any ? undefined : 'empty for that of the catalog';
  const fields: Field[] = [];
  if (way.method === 'api_key') {
    fields.push(
      { name: 'place', label: 'Where the key goes', value: any ? 'header_name' : '', more: !any,
        options: [...(any ? [] : [['', 'as the catalog says'] as [string, string]]), ['header_name', 'a header'], ['query_param', 'the query'], ['cookie_name', 'a cookie']] },
      { name: 'place_name', label: 'Its name there', value: any ? 'Authorization' : '', required: any, more: !any },
      { name: 'scheme', label: 'Word before the key', hint: 'for a header, such as Bearer; empty for none', more: !any },
    );
  }
  if (way.method === 'oauth2') {
    fields.push({ name: 'token_url', label: 'Address of the token', required: any, hint, more: !any });
    if (way.grant === 'authorization_code') fields.push({ name: 'authorize_url', label: 'Address where a person agrees', required: any, hint, more: !any });
    fields.push({ name: 'scopes', label: 'Scopes', kind: 'words', hint: 'separated by spaces', more: !any });
  }
  if (way.method === 'oauth2' || way.method === 'jwt') fields.push({ name: 'audience', label: 'Audience', hint: hint ?? 'empty for none', more: !any });
  if (way.method === 'aws_access_key') {
    fields.push(
      { name: 'aws_region', label: 'Region', hint: 'empty for that of the address' }, { name: 'aws_service', label: 'Service', hint: 'empty for that of the address' },
      { name: 'aws_default_bucket', label: 'Bucket', hint: 'of object stores', more: true },
      { name: 'aws_endpoint_url', label: 'Address of another provider', hint: 'of object stores that are not those of AWS', more: true },
    );
  }
  if (any) fields.push({ name: 'allowed_origins', label: 'Where the secret may be sent', kind: 'lines', required: true, hint: 'one origin a line, such as https://api.example.com' });
  return fields;
}

const named = (values: Record<string, unknown>, names: string[]): Record<string, unknown> =>
  Object.fromEntries(names.flatMap((name) => (values[name] == null || values[name] === '' || (Array.isArray(values[name]) && values[name].length === 0) ? [] : [[name, values[name]]])));

/** The secret of a form: what was left empty is left out. */
export const secretOf = (values: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(values).flatMap(([name, v]) => (name.startsWith('credentials.') && v != null && v !== '' ? [[name.slice('credentials.'.length), v]] : [])));

/** What a form of settings says. */
export function saidOf(values: Record<string, unknown>): Partial<CredentialCreate> {
  const { place, place_name: name, scheme } = values;
  const plain = ['token_url', 'authorize_url', 'scopes', 'audience', 'aws_region', 'aws_service', 'aws_default_bucket', 'aws_endpoint_url', 'allowed_origins'];
  return {
    ...named(values, plain),
    ...(place && name ? { api_key_placement: { [String(place)]: name, ...(place === 'header_name' && scheme ? { scheme: String(scheme) } : {}) } } : {}),
  };
}

/** The body that makes a credential of what was typed. */
export function bodyOf(platform: string, way: Way, values: Record<string, unknown>): CredentialCreate {
  return {
    name: String(values.name), platform_id: platform, auth_method: way.method, ...(way.grant ? { grant_type: way.grant } : {}),
    credentials: secretOf(values), ...saidOf(values),
  };
}
