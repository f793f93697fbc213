import { Link } from '@tanstack/react-router';

import { flowlane, type Domain } from '../api/client';
import { all, useLive } from '../api/live';
import { Empty, Failure, Head, Loading, Time } from '../ui/parts';

/** The provider accounts of the organization, and the credentials that it limits: what each has left, and who waits for it. */
export function Accounts() {
  const domains = useLive(['domains'], async (signal) => {
    const credentials = await all((page) => flowlane.credentials.list({ query: { limit: 200, ...page }, signal }));
    const platforms = [...new Set(credentials.filter((c) => c.tenancy_id ?? c.limits).map((c) => c.platform_id))];
    const lists = await Promise.all(platforms.map((platform) =>
      all((page) => flowlane.dispatch.listDomains({ path: { platform }, query: { limit: 200, ...page }, signal }))));
    return lists.flat();
  });
  return (
    <>
      <Head title="Accounts" />
      {domains.error && <Failure error={domains.error} retry={() => void domains.refetch()} />}
      {domains.isPending && <Loading />}
      {domains.data?.length === 0 && (
        <Empty>No provider account is known yet. One shows up when a credential is tested: <code>flowlane credentials test ID</code></Empty>
      )}
      {domains.data && domains.data.length > 0 && (
        <table>
          <thead><tr><th>Account</th><th>Platform</th><th>Budgets</th><th>Its day ends in</th><th>Limits read</th></tr></thead>
          <tbody>{domains.data.map((d) => <Row key={d.tenancy_id} domain={d} />)}</tbody>
        </table>
      )}
    </>
  );
}

function Row({ domain: d }: { domain: Domain }) {
  return (
    <tr>
      <td>
        <Link to="/accounts/$platformId/$tenancyId" params={{ platformId: d.platform_id, tenancyId: d.tenancy_id }}>{d.label || d.account_number || d.tenancy_id}</Link>
      </td>
      <td>{d.platform_id}</td>
      <td>{d.buckets.join(', ') || '–'}</td>
      <td>{d.time_zone}</td>
      <td><Time at={d.limits_refreshed_at} ago /></td>
    </tr>
  );
}
