import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type ConnectionTest, type Credential, type CredentialLimits, type CredentialUpdate, type Definition } from '../api/client';
import { all, useLive } from '../api/live';
import { count, span, words } from '../lib/format';
import { saidOf, secretOf, secretsOf, settingsOf } from '../lib/signin';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Table } from '../ui/listing';
import { Empty, Facts, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';
import { Authorize } from './credential-authorize';
import { Tested, useWays } from './credentials';

/** One credential: whether it works, who uses it, and how to replace what it holds. */
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
        {c.grant_type === 'authorization_code' && <Act label="Authorize" strong={c.authorization?.state !== 'authorized'} ask={(close) => <Authorize credential={c} close={close} />} />}
        <Act label="Test" run={async () => setResult(await flowlane.credentials.test({ path }))} />
        <Act label="Rotate" ask={(close) => <Rotate credential={c} close={close} />} />
        <Act label="Rename" ask={(close) => <Rename credential={c} close={close} />} />
        <Act label="Limits" ask={(close) => <Limits credential={c} close={close} />} />
        <Act
          label="Delete"
          ask={(close) => (
            <Confirm title="Delete this credential" action="Delete it" onGo={remove} onClose={close}>
              <p>Flows that sign in by it fail from then on. The provider still takes it: end it there, too.</p>
            </Confirm>
          )}
        />
      </Head>
      {result && <Tested result={result} />}
      <p className="lead"><Status status={c.status} /> <Id id={c.id} /></p>
      <Facts facts={factsOf(c)} />
      <Uses credential={c} />
      <Spend credential={c} />
    </>
  );
}

function factsOf(c: Credential): Array<[string, React.ReactNode]> {
  const p = c.api_key_placement;
  const place = p?.header_name ? `header ${p.header_name}${p.scheme ? `, behind ${p.scheme}` : ''}` : p?.query_param ? `query ${p.query_param}` : p?.cookie_name ? `cookie ${p.cookie_name}` : null;
  const facts: Array<[string, React.ReactNode] | false> = [
    ['Platform', c.platform_id], ['Signs in by', `${words(c.auth_method)}${c.grant_type ? `, ${words(c.grant_type)}` : ''}`],
    ['Account', c.tenancy_id
      ? <Link to="/accounts/$platformId/$tenancyId" params={{ platformId: c.platform_id, tenancyId: c.tenancy_id }}>{c.tenant?.label ?? 'the account'}</Link>
      : 'not known before it is tested'],
    ['Last worked', <Time at={c.last_verified} />], ['Made', <Time at={c.created_at} />],
    c.authorization !== null && ['Tokens', <>{words(c.authorization.state)}{c.authorization.expires_at && <>, until <Time at={c.authorization.expires_at} /></>}{c.authorization.failure && <p className="bad">{c.authorization.failure}</p>}</>],
    place !== null && ['The key goes into', place],
    c.token_url !== null && ['Address of the token', c.token_url], c.authorize_url !== null && ['Where a person agrees', c.authorize_url],
    c.scopes.length > 0 && ['Scopes', c.scopes.join(' ')], c.audience !== null && ['Audience', c.audience],
    c.aws_region !== null && ['Region', c.aws_region], c.aws_service !== null && ['Service', c.aws_service],
    c.aws_default_bucket !== null && ['Bucket', c.aws_default_bucket], c.aws_endpoint_url !== null && ['Provider', c.aws_endpoint_url],
    ['Sent to', c.allowed_origins.join(', ') || 'nobody'], ['Limits', limitsOf(c.limits)],
  ];
  return facts.filter((f) => f !== false);
}

function limitsOf(limits: CredentialLimits | null): string {
  if (!limits) return 'none of your own';
  return [
    ...limits.windows.map((w) => `${count(w.calls)} calls in ${w.kind === 'rolling' ? 'any ' : ''}${span(w.seconds)}`),
    ...(limits.max_in_flight ? [`${count(limits.max_in_flight)} at once`] : []),
  ].join(', ');
}

const names = (flow: Definition, id: string): string[] => flow.steps.flatMap((s) => s.tasks.filter((t) => t.credential_id === id).map((t) => `${s.id} · ${t.id}`));

/** The flows whose newest version names it, and the services that it was used for. */
function Uses({ credential: c }: { credential: Credential }) {
  const flows = useQuery({
    queryKey: ['uses of a credential', c.id], staleTime: 15_000,
    queryFn: async ({ signal }) => {
      const every = await all((page) => flowlane.definitions.list({ query: { limit: 200, ...page }, signal }));
      return every.map((flow) => ({ flow, tasks: names(flow, c.id) })).filter((u) => u.tasks.length > 0);
    },
  });
  return (
    <section>
      <h2>What uses it</h2>
      {flows.error && <Failure error={flows.error} retry={() => void flows.refetch()} />}
      {flows.isPending && <Loading />}
      {flows.data?.length === 0 && <Empty>No flow names it.</Empty>}
      {flows.data && flows.data.length > 0 && (
        <Table
          rows={flows.data} row={(u) => u.flow.id}
          columns={[
            { head: 'Flow', cell: (u) => <Link to="/flows/$flowId" params={{ flowId: u.flow.id }}>{u.flow.name}</Link> },
            { head: 'Status', cell: (u) => u.flow.status },
            { head: 'Tasks', cell: (u) => u.tasks.join(', ') },
          ]}
        />
      )}
      {Object.keys(c.telemetry).length > 0 && (
        <Table
          rows={Object.entries(c.telemetry)} row={([name]) => name}
          columns={[
            { head: 'Service', cell: ([name]) => name },
            { head: 'Last used', cell: ([, use]) => <Time at={use.last_used_at} /> },
            { head: 'Last worked', cell: ([, use]) => <Time at={use.last_succeeded_at} /> },
            { head: 'Last failed', cell: ([, use]) => <><Time at={use.last_failed_at} /> {use.last_failure_class && words(use.last_failure_class).toLowerCase()}</> },
          ]}
        />
      )}
    </section>
  );
}

