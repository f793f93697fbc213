import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { ApiError, flowlane, type Dashboard } from '../api/client';
import { useLive } from '../api/live';
import { ofAccounts, ofCredentials, ofHolds, ofSchedules, ofUnknown, ofWebhooks, type Attention as Item } from '../lib/attention';
import { Empty, Failure, Loading, Status } from '../ui/parts';

/** How many of a kind are looked at: each is a request. */
const most = 20;
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
  const items = [...ofUnknown(unknown.data?.total ?? 0), ...(rest.data ?? [])];
  return (
    <section>
      <h2>Needs you</h2>
      {rest.error && <Failure error={rest.error} retry={() => void rest.refetch()} />}
      {rest.isPending && items.length === 0 && <Loading />}
      {rest.data && items.length === 0 && <Empty>Nothing waits for anybody.</Empty>}
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

/** Reads what may be wrong: of each kind some, the newest first. */
async function look(dashboard: Dashboard, signal: AbortSignal): Promise<Item[]> {
  const since = new Date(Date.now() - day).toISOString();
  const [schedules, credentials, webhooks] = await Promise.all([
    flowlane.schedules.list({ query: { limit: most, order: 'desc' }, signal }), flowlane.credentials.list({ query: { limit: 200 }, signal }),
    flowlane.webhooks.list({ query: { limit: most, order: 'desc' }, signal }),
  ]);
  const [missed, dead, accounts] = await Promise.all([
    counts(schedules.items.filter((s) => s.enabled), async (id) => (await flowlane.schedules.listFires({
      path: { schedule_id: id }, query: { status: 'skipped', created_after: since, limit: 1 }, signal,
    })).total),
    counts(webhooks.items.filter((w) => w.enabled), async (id) => (await flowlane.webhooks.listDeliveries({
      path: { webhook_id: id }, query: { status: 'dead', created_after: since, limit: 50 }, signal,
    })).items.length),
    headrooms(credentials.items.map((c) => c.platform_id), signal),
  ]);
  const platforms = new Map(accounts.map((a) => [a.tenancy, a.platform]));
  return [
    ...ofCredentials(credentials.items), ...ofSchedules(schedules.items, missed), ...ofWebhooks(webhooks.items, dead), ...ofAccounts(accounts),
    ...ofHolds(dashboard.active_holds, platforms),
  ];
}

async function counts(things: ReadonlyArray<{ id: string }>, read: (id: string) => Promise<number>): Promise<Map<string, number>> {
  return new Map(await Promise.all(things.map(async ({ id }): Promise<[string, number]> => [id, await read(id)])));
}

/** What is left of the accounts of some platforms. */
async function headrooms(platforms: string[], signal: AbortSignal) {
  const lists = await Promise.all([...new Set(platforms)].map(async (platform) => {
    try {
      return (await flowlane.dispatch.listDomains({ path: { platform }, query: { limit: most }, signal })).items;
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return []; // it has no accounts
      throw error;
    }
  }));
  return Promise.all(lists.flat().slice(0, most).map(async (d) => ({
    platform: d.platform_id, tenancy: d.tenancy_id, label: d.label || d.account_number || d.tenancy_id,
    headroom: await flowlane.dispatch.getHeadroom({ path: { platform: d.platform_id, tenancy_id: d.tenancy_id }, signal }),
  })));
}
