import { useNavigate, useSearch } from '@tanstack/react-router';

import { flowlane, type UsageItem } from '../api/client';
import { useLive } from '../api/live';
import { count } from '../lib/format';
import { Table } from '../ui/listing';
import { Empty, Facts, Failure, Head, Loading } from '../ui/parts';

const groups = { day: 'Day', definition: 'Flow', credential: 'Credential', action: 'Action' } as const;
const spans = { 7: '7 days', 30: '30 days', 90: '90 days' } as const;

/** What the organization used, by day, flow, credential or action. */
export function Usage() {
  const { by = 'day', days = 30 } = useSearch({ from: '/frame/usage' });
  const navigate = useNavigate();
  const go = (change: { by?: typeof by; days?: number }) => void navigate({ to: '/usage', search: { by, days, ...change } });
  const usage = useLive(['usage', by, days], (signal) => {
    const from = new Date(Date.now() - (days - 1) * 86_400_000).toISOString().slice(0, 10);
    return flowlane.usage.get({ query: { group_by: by, from }, signal });
  });
  const u = usage.data;
  const most = Math.max(1, ...(u?.items.map((i) => i.records) ?? []));
  return (
    <>
      <Head title="Usage" />
      <div className="filters">
        <label className="inline">By <select value={by} onChange={(e) => go({ by: e.target.value as typeof by })}>
          {Object.entries(groups).map(([value, name]) => <option key={value} value={value}>{name.toLowerCase()}</option>)}
        </select></label>
        <label className="inline">In the last <select value={days} onChange={(e) => go({ days: Number(e.target.value) })}>
          {Object.entries(spans).map(([value, name]) => <option key={value} value={value}>{name}</option>)}
        </select></label>
      </div>
      {usage.error && <Failure error={usage.error} retry={() => void usage.refetch()} />}
      {usage.isPending && <Loading />}
      {u && <Facts facts={[['Batches', count(u.totals.batches)], ['Records', count(u.totals.records)], ['Calls', count(u.totals.calls)], ['Jobs', count(u.totals.jobs)]]} />}
      {u?.items.length === 0 && <Empty>Nothing was used in these days.</Empty>}
      {u && u.items.length > 0 && (
        <Table<UsageItem>
          rows={u.items} row={(i) => String(i.key)}
          columns={[
            { head: groups[by], cell: (i) => i.name ?? i.key ?? 'none' },
            { head: 'Share', cell: (i) => <Share part={i.records / most} /> },
            { head: 'Records', cell: (i) => count(i.records), number: true },
            { head: 'Calls', cell: (i) => count(i.calls), number: true },
            { head: 'Batches', cell: (i) => count(i.batches), number: true },
          ]}
        />
      )}
      {u && u.omitted > 0 && <p className="faint">{count(u.omitted)} more are not shown.</p>}
    </>
  );
}

function Share({ part }: { part: number }) {
  return <svg className="bar share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect className="fill-running" width={100 * part} height="4" /></svg>;
}
