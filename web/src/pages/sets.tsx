import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type RecordSet, type RecordSetStatus } from '../api/client';
import { again, useChange } from '../api/live';
import { useMe } from '../app/frame';
import { count, words } from '../lib/format';
import { Ask, Button, Empty, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';
import { Choice } from './batches';
import { Peek } from './set-peek';

const statuses: RecordSetStatus[] = ['open', 'sealed', 'consumed'];

/** All record sets, newest first. */
export function Sets() {
  const { status } = useSearch({ from: '/frame/sets' });
  const navigate = useNavigate();
  const me = useMe();
  const [going, setGoing] = useState<RecordSet>();
  const [looking, setLooking] = useState<RecordSet>();
  const pages = useInfiniteQuery({
    queryKey: ['record-sets', status],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => flowlane.records.list({ query: { order: 'desc', limit: 50, status, cursor: pageParam }, signal }),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    refetchInterval: ({ state: { data } }) => again(data?.pages.length ?? 0, data?.pages.some((p) => p.items.some((s) => s.status === 'open')) ?? false),
  });
  const items = pages.data?.pages.flatMap((p) => p.items) ?? [];
  const may = me?.role === 'admin';
  const filter = (v: string | undefined) => void navigate({ to: '/sets', search: { status: v as RecordSetStatus | undefined } });
  return (
    <>
      <Head title="Record sets"><Link className="button" to="/start">Upload a file</Link></Head>
      <p className="faint">Records that were uploaded. A set is used by one batch; one that is not started in time goes by itself.</p>
      <div className="filters">
        <Choice label="State" value={status} all={statuses} name={words} onChange={filter} />
        {status && <Button quiet onClick={() => filter(undefined)}>Clear</Button>}
      </div>
      {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && items.length === 0 && (status
        ? <Empty>No record set is {status}. <Button quiet onClick={() => filter(undefined)}>Show all</Button></Empty>
        : <Empty>There are no record sets. <Link to="/start">Start a batch</Link> with a file, or <code>flowlane records upload FILE.csv</code></Empty>)}
      {items.length > 0 && (
        <table>
          <thead>
            <tr><th>Made</th><th>File</th><th>State</th><th className="number">Records</th><th className="number">Chunks</th><th>Goes</th><th>Id</th><th><span className="faint">What to do</span></th></tr>
          </thead>
          <tbody>{items.map((s) => <Row key={s.id} set={s} may={may} look={() => setLooking(s)} remove={() => setGoing(s)} />)}</tbody>
        </table>
      )}
      {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
      {looking && <Peek set={looking} close={() => setLooking(undefined)} />}
      {going && <Remove set={going} close={() => setGoing(undefined)} />}
    </>
  );
}

const fileOf = (s: RecordSet): string => (typeof s.metadata['file'] === 'string' ? s.metadata['file'] : '–');

function Row({ set: s, may, look, remove }: { set: RecordSet; may: boolean; look: () => void; remove: () => void }) {
  return (
    <tr>
      <td><Time at={s.created_at} /></td>
      <td className="one-line">{fileOf(s)}</td>
      <td><Status status={s.status} /></td>
      <td className="number">{count(s.received_count)}</td>
      <td className="number" title={`of ${count(s.chunk_size)} records`}>{count(s.chunk_count)}</td>
      <td>{s.staging_expires_at ? <Time at={s.staging_expires_at} ago /> : <span className="faint">with its batch</span>}</td>
      <td><Id id={s.id} /></td>
      <td>
        {s.status === 'sealed' && <Link to="/start" search={{ set: s.id }}>Start a batch</Link>}
        {s.status === 'open' && <Link to="/start" title="Drop the same file">Go on</Link>}
        {s.batch_id && <Link to="/batches/$batchId" params={{ batchId: s.batch_id }}>Its batch</Link>}
        {s.received_count > 0 && <Button quiet aria-label={`Look into the set of ${count(s.received_count)} records`} onClick={look}>Look</Button>}
        {s.status !== 'consumed' && <Button quiet disabled={!may} title={may ? undefined : 'Only an admin may delete'} aria-label={`Delete the set of ${count(s.received_count)} records`} onClick={remove}>Delete</Button>}
      </td>
    </tr>
  );
}

function Remove({ set, close }: { set: RecordSet; close: () => void }) {
  const remove = useChange(() => flowlane.records.delete({ path: { record_set_id: set.id } }), close);
  return (
    <Ask title="Delete this record set" action={`Delete ${count(set.received_count)} records`} busy={remove.isPending} error={remove.error} onGo={() => remove.mutate(undefined)} onClose={close}>
      <p>{fileOf(set) === '–' ? 'Its' : `${fileOf(set)}: its`} {count(set.received_count)} records go at once and do not come back. No batch has used them.</p>
    </Ask>
  );
}
