import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';

import { flowlane, type Credential } from '../api/client';
import { Ask, Copy, Failure, Loading, Time } from '../ui/parts';

/** Milliseconds between two looks whether somebody has agreed. */
const look = 1000;

/** Sends a person to the page of the issuer, and waits until they have agreed there. */
export function Authorize({ credential, close }: { credential: Credential; close: () => void }) {
  const path = { credential_id: credential.id };
  const consent = useQuery({
    queryKey: ['consent', credential.id], staleTime: Infinity, gcTime: 0, retry: false,
    queryFn: ({ signal }) => flowlane.credentials.authorize({ path, signal }),
  });
  const queries = useQueryClient();
  useEffect(() => () => void queries.invalidateQueries({ queryKey: ['credential', credential.id] }), [queries, credential.id]);
  const before = useRef(credential.authorization);
  const now = useQuery({
    queryKey: ['credential', credential.id, 'authorization'], gcTime: 0,
    queryFn: ({ signal }) => flowlane.credentials.get({ path, signal }),
    refetchInterval: look, refetchIntervalInBackground: true, enabled: consent.data !== undefined,
  });
  const is = now.data?.authorization;
  const done = is?.state === 'authorized' && (before.current?.state !== 'authorized' || before.current.expires_at !== is.expires_at);
  return (
    <Ask title="Authorize the credential" action="Done" onGo={close} onClose={close}>
      {consent.isPending && <Loading />}
      {consent.error && <Failure error={consent.error} />}
      {consent.data && !done && (
        <>
          <p><a className="button strong" href={consent.data.url} target="_blank" rel="noopener noreferrer">Open the page of the provider</a></p>
          <p>Agree there, within ten minutes: by <Time at={consent.data.expires_at} />. The address is good once.</p>
          <p className="faint">The provider must know where it sends you back: <code className="break">{consent.data.redirect_uri}</code> <Copy text={consent.data.redirect_uri}>Copy</Copy></p>
          {is?.failure && <p className="bad">{is.failure}</p>}
        </>
      )}
      <p role="status">{done ? 'The credential is authorized. The other page can be closed.' : consent.data && 'Nobody has agreed yet.'}</p>
    </Ask>
  );
}
