// What a program imports: the generated operations and types, and connect. Everything in gen/ follows from openapi.yaml.
import type { Auth } from './gen/core/auth.gen.js';
import { createClient, createConfig, type Client } from './gen/client/index.js';
import { createStreamToken, streamExecution as generatedStream } from './gen/index.js';

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

/** Returns a client to pass to operations as `client`. For each stream it asks for a token, so that no key is in an address. */
export function connect(connection: Connection): Client {
  const root = connection.url.replace(/\/+$/, '').replace(/\/v1$/, '');
  const client: Client = createClient(
    createConfig({
      baseUrl: `${root}/v1`,
      auth: (scheme: Auth) => (scheme.in === 'query' ? streamToken(client) : credentials(connection, scheme)),
      ...(connection.fetch ? { fetch: connection.fetch } : {}),
    }),
  );
  return client;
}

/** Streams what happens to one execution. The generated function loses the token where a call has no query of its own. */
export const streamExecution: typeof generatedStream = (options) => generatedStream({ ...options, query: { ...options.query } });

async function streamToken(client: Client): Promise<string> {
  const { data } = await createStreamToken({ client, throwOnError: true });
  return data.token;
}

async function credentials(connection: Connection, scheme: Auth): Promise<string | undefined> {
  if (scheme.scheme !== 'bearer') return connection.apiKey;
  return typeof connection.token === 'function' ? connection.token() : connection.token;
}
