import { useEffect, useRef, useState } from 'react';

import { flowlane, type Batch } from '../api/client';
import { useLive } from '../api/live';
import { count, span } from '../lib/format';
import { doneOf, sampled, speedOf, type Sample } from '../lib/speed';
import { Empty, Failure, Loading } from '../ui/parts';
import { Plot } from '../ui/plot';
import { moves } from './batches';

/** How fast a batch goes while somebody looks at it, in records a second; undefined where it does not go, or that is not known yet. */
export function useSpeed(batch: Batch | undefined, at: number): number | undefined {
  const samples = useRef<{ of: string; all: Sample[] }>({ of: '', all: [] });
  const [speed, setSpeed] = useState<number>();
  const done = batch && doneOf(batch.job_counts);
  const runs = batch?.status === 'running';
  useEffect(() => {
    if (!batch || done === undefined || !runs) {
      samples.current = { of: '', all: [] };
      setSpeed(undefined);
      return;
    }
    if (samples.current.of !== batch.id) samples.current = { of: batch.id, all: [] };
    samples.current.all = sampled(samples.current.all, { at, done });
    setSpeed(speedOf(samples.current.all));
  }, [batch, done, runs, at]);
  return speed;
}

/** What the calls of a batch carried over time, and when it was paused. */
export function Speed({ batch }: { batch: Batch }) {
  const timeline = useLive(['timeline', batch.id], (signal) => flowlane.batches.getTimeline({ path: { batch_id: batch.id }, signal }), moves(batch));
  if (timeline.error && !timeline.data) return <Failure error={timeline.error} retry={() => void timeline.refetch()} />;
  if (!timeline.data) return <Loading />;
  const { points, pauses, interval_seconds: seconds, complete } = timeline.data;
  if (points.length === 0) return <Empty>No call is kept: the batch makes none, has made none yet, or made them longer ago than calls are kept.</Empty>;
  const sum = points.reduce((s, p) => ({ calls: s.calls + p.calls, records: s.records + p.records, failed: s.failed + p.failed }), { calls: 0, records: 0, failed: 0 });
  return (
    <section>
      <h2>Records sent, by {span(seconds)}</h2>
      <Plot
        label={`Sent: ${count(sum.records)} records in ${count(sum.calls)} ${sum.calls === 1 ? 'call' : 'calls'}, ${count(sum.failed)} of them in calls that did not succeed`}
        columns={points.map((p) => ({ at: p.starts_at, parts: [{ kind: 'ok', value: p.records - p.failed }, { kind: 'failed', value: p.failed }] }))}
        seconds={seconds}
        spans={pauses.map((p) => ({ from: p.created_at, to: p.released_at, text: `paused${p.reason ? `: ${p.reason}` : ''}` }))}
        heads={{ at: 'From', parts: ['Succeeded', 'Did not succeed'] }}
      />
      <p className="faint">
        A record counts in each call that took it.{pauses.length > 0 && ' The batch was paused where it is shaded.'}
        {!complete && ' Only its newest calls are shown.'}
      </p>
    </section>
  );
}
