import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';

import { flowlane, type Definition, type DryRun } from '../api/client';
import { exactly } from '../lib/exact';
import { pretty } from '../lib/format';
import { scan } from '../lib/json';
import { Button, Failure } from '../ui/parts';
import { Outcome } from './start-rehearsal';

interface Props {
  flow: Definition | undefined;
  /** The text that is rehearsed where it was not saved. */
  text: string;
  changed: boolean;
  sample: string;
  onSample: (text: string) => void;
}

/** What is wrong with a text that must be a JSON object. */
function wrongWith(text: string, what: string): string | undefined {
  const { root, mistake } = scan(text);
  return mistake?.message ?? (root!.kind === 'object' ? undefined : what);
}

/** The text of a definition with a rehearsal in it, every digit as it was written. */
export function withRehearsal(text: string, rehearsal: string): string {
  const { root } = scan(text);
  const rest = text.trim().slice(1);
  return `{"rehearsal":${rehearsal}${root && root.children.size > 0 ? ',' : ''}${rest}`;
}

/** The answers that a rehearsal may assume: one for each task that makes a call, to be filled in. */
export const answersOf = (run: DryRun): string => pretty(JSON.stringify(Object.fromEntries(run.steps.flatMap((step) => {
  const calls = step.tasks.filter((task) => task.call !== null);
  return calls.length === 0 ? [] : [[step.id, Object.fromEntries(calls.map((task) => [task.id, { status: 200, body: {} }]))]];
}))));

/** Rehearses the flow as it stands in the text, with a record that somebody pastes. Nothing is sent. */
export function Rehearse({ flow, text, changed, sample, onSample }: Props) {
  const [answers, setAnswers] = useState('{}');
  const wrong = wrongWith(sample, 'A record is an object: {"field": "value"}.');
  const wrongAnswers = wrongWith(answers, 'The answers are an object: {"step": {"task": {…}}}.');
  const broken = changed && scan(text).mistake ? 'Mend the text first' : undefined;
  const stops = broken ?? wrong ?? wrongAnswers;
  const run = useMutation({
    mutationFn: (record: string) => {
      const rehearsal = `{"input_data":${record},"outputs":${answers}}`;
      const how = { bodySerializer: null, parseAs: 'text' } as const;
      return exactly(changed || !flow
        ? flowlane.definitions.dryRunNew({ body: withRehearsal(text, rehearsal) as never, ...how })
        : flowlane.definitions.dryRun({ path: { definition_id: flow.id }, body: rehearsal as never, ...how }));
    },
  });
  const calls = run.data?.steps.some((step) => step.tasks.some((task) => task.call !== null)) ?? false;
  return (
    <section aria-label="Rehearsal">
      <label>
        Rehearse with a record
        <textarea className="sample" spellCheck={false} value={sample} onChange={(event) => onSample(event.target.value)} />
      </label>
      {wrong && <p className="bad" role="status">{wrong}</p>}
      <details>
        <summary>Answers to assume</summary>
        <label>
          <span>By step and task, what calls are taken to have answered, as later steps read it</span>
          <textarea className="sample" spellCheck={false} value={answers} onChange={(event) => setAnswers(event.target.value)} />
        </label>
        {wrongAnswers && <p className="bad" role="status">{wrongAnswers}</p>}
        {calls && <Button quiet onClick={() => setAnswers(answersOf(run.data!))}>Begin with the tasks that make calls</Button>}
      </details>
      <div className="state">
        <Button disabled={stops !== undefined || run.isPending} title={stops} onClick={() => run.mutate(sample)}>Rehearse</Button>
        <span className="faint">Nothing is sent. {changed || !flow ? 'This rehearses your text.' : `This rehearses version ${flow.version}.`}</span>
      </div>
      {run.error && <Failure error={run.error} />}
      {run.data && <Outcome run={run.data} record={run.variables} />}
    </section>
  );
}
