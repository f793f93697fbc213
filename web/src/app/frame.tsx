import { useQuery } from '@tanstack/react-query';
import { Link, Outlet, useNavigate } from '@tanstack/react-router';
import { lazy, Suspense, useEffect, useState } from 'react';

import { flowlane, signedOut, type Me } from '../api/client';
import { useLive } from '../api/live';
import { useBulk } from '../ui/bulk';
import { Button, Failure, Time } from '../ui/parts';
import { setZone, useZone } from '../ui/zone';
import { useKeys } from './keys';
import { groups } from './places';

const Palette = lazy(() => import('./palette').then((m) => ({ default: m.Palette })));
const SignInAgain = lazy(() => import('./again').then((m) => ({ default: m.SignInAgain })));
const BulkDrawer = lazy(() => import('../pages/bulk').then((m) => ({ default: m.BulkDrawer })));

/** Who is signed in; undefined until that is known. */
export function useMe(): Me | undefined {
  return useQuery({ queryKey: ['me'], queryFn: () => flowlane.account.getMe(), staleTime: 60_000 }).data;
}

/** What stands around every screen. */
export function Frame() {
  const me = useQuery({ queryKey: ['me'], queryFn: () => flowlane.account.getMe(), staleTime: 60_000 });
  const navigate = useNavigate();
  const [palette, setPalette] = useState(false);
  const bulk = useBulk();
  const ended = signedOut(me.error);
  const gone = ended && !me.data;
  useEffect(() => {
    if (gone) void navigate({ to: '/login' });
  }, [gone, navigate]);
  useKeys(() => setPalette(true));
  if (me.isPending || gone) return null;
  if (me.error && !me.data) return <main className="page narrow"><Failure error={me.error} retry={() => void me.refetch()} /></main>;
  return (
    <div className="frame">
      <a className="skip" href="#main">Skip to the page</a>
      <TopBar me={me.data} find={() => setPalette(true)} />
      <nav aria-label="Places">
        {groups.map(({ name, places }) => (
          <div key={name} role="group" aria-label={name}>
            <span className="group-name" aria-hidden="true">{name}</span>
            {places.map(({ to, label }) => <Link key={to} to={to} activeOptions={{ exact: to === '/' }}>{label}</Link>)}
          </div>
        ))}
        <a href="/docs/">Documentation</a>
        <a href="/docs/reference">API</a>
      </nav>
      <main id="main" className="page" tabIndex={-1}>
        <GlobalPause />
        <Outlet />
      </main>
      <Suspense>
        {palette && <Palette close={() => setPalette(false)} />}
        {bulk && <BulkDrawer bulk={bulk} />}
        {ended && <SignInAgain before={me.data} />}
      </Suspense>
    </div>
  );
}

function TopBar({ me, find }: { me: Me; find: () => void }) {
  const zone = useZone();
  const leave = () => {
    sessionStorage.clear(); // drafts are of who signs out
    void flowlane.account.endSession().finally(() => location.assign('/console/login'));
  };
  return (
    <header className="top">
      <Link to="/" className="brand">Flowlane</Link>
      <span className="organization">{me.organization.name}</span>
      <span className="spring" />
      {me.role === 'member' && <span className="tag" title="A member reads; an admin changes things">member</span>}
      <Button quiet title="Go to a screen, a flow or a batch" onClick={find}>Go to <kbd>Ctrl K</kbd></Button>
      <Button quiet title="Show times in the other zone" onClick={() => setZone(zone === 'utc' ? 'local' : 'utc')}>
        {zone === 'utc' ? 'UTC' : 'Local time'}
      </Button>
      <Button quiet onClick={leave}>Sign out</Button>
    </header>
  );
}

/** Says on every screen that the whole organization is paused. */
function GlobalPause() {
  const pauses = useLive(['pauses', 'organization'], (signal) => flowlane.dispatch.listPauses({ query: { scope: 'global', limit: 1 }, signal }));
  const pause = pauses.data?.items[0];
  if (!pause) return null;
  return (
    <div className="note failure" role="status">
      Nothing is sent: the organization is paused{pause.reason ? ` (${pause.reason})` : ''}
      {pause.expires_at ? <> until <Time at={pause.expires_at} /></> : ', with no end'}.
    </div>
  );
}
