import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type ConnectionTest, type Credential } from '../api/client';
import { words } from '../lib/format';
import { anyAddress, bodyOf, secretsOf, settingsOf, wayName, waysOf } from '../lib/signin';
import { Act, Form, type Field } from '../ui/form';
import { Listing } from '../ui/listing';
import { Failure, Head, Status, Time } from '../ui/parts';

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
          { head: 'Status', cell: (c) => <><Status status={c.status} /> <Tokens credential={c} /></> },
          { head: 'Last worked', cell: (c) => <Time at={c.last_verified} ago /> },
        ]}
      />
    </>
  );
}

/** What is wrong with the tokens of a credential, where something is. */
function Tokens({ credential: c }: { credential: Credential }) {
  const state = c.authorization?.state;
  if (!state || state === 'authorized') return null;
  return <span className="tag">{state === 'pending' ? 'no tokens yet' : `tokens: ${state}`}</span>;
}

/** The ways to sign in to a platform, and whether its credentials say where their secrets may go. */
export function useWays(platform: string | undefined) {
  return useQuery({
    queryKey: ['ways', platform],
    enabled: platform !== undefined,
    queryFn: async ({ signal }) => {
      const { items } = await flowlane.catalog.listPlatformServices({ path: { platform_id: platform! }, query: { limit: 200 }, signal });
      return { ways: waysOf(items), any: anyAddress(items) };
    },
  });
}

/** How a test went. */
export function Tested({ result }: { result: ConnectionTest }) {
  return (
    <div className={result.success ? 'note' : 'note failure'} role="status">
      {result.success ? `It works; the provider answered in ${result.latency_ms} ms.`
        : result.error === 'UNKNOWN' ? 'Nobody can say whether it works.' : `It does not work: ${words(result.error ?? '').toLowerCase()}.`}{' '}
      {result.details}
    </div>
  );
}

function Make({ close }: { close: () => void }) {
  const navigate = useNavigate();
  const platforms = useQuery({ queryKey: ['platforms'], queryFn: ({ signal }) => flowlane.catalog.listPlatforms({ query: { limit: 200 }, signal }) });
  const [platform, setPlatform] = useState<string>();
  const [chosen, setChosen] = useState(0);
  const { data, error } = useWays(platform);
  const way = data?.ways[chosen];
  const fields: Field[] = way ? [{ name: 'name', label: 'Name', required: true }, ...secretsOf(way), ...settingsOf(way, data.any)] : [];
  const attempt = {
    label: 'Test', run: async (values: Record<string, unknown>) => <Tested result={await flowlane.credentials.testNew({ body: bodyOf(platform!, way!, values) })} />,
  };
  const make = async (values: Record<string, unknown>) => {
    const made = await flowlane.credentials.create({ body: bodyOf(platform!, way!, values) });
    await navigate({ to: '/credentials/$credentialId', params: { credentialId: made.id } });
  };
  return (
    <Form
      key={`${platform} ${chosen}`} title="New credential" action="Make it" fields={fields} onSend={make} onClose={close}
      attempt={way && way.grant !== 'authorization_code' ? attempt : undefined}
    >
      <label>
        Platform
        <select required value={platform ?? ''} onChange={(e) => { setPlatform(e.target.value); setChosen(0); }}>
          <option value="">choose one</option>
          {platforms.data?.items.map((p) => <option key={p.id} value={p.id}>{p.name}</option>)}
        </select>
      </label>
      {data && data.ways.length > 1 && (
        <label>
          Signs in by
          <select value={chosen} onChange={(e) => setChosen(Number(e.target.value))}>
            {data.ways.map((w, i) => <option key={wayName(w)} value={i}>{wayName(w)}</option>)}
          </select>
        </label>
      )}
      {data?.ways.length === 0 && <p className="note">This platform is called without a credential.</p>}
      {way?.grant === 'authorization_code' && <p className="note">A person has to agree at the provider once it is made: its page says where.</p>}
      {error && <Failure error={error} />}
    </Form>
  );
}
