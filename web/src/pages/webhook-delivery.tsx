import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';

import { flowlane, type WebhookDelivery } from '../api/client';
import { all, useChange } from '../api/live';
import { count, pretty } from '../lib/format';
import { Act } from '../ui/form';
import { Ask, Button, Facts, Failure, Loading, Time } from '../ui/parts';

interface BodyProps {
  path: { webhook_id: string };
  delivery: WebhookDelivery;
}

/** A button that shows what a sender sent. */
export function Body({ path, delivery }: BodyProps) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button quiet aria-label={`Show the body of ${delivery.webhook_message_id}`} onClick={() => setOpen(true)}>{count(delivery.size_bytes)} bytes</Button>
      {open && <Shown path={path} delivery={delivery} close={() => setOpen(false)} />}
    </>
  );
}

function Shown({ path, delivery: d, close }: BodyProps & { close: () => void }) {
  const read = useQuery({
    queryKey: ['delivery', path.webhook_id, d.id], staleTime: 60_000,
    queryFn: ({ signal }) => flowlane.webhooks.getDelivery({ path: { ...path, delivery_id: d.id }, signal }),
  });
  return (
    <div className="wide-dialog">
      <Ask title="What was sent" shows action="Close" onGo={close} onClose={close}>
        <Facts facts={[
          ['Id of the sender', <code>{d.webhook_message_id}</code>], ['Arrived', <Time at={d.received_at} />], ['Type', d.content_type ?? 'none'],
          ['Encoding', read.data?.content_encoding ?? 'none'],
        ]} />
        {read.isPending && <Loading />}
        {read.error && <Failure error={read.error} retry={() => void read.refetch()} />}
        {read.data && (read.data.body === '' ? <p className="faint">It has no body.</p> : <pre tabIndex={0} role="region" aria-label="The body">{read.data.body_truncated ? read.data.body : pretty(read.data.body)}</pre>)}
        {read.data?.body_truncated && <p className="faint">This is its beginning, of {count(d.size_bytes)} bytes.</p>}
      </Ask>
    </div>
  );
}

/** Replays every dead delivery, one after the other. */
export function ReplayDead({ path }: { path: { webhook_id: string } }) {
  const dead = useQuery({
    queryKey: ['deliveries', path.webhook_id, 'dead', 'count'],
    queryFn: ({ signal }) => flowlane.webhooks.listDeliveries({ path, query: { limit: 1, status: 'dead' }, signal }),
    refetchInterval: 15_000,
  });
  const n = dead.data?.total ?? 0;
  if (n === 0) return null;
  return <Act label={`Replay all ${count(n)} dead`} ask={(close) => <Replay path={path} n={n} close={close} />} />;
}

function Replay({ path, n, close }: { path: { webhook_id: string }; n: number; close: () => void }) {
  const [done, setDone] = useState(0);
  const go = useChange(async () => {
    const dead = await all((page) => flowlane.webhooks.listDeliveries({ path, query: { limit: 200, status: 'dead', ...page } }));
    for (const [i, d] of dead.entries()) {
      await flowlane.webhooks.replayDelivery({ path: { ...path, delivery_id: d.id } });
      setDone(i + 1);
    }
  }, close);
  return (
    <Ask title="Replay all that are dead" action={`Replay ${count(n)}`} busy={go.isPending} error={go.error} onGo={() => go.mutate(undefined)} onClose={close}>
      <p>The start of each is tried again, by the webhook as it is now. What is dead then, or was not reached, can be replayed again.</p>
      {done > 0 && <p role="status">{count(done)} of {count(n)} are replayed.</p>}
    </Ask>
  );
}
