import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useState } from 'react';

import { flowlane, signIn, type Me } from '../api/client';
import { Button, Failure } from '../ui/parts';

/** Links are followed once, also where the page is drawn twice. */
const followed = new Set<string>();

/** Why the identity provider sent somebody back without signing in, and what to do about it. */
const reasons: Record<string, string> = {
  cancelled: 'The identity provider did not sign you in. Try again, or ask who looks after it.',
  expired: 'That sign-in was begun too long ago, or in another browser. Sign in again here.',
  unavailable: 'The identity provider did not answer as it should. Try again in a moment; the log of the server says more.',
  unknown: 'You are signed in there, but to no organization of this server. Ask an admin whether your organization and you are set up.',
};

/** Whether people can sign in at an identity provider. Where none is set up, a page of ours answers. */
async function hasProvider({ signal }: { signal: AbortSignal }): Promise<boolean> {
  return (await fetch(providerPath, { method: 'HEAD', signal })).status === 204;
}
const providerPath = '/console/sign-in';

/** Signs in by the link that the service printed, or by an API key. */
export function Login() {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const provider = useQuery({ queryKey: ['provider'], queryFn: hasProvider, staleTime: Infinity });
  const failed = reasons[new URLSearchParams(location.search).get('failed') ?? ''];
  const [key, setKey] = useState('');
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [asked, setAsked] = useState<{ link: string; me: Me }>();

  const enter = async (secret: string) => {
    setBusy(true);
    setError(undefined);
    try {
      await signIn(secret);
      queries.clear();
      await navigate({ to: '/', search: {} });
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  };

  useEffect(() => {
    const link = location.hash.slice(1);
    if (!link.startsWith('login_') || followed.has(link)) return;
    followed.add(link);
    history.replaceState(null, '', location.pathname); // so that it stands in no history
    // Whoever is signed in may have got the link from somebody else, whose organization it leads to.
    void flowlane.account.getMe().then((me) => setAsked({ link, me }), () => enter(link));
  });

  return (
    <main className="page narrow login">
      <h1>Flowlane</h1>
      {failed && <p className="note failure" role="alert">{failed}</p>}
      {asked && (
        <div className="note" role="alert">
          <p>
            You are signed in as {asked.me.account.name} of {asked.me.organization.name}. The link signs you in anew, which may be
            to another organization: follow it only if you asked for it.
          </p>
          <p>
            <Button strong onClick={() => void navigate({ to: '/', search: {} })}>Stay signed in</Button>{' '}
            <Button disabled={busy} onClick={() => void enter(asked.link)}>Follow the link</Button>
          </p>
        </div>
      )}
      {provider.data && (
        <p>
          <a className="button strong" href={providerPath}>Sign in with your organization</a>
        </p>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void enter(key.trim());
        }}
      >
        <label htmlFor="key">API key</label>
        <input
          id="key" type="password" autoComplete="off" spellCheck={false} placeholder="flow_…" required value={key}
          onChange={(event) => setKey(event.target.value)}
        />
        <p className="faint">
          The key is sent once and not kept here: the browser gets a session of 12 hours, which ends 2 hours after its last use.
        </p>
        {error != null && <Failure error={error} />}
        <Button type="submit" strong disabled={busy}>{busy ? 'One moment…' : 'Sign in'}</Button>
      </form>
    </main>
  );
}
