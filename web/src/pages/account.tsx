import { useParams } from '@tanstack/react-router';

import { flowlane, type BucketHeadroom, type BucketQueue } from '../api/client';
import { useChange, useLive } from '../api/live';
import { count, span, words } from '../lib/format';
import { Gauge } from '../ui/bar';
import { Button, Failure, Head, Id, Loading, Time } from '../ui/parts';
import { WhatIf } from './account-estimate';
import { Holds } from './account-holds';
import { Lanes } from './account-lanes';
import { Usage } from './account-usage';

/** Windows are keyed by their seconds. */
const lengths: Record<string, string> = { 60: 'a minute', 3600: 'an hour', 86400: 'a day' };

/** What is left of an account's budgets, who waits for it, and when that is done. */
export function AccountPage() {
  const { platformId: platform, tenancyId } = useParams({ from: '/frame/accounts/$platformId/$tenancyId' });
  const path = { platform, tenancy_id: tenancyId };
  const domain = useLive(['domain', tenancyId], (signal) => flowlane.dispatch.getDomain({ path, signal }));
  const headroom = useLive(['headroom', tenancyId], (signal) => flowlane.dispatch.getHeadroom({ path, signal }), true);
  const queue = useLive(['queue', tenancyId], (signal) => flowlane.dispatch.getQueue({ path, signal }), true);
  const refresh = useChange(() => flowlane.dispatch.refreshLimits({ path }));
  const error = domain.error ?? headroom.error ?? queue.error;
  if (error && !headroom.data) return <Failure error={error} />;
  if (!headroom.data || !queue.data) return <Loading />;
  // The answer has no order of its own.
  const buckets = Object.fromEntries(Object.entries(headroom.data.buckets).sort(([, a], [, b]) => a.label.localeCompare(b.label)));
  return (
    <>
      <Head title={domain.data?.label ?? 'Account'} back={{ to: '/accounts', label: 'Accounts' }}>
        <Button disabled={refresh.isPending} onClick={() => refresh.mutate(undefined)}>Read the limits again</Button>
      </Head>
      {error && <Failure error={error} />}
      {refresh.error && <Failure error={refresh.error} />}
      <p className="lead">
        {platform} <Id id={tenancyId} /> <span className="faint">limits as of <Time at={headroom.data.as_of} /></span>
      </p>
      {Object.entries(buckets).map(([name, bucket]) => (
        <Bucket key={name} bucket={bucket} queue={queue.data.buckets[name]} />
      ))}
      <Usage path={path} buckets={buckets} />
      <Lanes path={path} waiting={queue.data.lanes} />
      <WhatIf path={path} buckets={buckets} />
      <Holds path={path} />
    </>
  );
}

function Bucket({ bucket, queue }: { bucket: BucketHeadroom; queue: BucketQueue | undefined }) {
  const windows = [
    ...Object.entries(bucket.windows).map(([name, w]) => ({ ...w, name: lengths[name] ?? span(Number(name)) })),
    ...bucket.further_windows.map((w) => ({ ...w, name: span(w.seconds) })),
  ];
  return (
    <section>
      <h2>{bucket.label}</h2>
      <div className="gauges">
        {windows.map((w) => (
          <div key={w.name}>
            <Gauge used={w.used} cap={w.cap} label={w.name} />
            <p><strong>{count(w.remaining)}</strong> of {count(w.cap)} left in {w.name}; anew <Time at={w.resets_at} /></p>
          </div>
        ))}
      </div>
      {bucket.next_allowed_at && <p className="note attention">Nothing goes out before <Time at={bucket.next_allowed_at} />.</p>}
      {queue && <Outlook queue={queue} />}
    </section>
  );
}

/** When what waits is done, or why nobody can say. */
function Outlook({ queue }: { queue: BucketQueue }) {
  const { completion: c } = queue;
  if (queue.queued_records + queue.paused_records === 0) return <p className="faint">Nobody waits for it.</p>;
  return (
    <>
      <p>
        <strong>{count(queue.queued_records)}</strong> records wait in {count(queue.estimated_calls)} calls
        {queue.paused_records > 0 && <>, {count(queue.paused_records)} more are paused</>}.{' '}
        {c.eta_at ? <>Done by <Time at={c.eta_at} /> (in {span(c.eta_seconds ?? 0)}), bound by the {words(c.binding_source)}.</> : <>When they are done nobody can say: {words(c.unknown_reason ?? c.binding_source)}.</>}
      </p>
      {c.hold_causes.length > 0 && <p className="note attention">Paused: {c.hold_causes.map(words).join(', ')}</p>}
      {c.caveats.length > 0 && <p className="faint">{c.caveats.map(words).join(' · ')}</p>}
    </>
  );
}
