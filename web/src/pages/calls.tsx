import { useInfiniteQuery } from '@tanstack/react-query';

import { flowlane, type Call, type CallBody, type ListCallsData } from '../api/client';
import { again } from '../api/live';
import { count, pretty, took, words } from '../lib/format';
import { Button, Empty, Facts, Failure, Id, Loading, Status, Time } from '../ui/parts';

/** Calls as they were sent and answered, newest first. */
export function Calls({ query, live }: { query: ListCallsData['query']; live: boolean }) {
  const pages = useInfiniteQuery({
    queryKey: ['calls', query],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => flowlane.calls.list({ query: { ...query, limit: 20, cursor: pageParam }, signal }),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    refetchInterval: ({ state }) => again(state.data?.pages.length ?? 0, live),
  });
  const items = pages.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <>
      {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && items.length === 0 && <Empty>No call is kept: none was made yet, or they were made longer ago than calls are kept.</Empty>}
      <ul className="calls">{items.map((c) => <li key={c.id}><CallDetails call={c} /></li>)}</ul>
      {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
    </>
  );
}

/** What a call was for. */
function carried(c: Call) {
  switch (c.purpose) {
    case 'lookup': return 'asks what became of a call';
    case 'poll': return 'asks for the result of a call';
    default: return `${count(c.record_count)} ${c.record_count === 1 ? 'record' : 'records'} · attempt ${c.attempt}`;
  }
}

/** One call: its line, and behind it what was sent, what was answered and how long each part took. */
function CallDetails({ call: c }: { call: Call }) {
  return (
    <details>
      <summary>
        <Status status={c.outcome} /> {c.response ? `HTTP ${c.response.status}` : c.failed_at ? `failed at ${c.failed_at}` : ''}{' '}
        <code className="one-line">{c.request ? `${c.request.method} ${c.request.url}` : c.action_id}</code>{' '}
        <span className="faint">{carried(c)} · <Time at={c.claimed_at} /></span>
      </summary>
      <Facts
        facts={[
          ['Action', c.action_id], ['Queued', <Time at={c.queued_at} />], ['Claimed', <Time at={c.claimed_at} />], ['Sent', <Time at={c.sent_at} />],
          ['Answered', <Time at={c.answered_at} />], ['Took', c.sent_at && c.answered_at ? took(c.sent_at, c.answered_at) : '–'],
          ['Lane', words(c.lane)], ['Call', <Id id={c.id} />], ...(c.about_call_id ? [['About', <Id id={c.about_call_id} />] as const] : []),
        ]}
      />
      {c.error && <p className="message">{c.error.provider_message ?? c.error.message} <code>{c.error.provider_code ?? c.error.code}</code></p>}
      {c.request && <Body title="Sent" body={c.request.body} />}
      {c.response && (
        <>
          <Body title="Answered" body={c.response.body} />
          <pre>{Object.entries(c.response.headers).map(([name, value]) => `${name}: ${value}`).join('\n')}</pre>
        </>
      )}
    </details>
  );
}

function Body({ title, body }: { title: string; body: CallBody }) {
  return (
    <>
      <h3>{title} <span className="faint">{count(body.size)} bytes{body.base64 ? ', in base64' : ''}</span></h3>
      {body.text === '' ? <p className="faint">nothing</p> : <pre>{pretty(body.text)}</pre>}
    </>
  );
}
