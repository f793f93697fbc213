import { useState } from 'react';

import { flowlane, type BucketHeadroom } from '../api/client';
import { useLive } from '../api/live';
import { count, percent } from '../lib/format';
import { Empty, Failure, Loading } from '../ui/parts';
import { Plot } from '../ui/plot';

/** The windows that are kept as a history, with how many of them are shown. */
const windows = [{ seconds: 86_400, name: 'days', shown: 30 }, { seconds: 3600, name: 'hours', shown: 168 }, { seconds: 60, name: 'minutes', shown: 180 }] as const;

interface Props {
  path: { platform: string; tenancy_id: string };
  buckets: Record<string, BucketHeadroom>;
}

/** The budget of which the largest share of a day is spent; there is none without a budget. */
function busiest(buckets: Record<string, BucketHeadroom>): string | undefined {
  const spent = (b: BucketHeadroom) => Math.max(0, ...Object.values(b.windows).map((w) => w.used / Math.max(1, w.cap)));
  return Object.keys(buckets).sort((a, b) => spent(buckets[b]!) - spent(buckets[a]!))[0];
}

/** What was spent of a budget in its last windows, against what might have been, and what the provider counted. */
export function Usage({ path, buckets }: Props) {
  const [chosen, setChosen] = useState<{ bucket?: string; window?: number }>({});
  const bucket = chosen.bucket ?? busiest(buckets);
  const has = windows.filter((w) => bucket !== undefined && buckets[bucket]?.windows[String(w.seconds)]);
  const window = has.find((w) => w.seconds === chosen.window) ?? has[0];
  const history = useLive(['usage-history', path.tenancy_id, bucket, window?.seconds], (signal) =>
    flowlane.dispatch.listUsageHistory({ path, query: { bucket, window: window?.seconds, limit: window?.shown }, signal }));
  if (bucket === undefined || !window) return null;
  const rows = [...(history.data?.items ?? [])].sort((a, b) => a.window_start.localeCompare(b.window_start));
  const used = rows.reduce((sum, r) => sum + r.used, 0);
  const full = rows.filter((r) => r.used >= r.cap).length;
  return (
    <section>
      <h2>What was spent</h2>
      <div className="filters">
        <label className="inline">
          Budget{' '}
          <select value={bucket} onChange={(e) => setChosen({ ...chosen, bucket: e.target.value })}>
            {Object.entries(buckets).map(([name, b]) => <option key={name} value={name}>{b.label}</option>)}
          </select>
        </label>
        <label className="inline">
          By{' '}
          <select value={window.seconds} onChange={(e) => setChosen({ ...chosen, window: Number(e.target.value) })}>
            {has.map((w) => <option key={w.seconds} value={w.seconds}>{w.name}</option>)}
          </select>
        </label>
      </div>
      {history.error && <Failure error={history.error} retry={() => void history.refetch()} />}
      {history.isPending && <Loading />}
      {history.data && rows.length === 0 && <Empty>Nothing was spent of it yet.</Empty>}
      {rows.length > 0 && (
        <>
          <Plot
            label={`The last ${count(rows.length)} ${window.name} in which something was spent: ${count(used)} calls, ${count(full)} times all there was`}
            columns={rows.map((r) => ({ at: r.window_start, parts: [{ kind: 'running', value: r.used }], cap: r.cap, mark: r.observed ?? undefined }))}
            seconds={window.seconds} heads={{ at: 'From', parts: ['Spent'], cap: 'Allowed', mark: 'The provider counted' }}
          />
          <p className="faint">
            {count(used)} calls; the dashed line is what was allowed{full > 0 && <>, and was all spent {count(full)} {full === 1 ? 'time' : 'times'} ({percent(full, rows.length)})</>}.
            {rows.some((r) => r.observed !== null) && ' The marks are what the provider counted.'}
          </p>
        </>
      )}
    </section>
  );
}
