import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { ApiError, flowlane, type Dashboard } from '../api/client';
import { upTo, useLive } from '../api/live';
import { ofAccounts, ofCredentials, ofHolds, ofSchedules, ofUnknown, ofWebhooks, type Attention as Item } from '../lib/attention';
import { Empty, Failure, Loading, Status } from '../ui/parts';

/** How many of a kind are looked at: each is a request. */
const most = 20;
/** How many of a kind are read whose list says enough. */
const listed = 1000;
const day = 86_400_000;
const status = { failed: 'failed', unknown: 'unknown', partial: 'partially_failed', hold: 'paused' } as const;
const word = { failed: 'failing', unknown: 'unknown', partial: 'look', hold: 'paused' } as const;

/** What waits for somebody, each with the screen where something can be done about it. */
export function Attention({ dashboard }: { dashboard: Dashboard }) {
  const unknown = useLive(['jobs', 'unresolved', 'total'], (signal) => flowlane.jobs.list({ query: { status: 'unresolved', limit: 1 }, signal }));
  const rest = useQuery({
    queryKey: ['attention', dashboard.active_hold_count],
    refetchInterval: 60_000, staleTime: 30_000,
    queryFn: ({ signal }) => look(dashboard, signal),
    placeholderData: (before) => before,
  });
  const items = [...ofUnknown(unknown.data?.total ?? 0), ...(rest.data?.items ?? [])];
  return (
    <section>
      <h2>Needs you</h2>
      {unknown.error && <Failure error={unknown.error} retry={() => void unknown.refetch()} />}
      {rest.error && <Failure error={rest.error} retry={() => void rest.refetch()} />}
      {rest.isPending && items.length === 0 && <Loading />}
      {rest.data?.whole && unknown.data && items.length === 0 && <Empty>Nothing waits for anybody.</Empty>}
      {rest.data && !rest.data.whole && (
        <p className="faint">Messages of webhooks, missed slots and accounts were looked at for the newest {most} of each; there are more.</p>
      )}
      {items.length > 0 && (
        <ul className="cards">
          {items.map((i) => (
            <li key={i.id}>
              <Link to={i.to} params={i.params as never} search={i.search as never} className="card">
                <span><Status status={status[i.kind]} word={word[i.kind]} /> <strong>{i.what}</strong> <span className="faint">{i.detail}</span></span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** Reads what may be wrong. What takes a request for each is asked of the newest; whole says whether these are all. */
async function look(dashboard: Dashboard, signal: AbortSignal): Promise<{ items: Item[]; whole: boolean }> {
  const since = new Date(Date.now() - day).toISOString();
  const [schedules, credentials, webhooks] = await Promise.all([
    upTo(listed, (page) => flowlane.schedules.list({ query: { limit: 200, order: 'desc', ...page }, signal })),
    upTo(listed, (page) => flowlane.credentials.list({ query: { limit: 200, ...page }, signal })),
    flowlane.webhooks.list({ query: { limit: most, order: 'desc' }, signal }),
  ]);
  const enabled = schedules.items.filter((s) => s.enabled);
  const [missed, dead, accounts] = await Promise.all([
    counts(enabled.slice(0, most), async (id) => (await flowlane.schedules.listFires({
      path: { schedule_id: id }, query: { status: 'skipped', created_after: since, limit: 1 }, signal,
    })).total),
    counts(webhooks.items.filter((w) => w.enabled), async (id) => (await flowlane.webhooks.listDeliveries({
      path: { webhook_id: id }, query: { status: 'dead', created_after: since, limit: 50 }, signal,
    })).items.length),
    headrooms(credentials.items.map((c) => c.platform_id), signal),
  ]);
  const platforms = new Map(accounts.found.map((a) => [a.tenancy, a.platform]));
  return {
    items: [
      ...ofCredentials(credentials.items), ...ofSchedules(schedules.items, missed), ...ofWebhooks(webhooks.items, dead), ...ofAccounts(accounts.found),
      ...ofHolds(dashboard.active_holds, platforms),
    ],
    whole: schedules.whole && enabled.length <= most && credentials.whole && webhooks.next_cursor === null && accounts.whole,
  };
}

async function counts(things: ReadonlyArray<{ id: string }>, read: (id: string) => Promise<number>): Promise<Map<string, number>> {
  return new Map(await Promise.all(things.map(async ({ id }): Promise<[string, number]> => [id, await read(id)])));
}

/** What is left of the accounts of some platforms. */
async function headrooms(platforms: string[], signal: AbortSignal) {
  const lists = await Promise.all([...new Set(platforms)].map(async (platform) => {
    try {
      return await flowlane.dispatch.listDomains({ path: { platform }, query: { limit: most }, signal });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return { items: [], next_cursor: null }; // it has no accounts
      throw error;
    }
  }));
  const domains = lists.flatMap((list) => list.items);
  const found = await Promise.all(domains.slice(0, most).map(async (d) => ({
    platform: d.platform_id, tenancy: d.tenancy_id, label: d.label || d.account_number || d.tenancy_id,
    headroom: await flowlane.dispatch.getHeadroom({ path: { platform: d.platform_id, tenancy_id: d.tenancy_id }, signal }),
  })));
  return { found, whole: domains.length <= most && lists.every((list) => list.next_cursor === null) };
}
