import { useState } from 'react';

import { flowlane, type DomainLane, type Lane, type QueueDepth } from '../api/client';
import { useChange, useLive } from '../api/live';
import { useMe } from '../app/frame';
import { count } from '../lib/format';
import { shares } from '../lib/share';
import { Button, Failure, Loading } from '../ui/parts';
import './account.css';

/** The answer has no order of its own. */
const order: Lane[] = ['interactive', 'compliance', 'bulk', 'backfill'];

interface Props {
  path: { platform: string; tenancy_id: string };
  waiting: Record<string, QueueDepth>;
}

/** What waits in each lane, and which share of the calls each has while several have work: drawn with the mouse or the arrow keys. */
export function Lanes({ path, waiting }: Props) {
  const lanes = useLive(['lanes', path.tenancy_id], (signal) => flowlane.dispatch.getLanes({ path, signal }));
  const [drawn, setDrawn] = useState<Record<string, number>>({});
  const me = useMe();
  const all = [...Object.values(lanes.data?.lanes ?? {})].sort((a, b) => order.indexOf(a.lane) - order.indexOf(b.lane));
  const changed = all.filter((l) => drawn[l.lane] !== undefined && drawn[l.lane] !== l.weight);
  const save = useChange(async () => {
    for (const l of changed) {
      await flowlane.dispatch.setLane({ path: { ...path, lane: l.lane }, body: { weight: drawn[l.lane]!, max_concurrent_calls: l.max_concurrent_calls } });
    }
    setDrawn({});
  });
  if (!lanes.data) return lanes.error ? <Failure error={lanes.error} retry={() => void lanes.refetch()} /> : <Loading />;
  const weights = all.map((l) => drawn[l.lane] ?? l.weight);
  const share = shares(weights);
  const may = me?.role === 'admin';
  return (
    <section>
      <h2>Lanes</h2>
      <div className="shares" aria-hidden="true">
        {all.map((l, i) => (
          <svg key={l.lane} viewBox="0 0 10 10" preserveAspectRatio="none" className={`share-${i % 4}`} width={`${share[i]}%`}><rect width="10" height="10" /></svg>
        ))}
      </div>
      <div className="scroll" tabIndex={0} role="group" aria-label="Lanes">
        <table>
          <thead>
            <tr><th>Lane</th><th>Share of the calls while all have work</th><th className="number">Weight</th><th className="number">At once</th>
              <th className="number">Waiting</th><th className="number">Paused</th><th className="number">Calls</th></tr>
          </thead>
          <tbody>
            {all.map((l, i) => (
              <Row
                key={l.lane} lane={l} share={share[i]!} weight={weights[i]!} depth={waiting[l.lane]} may={may} colour={i % 4}
                draw={(weight) => setDrawn((before) => ({ ...before, [l.lane]: weight }))}
              />
            ))}
          </tbody>
        </table>
      </div>
      {save.error && <Failure error={save.error} />}
      {changed.length > 0 && (
        <p className="lead">
          <Button strong disabled={save.isPending} onClick={() => save.mutate(undefined)}>Set {count(changed.length)} {changed.length === 1 ? 'lane' : 'lanes'}</Button>
          <Button onClick={() => setDrawn({})}>As it was</Button>
        </p>
      )}
    </section>
  );
}

interface RowProps {
  lane: DomainLane;
  share: number;
  weight: number;
  depth: QueueDepth | undefined;
  may: boolean;
  colour: number;
  draw: (weight: number) => void;
}

function Row({ lane: l, share, weight, depth, may, colour, draw }: RowProps) {
  return (
    <tr>
      <td className="lane"><span className={`swatch share-${colour}`} aria-hidden="true" /> {l.lane}</td>
      <td>
        <span className="draw">
          <input
            type="range" min="1" max="100" value={weight} disabled={!may} title={may ? undefined : 'Only an admin may do this'}
            aria-label={`Weight of ${l.lane}`} aria-valuetext={`${weight}, ${share} % of the calls`} onChange={(e) => draw(Number(e.target.value))}
          />
          <span>{share} %</span>
        </span>
      </td>
      <td className="number">{weight}</td>
      <td className="number">{l.max_concurrent_calls ?? 'any'}</td>
      <td className="number">{count(depth?.queued_records ?? 0)}</td>
      <td className="number">{count(depth?.paused_records ?? 0)}</td>
      <td className="number">{count(depth?.estimated_calls ?? 0)}</td>
    </tr>
  );
}
