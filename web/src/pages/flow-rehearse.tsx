import { useMutation } from '@tanstack/react-query';

import { flowlane, type Definition } from '../api/client';
import { scan } from '../lib/json';
import { Button, Failure } from '../ui/parts';
import { Outcome } from './start-rehearsal';

interface Props {
  flow: Definition | undefined;
  changed: boolean;
  sample: string;
  onSample: (text: string) => void;
}

/** Rehearses the flow as it was saved with a record that somebody pastes. Nothing is sent. */
export function Rehearse({ flow, changed, sample, onSample }: Props) {
  const { root, mistake } = scan(sample);
  const wrong = mistake?.message ?? (root!.kind === 'object' ? undefined : 'A record is an object: {"field": "value"}.');
  const run = useMutation({
    mutationFn: (record: string) => flowlane.definitions.dryRun({
      path: { definition_id: flow!.id }, body: `{"input_data":${record}}` as never, bodySerializer: null,
    }),
  });
  return (
    <section aria-label="Rehearsal">
      <label>
        Rehearse with a record
        <textarea className="sample" spellCheck={false} value={sample} onChange={(event) => onSample(event.target.value)} />
      </label>
      {wrong && <p className="bad" role="status">{wrong}</p>}
      <div className="state">
        <Button disabled={!flow || wrong !== undefined || run.isPending} title={flow ? wrong : 'A flow is rehearsed once it is saved'} onClick={() => run.mutate(sample)}>
          Rehearse
        </Button>
        <span className="faint">
          Nothing is sent. {!flow ? 'A flow is rehearsed once it is saved.' : changed ? `This rehearses version ${flow.version}, not yet your draft.` : ''}
        </span>
      </div>
      {run.error && <Failure error={run.error} />}
      {run.data && <Outcome run={run.data} record={run.variables} />}
    </section>
  );
}
