import { Batches } from './batches.js';
import { toError } from './errors.js';
import { Executions } from './executions.js';
import type { Auth } from './gen/core/auth.gen.js';
import { createClient, createConfig, type Client } from './gen/client/index.js';
import * as gen from './gen/index.js';
import { keyed } from './keyed.gen.js';
import { Records } from './records.js';
import { following } from './redirect.js';
import { retrying, type Retries } from './retry.js';

/** Where a service is, and who calls it: give either an API key or a bearer token. */
export interface Connection extends Retries {
  /** The root of the service, for example https://flows.example.com; /v1 is added. */
  url: string;
  /** A key of the organization; it starts with flow_. */
  apiKey?: string;
  /** A token of your identity provider, or a function that returns one that is still good. */
  token?: string | (() => string | Promise<string>);
  /** Replaces the global fetch. */
  fetch?: typeof fetch;
}

/**
 * A service, as one caller sees it. Its groups hold every operation of the API: they return what the service answers, and throw a
 * FlowlaneError. What fails and may pass is sent again, after `Retry-After`; what starts or creates something gets an
 * Idempotency-Key, so that it happens once.
 */
export class Flowlane {
  /** What the operations are sent with. */
  readonly client: Client;
  readonly account: gen.AccountOperations;
  readonly batches: Batches;
  readonly calls: gen.CallsOperations;
  readonly catalog: gen.CatalogOperations;
  readonly credentials: gen.CredentialsOperations;
  readonly definitions: gen.DefinitionsOperations;
  readonly dispatch: gen.DispatchOperations;
  readonly events: gen.EventsOperations;
  readonly executions: Executions;
  readonly jobs: gen.JobsOperations;
  readonly records: Records;
  readonly schedules: gen.SchedulesOperations;
  readonly stores: gen.StoresOperations;
  readonly templates: gen.TemplatesOperations;
  readonly tenants: gen.TenantsOperations;
  readonly usage: gen.UsageOperations;
  readonly variables: gen.VariablesOperations;
  readonly webhooks: gen.WebhooksOperations;

  constructor(connection: Connection) {
    const send = following(connection.fetch ?? ((input, init) => fetch(input, init)));
    const client = connect(connection, send);
    this.client = client;
    this.account = new gen.AccountOperations({ client });
    this.batches = new Batches(client, connection);
    this.calls = new gen.CallsOperations({ client });
    this.catalog = new gen.CatalogOperations({ client });
    this.credentials = new gen.CredentialsOperations({ client });
    this.definitions = new gen.DefinitionsOperations({ client });
    this.dispatch = new gen.DispatchOperations({ client });
    this.events = new gen.EventsOperations({ client });
    this.executions = new Executions(client, connection);
    this.jobs = new gen.JobsOperations({ client });
    this.records = new Records(client, send);
    this.schedules = new gen.SchedulesOperations({ client });
    this.stores = new gen.StoresOperations({ client });
    this.templates = new gen.TemplatesOperations({ client });
    this.tenants = new gen.TenantsOperations({ client });
    this.usage = new gen.UsageOperations({ client });
    this.variables = new gen.VariablesOperations({ client });
    this.webhooks = new gen.WebhooksOperations({ client });
  }
}

/** Returns a client for the generated operations. For each stream it asks for a token, so that no key is in an address. */
function connect(connection: Connection, send: typeof fetch): Client {
  const root = connection.url.replace(/\/+$/, '').replace(/\/v1$/, '');
  const account = () => new gen.AccountOperations({ client });
  const client: Client = createClient(
    createConfig({
      baseUrl: `${root}/v1`,
      auth: (scheme: Auth) =>
        scheme.in === 'query' ? account().createStreamToken().then(({ token }) => token) : credentials(connection, scheme),
      fetch: retrying(send, connection),
      throwOnError: true,
    }),
  );
  client.interceptors.request.use((request, { method, url }) => {
    if (keyed.has(`${method} ${url}`) && !request.headers.has('Idempotency-Key')) {
      request.headers.set('Idempotency-Key', crypto.randomUUID());
    }
    return request;
  });
  client.interceptors.error.use(toError);
  return client;
}

async function credentials(connection: Connection, scheme: Auth): Promise<string | undefined> {
  if (scheme.scheme !== 'bearer') return connection.apiKey;
  return typeof connection.token === 'function' ? connection.token() : connection.token;
}
