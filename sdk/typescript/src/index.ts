// What a program imports: the generated operations and types, and connect. Everything in gen/ follows from openapi.yaml.
import type { Auth } from './gen/core/auth.gen.js';
import { createClient, createConfig, type Client } from './gen/client/index.js';

export * from './gen/index.js';
export type { Client };

/** Where a service is, and who calls it: give either an API key or a bearer token. */
export interface Connection {
  /** The root of the service, for example https://flows.example.com; /v1 is added. */
  url: string;
  /** A key of the organization; it starts with flow_. */
  apiKey?: string;
  /** A token of your identity provider, or a function that returns one that is still good. */
  token?: string | (() => string | Promise<string>);
  /** Replaces the global fetch. */
  fetch?: typeof fetch;
}

/** Returns a client to pass to operations as `client`. */
export function connect(connection: Connection): Client {
  const root = connection.url.replace(/\/+$/, '').replace(/\/v1$/, '');
  return createClient(
    createConfig({
      baseUrl: `${root}/v1`,
      auth: (scheme: Auth) => credentials(connection, scheme),
      ...(connection.fetch ? { fetch: connection.fetch } : {}),
    }),
  );
}

async function credentials(connection: Connection, scheme: Auth): Promise<string | undefined> {
  if (scheme.scheme !== 'bearer') return connection.apiKey;
  return typeof connection.token === 'function' ? connection.token() : connection.token;
}
