import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type ConnectionTest, type Credential, type CredentialCreate, type CredentialField, type CredentialUpdate } from '../api/client';
import { useLive } from '../api/live';
import { words } from '../lib/format';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Listing, Table } from '../ui/listing';
import { Empty, Facts, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';

/** What the service signs in to providers with. Nobody reads the secrets again. */
export function Credentials() {
  return (
    <>
      <Head title="Credentials"><Act label="New credential" strong ask={(close) => <Make close={close} />} /></Head>
      <Listing<Credential>
        of={['credentials']} row={(c) => c.id} empty="Nothing signs in to a provider yet. Make a credential, and flows can call it."
        read={(cursor, signal) => flowlane.credentials.list({ query: { limit: 50, cursor, order: 'desc' }, signal })}
        columns={[
          { head: 'Credential', cell: (c) => <Link to="/credentials/$credentialId" params={{ credentialId: c.id }}>{c.name}</Link> },
          { head: 'Platform', cell: (c) => c.platform_id },
          { head: 'Signs in by', cell: (c) => words(c.auth_method) },
          { head: 'Account', cell: (c) => c.tenant?.label ?? '–' },
          { head: 'Status', cell: (c) => <Status status={c.status} /> },
          { head: 'Last worked', cell: (c) => <Time at={c.last_verified} ago /> },
        ]}
      />
    </>
  );
}

/** The credential fields of a platform, by how one signs in. */
function useMethods(platform: string | undefined) {
  return useQuery({
    queryKey: ['methods', platform],
    enabled: platform !== undefined,
    queryFn: async ({ signal }) => {
      const services = await flowlane.catalog.listPlatformServices({ path: { platform_id: platform! }, query: { limit: 200 }, signal });
      return services.items.flatMap((s) => s.auth_methods);
    },
  });
}

/** A field of the catalog as one of the form: what a secret holds is not shown while it is typed. */
const fieldOf = (f: CredentialField): Field => ({
  name: f.name, label: f.label || f.name, kind: f.secret ? 'secret' : 'text', required: f.required,
});

/** Leaves out what was left empty. */
const filled = (values: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(values).filter(([, v]) => v !== null && v !== ''));

function Make({ close }: { close: () => void }) {
  const platforms = useQuery({ queryKey: ['platforms'], queryFn: ({ signal }) => flowlane.catalog.listPlatforms({ query: { limit: 200 }, signal }) });
  const [platform, setPlatform] = useState<string>();
  const [chosen, setChosen] = useState(0);
  const methods = useMethods(platform);
  const method = methods.data?.[chosen];
  const fields: Field[] = method ? [
    { name: 'name', label: 'Name', required: true }, ...method.credential_fields.map((f) => ({ ...fieldOf(f), name: `credentials.${f.name}` })),
    ...(method.auth_method === 'oauth2' ? [{ name: 'token_url', label: 'Address of the token', hint: 'empty for that of the catalog' }] : []),
  ] : [];
  const bodyOf = (values: Record<string, unknown>): CredentialCreate => {
    const { name, token_url: token, ...rest } = filled(values);
    const credentials = Object.fromEntries(Object.entries(rest).map(([key, v]) => [key.replace('credentials.', ''), v]));
    return {
      name: String(name), platform_id: platform!, auth_method: method!.auth_method, grant_type: method!.grant_type, credentials,
      ...(token ? { token_url: String(token) } : {}),
    };
  };
  return (
    <Form
      key={`${platform} ${chosen}`} title="New credential" action="Make it" fields={fields} onClose={close}
      onSend={(values) => flowlane.credentials.create({ body: bodyOf(values) })}
    >
      <label>
        Platform
        <select required value={platform ?? ''} onChange={(e) => { setPlatform(e.target.value); setChosen(0); }}>
          <option value="">choose one</option>
          {platforms.data?.items.map((p) => <option key={p.id} value={p.id}>{p.name}</option>)}
        </select>
      </label>
      {methods.data && methods.data.length > 1 && (
        <label>
          Signs in by
          <select value={chosen} onChange={(e) => setChosen(Number(e.target.value))}>
            {methods.data.map((m, i) => <option key={i} value={i}>{words(m.auth_method)}{m.grant_type ? `, ${words(m.grant_type)}` : ''}</option>)}
          </select>
        </label>
      )}
      {methods.data?.length === 0 && <p className="note">This platform is called without a credential.</p>}
      {methods.error && <Failure error={methods.error} />}
    </Form>
  );
}

/** One credential: whether it works, where it was used last, and how to replace what it holds. */
export function CredentialPage() {
  const { credentialId } = useParams({ from: '/frame/credentials/$credentialId' });
  const navigate = useNavigate();
  const path = { credential_id: credentialId };
  const [result, setResult] = useState<ConnectionTest>();
  const read = useLive(['credential', credentialId], (signal) => flowlane.credentials.get({ path, signal }));
  const c = read.data;
  if (!c) return read.error ? <Failure error={read.error} retry={() => void read.refetch()} /> : <Loading />;
  const remove = async () => {
    await flowlane.credentials.delete({ path });
    await navigate({ to: '/credentials' });
  };
  return (
    <>
      <Head title={c.name} back={{ to: '/credentials', label: 'Credentials' }}>
        <Act label="Test" run={async () => setResult(await flowlane.credentials.test({ path }))} />
        <Act label="Rotate" ask={(close) => <Rotate credential={c} close={close} />} />
        <Act
          label="Delete"
          ask={(close) => (
            <Confirm title="Delete this credential" action="Delete it" onGo={remove} onClose={close}>
              <p>Flows that sign in by it fail from then on. The provider still takes it: end it there, too.</p>
            </Confirm>
          )}
        />
      </Head>
      {result && (
        <div className={result.success ? 'note' : 'note failure'} role="status">
          {result.success ? `It works; the provider answered in ${result.latency_ms} ms.` : `It does not work: ${words(result.error ?? '').toLowerCase()}.`}{' '}
          {result.details}
        </div>
      )}
      <p className="lead"><Status status={c.status} /> <Id id={c.id} /></p>
      <Facts
        facts={[
          ['Platform', c.platform_id], ['Signs in by', words(c.auth_method)],
          ['Account', c.tenancy_id
            ? <Link to="/accounts/$platformId/$tenancyId" params={{ platformId: c.platform_id, tenancyId: c.tenancy_id }}>{c.tenant?.label ?? 'the account'}</Link>
            : 'not known before it is tested'],
          ['Last worked', <Time at={c.last_verified} />], ['Made', <Time at={c.created_at} />],
          ...(c.scopes.length > 0 ? [['Scopes', c.scopes.join(' ')] as [string, string]] : []),
        ]}
      />
      <section>
        <h2>What uses it</h2>
        {Object.keys(c.telemetry).length === 0 ? <Empty>Nothing has used it yet.</Empty> : (
          <Table
            rows={Object.entries(c.telemetry)} row={([name]) => name}
            columns={[
              { head: 'For', cell: ([name]) => words(name) },
              { head: 'Last used', cell: ([, use]) => <Time at={use.last_used_at} /> },
              { head: 'Last worked', cell: ([, use]) => <Time at={use.last_succeeded_at} /> },
              { head: 'Last failed', cell: ([, use]) => <><Time at={use.last_failed_at} /> {use.last_failure_class && words(use.last_failure_class).toLowerCase()}</> },
            ]}
          />
        )}
      </section>
    </>
  );
}

/** Replaces what a credential holds, once the provider has taken the new one. */
function Rotate({ credential: c, close }: { credential: Credential; close: () => void }) {
  const methods = useMethods(c.platform_id);
  const method = methods.data?.find((m) => m.auth_method === c.auth_method && m.grant_type === c.grant_type)
    ?? methods.data?.find((m) => m.auth_method === c.auth_method);
  const rotate = (values: Record<string, unknown>) => {
    const body: CredentialUpdate = {
      name: c.name, platform_id: c.platform_id, auth_method: c.auth_method, grant_type: c.grant_type, token_url: c.token_url, authorize_url: c.authorize_url,
      scopes: c.scopes, audience: c.audience, api_key_placement: c.api_key_placement, aws_region: c.aws_region, aws_service: c.aws_service,
      aws_default_bucket: c.aws_default_bucket, aws_endpoint_url: c.aws_endpoint_url, allowed_origins: c.allowed_origins, status: c.status,
      credentials: filled(values),
    };
    return flowlane.credentials.replace({ path: { credential_id: c.id }, query: { verify: true }, body });
  };
  return (
    <Form key={String(method !== undefined)} title="Rotate the credential" action="Test and replace" fields={(method?.credential_fields ?? []).map(fieldOf)} onSend={rotate} onClose={close}>
      <p>The new one is tried first, and replaces the one of before only when the provider takes it.</p>
    </Form>
  );
}
