import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';

import { flowlane, signIn, type Me } from '../api/client';
import { Ask } from '../ui/parts';

/** Signs in again over the page that somebody was at, which stays as it is. */
export function SignInAgain({ before }: { before: Me }) {
  const queries = useQueryClient();
  const [key, setKey] = useState('');
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const enter = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await signIn(key.trim());
      const me = await flowlane.account.getMe();
      if (me.organization.id !== before.organization.id) location.assign('/console/'); // nothing of the other organization stays
      else await queries.invalidateQueries();
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Ask title="Sign in again" action="Sign in" busy={busy} error={error} onGo={() => void enter()} onClose={() => location.assign('/console/login')}>
      <p>Your session has ended. The page stays as it is.</p>
      <label>API key<input type="password" autoComplete="off" spellCheck={false} required value={key} onChange={(e) => setKey(e.target.value)} /></label>
    </Ask>
  );
}
