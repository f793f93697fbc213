import { useInfiniteQuery } from '@tanstack/react-query';

import { flowlane, type RecordSet } from '../api/client';
import { exactly, write } from '../lib/exact';
import { count } from '../lib/format';
import { Ask, Button, Empty, Failure, Loading } from '../ui/parts';

/** Some records of a set as they were uploaded, from the first on. */
export function Peek({ set, close }: { set: RecordSet; close: () => void }) {
  const pages = useInfiniteQuery({
    queryKey: ['peek', set.id], initialPageParam: 0, staleTime: 60_000,
    queryFn: ({ pageParam, signal }) => exactly(flowlane.records.peek({ path: { record_set_id: set.id }, query: { from: pageParam, count: 20 }, signal, parseAs: 'text' })),
    getNextPageParam: (last) => (last.items.length > 0 && last.items.at(-1)!.position + 1 < set.received_count ? last.items.at(-1)!.position + 1 : undefined),
  });
  const items = pages.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <div className="wide-dialog">
      <Ask title={`Of ${count(set.received_count)} records`} shows action="Close" onGo={close} onClose={close}>
        {pages.isPending && <Loading />}
        {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
        {pages.data && items.length === 0 && <Empty>No record is there.</Empty>}
        {items.length > 0 && (
          <div className="scroll" tabIndex={0} role="group" aria-label="Records">
            <table>
              <thead><tr><th className="number">Position</th><th>Record</th></tr></thead>
              <tbody>{items.map((r) => <tr key={r.position}><td className="number">{count(r.position)}</td><td><code className="message">{write(r.data)}</code></td></tr>)}</tbody>
            </table>
          </div>
        )}
        {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
      </Ask>
    </div>
  );
}