/** What was done with it in the last 30 days. */
function Spend({ credential: c }: { credential: Credential }) {
  const from = new Date(Date.now() - 29 * 86_400_000).toISOString().slice(0, 10);
  const usage = useLive(['usage', 'credential', from], (signal) => flowlane.usage.get({ query: { group_by: 'credential', from }, signal }));
  const item = usage.data?.items.find((i) => i.key === c.id);
  return (
    <section>
      <h2>What it spent in 30 days</h2>
      {usage.error && <Failure error={usage.error} retry={() => void usage.refetch()} />}
      {usage.data && !item && <Empty>{usage.data.omitted > 0 ? 'Less than those that the usage shows.' : 'Nothing was called with it.'}</Empty>}
      {item && <Facts facts={[['Calls', count(item.calls)], ['Records', count(item.records)], ['Batches', count(item.batches)]]} />}
      <Link to="/usage" search={{ by: 'credential', days: 30 }}>Usage by credential</Link>
    </section>
  );
}

/** Everything of a credential that a replacement says again. */
const kept = (c: Credential): CredentialUpdate => ({
  name: c.name, platform_id: c.platform_id, auth_method: c.auth_method, grant_type: c.grant_type, token_url: c.token_url, authorize_url: c.authorize_url,
  scopes: c.scopes, audience: c.audience, api_key_placement: c.api_key_placement, aws_region: c.aws_region, aws_service: c.aws_service,
  aws_default_bucket: c.aws_default_bucket, aws_endpoint_url: c.aws_endpoint_url, allowed_origins: c.allowed_origins, status: c.status,
});

/** The settings of a way, beginning with those that a credential has. */
function settingsNow(fields: Field[], c: Credential): Field[] {
  const p = c.api_key_placement;
  const place = p?.header_name ? 'header_name' : p?.query_param ? 'query_param' : p?.cookie_name ? 'cookie_name' : '';
  const now: Record<string, unknown> = { ...c, place, place_name: place && p?.[place], scheme: p?.scheme };
  return fields.map((f) => ({ ...f, value: now[f.name] ?? f.value, more: true }));
}

/** Replaces what a credential holds, once the provider has taken the new one. */
function Rotate({ credential: c, close }: { credential: Credential; close: () => void }) {
  const { data, error } = useWays(c.platform_id);
  const of = data?.ways.filter((w) => w.method === c.auth_method);
  const way = of?.find((w) => w.grant === c.grant_type) ?? of?.[0];
  const fields = way ? [...secretsOf(way), ...(data!.any ? settingsNow(settingsOf(way, true), c) : [])] : [];
  const rotate = (values: Record<string, unknown>) => flowlane.credentials.replace({
    path: { credential_id: c.id }, query: { verify: way?.grant !== 'authorization_code' }, body: {
      ...kept(c), ...saidOf(values), credentials: secretOf(values),
      status: c.status === 'expired' ? 'active' : c.status, // what has expired is what is replaced
    },
  });
  return (
    <Form key={String(way !== undefined)} title="Rotate the credential" action="Test and replace" fields={fields} onSend={rotate} onClose={close}>
      <p>The new one is tried first, and replaces the one of before only when the provider takes it. Flows use it within five minutes.</p>
      {error && <Failure error={error} />}
    </Form>
  );
}

function Rename({ credential: c, close }: { credential: Credential; close: () => void }) {
  return (
    <Form
      title="Rename the credential" action="Save" fields={[{ name: 'name', label: 'Name', value: c.name, required: true }]} onClose={close}
      onSend={({ name }) => flowlane.credentials.replace({ path: { credential_id: c.id }, body: { ...kept(c), name: String(name) } })}
    />
  );
}

/** Bounds how many calls go out with a credential. */
function Limits({ credential: c, close }: { credential: Credential; close: () => void }) {
  const window = c.limits?.windows[0];
  const fields: Field[] = [
    { name: 'calls', label: 'At most so many calls', kind: 'number', value: window?.calls, hint: 'empty for no such limit' },
    { name: 'seconds', label: 'in any so many seconds', kind: 'number', value: window?.seconds ?? 60, required: true },
    { name: 'max_in_flight', label: 'At once', kind: 'number', value: c.limits?.max_in_flight, hint: 'empty for no such limit' },
  ];
  return (
    <Form
      title="Limit the calls" action="Set" fields={fields} onClose={close}
      onSend={({ calls, seconds, max_in_flight: most }) => flowlane.credentials.setLimits({
        path: { credential_id: c.id },
        body: { windows: [...(calls === null ? [] : [{ calls: Number(calls), seconds: Number(seconds), kind: 'rolling' as const }]), ...(c.limits?.windows.slice(1) ?? [])], max_in_flight: most as number | null },
      })}
    >
      <p>For a platform without budgets of its own: they hold for all flows and lanes together, at once.</p>
    </Form>
  );
}
