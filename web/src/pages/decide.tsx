import { useState } from 'react';

import type { JobStatus } from '../api/client';
import { useChange } from '../api/live';
import { count, words } from '../lib/format';
import { Ask } from '../ui/parts';

type Outcome = 'accepted' | 'rejected' | 'requeue';

const outcomes: Array<[Outcome, string]> = [
  ['accepted', 'The provider has them: count them as accepted'],
  ['rejected', 'The provider does not have them, and shall not: count them as rejected'],
  ['requeue', 'The provider does not have them: send them again'],
];

interface Props {
  records: number;
  status: JobStatus;
  send: (outcome: Outcome, note: string) => Promise<unknown>;
  close: () => void;
}

/** Says what became of records of which nobody knows. Sending again is never the default: it cannot be unsent. */
export function Decide({ records, status, send, close }: Props) {
  const [outcome, setOutcome] = useState<Outcome>('accepted');
  const [note, setNote] = useState('');
  const decide = useChange(() => send(outcome, note), close);
  return (
    <Ask
      title={`Decide about ${count(records)} ${records === 1 ? 'record' : 'records'}`} action="Decide" busy={decide.isPending} disabled={note.trim() === ''}
      error={decide.error} onGo={() => decide.mutate(undefined)} onClose={close}
    >
      <p>No answer came that says whether the provider took them ({words(status)}). Look there first.</p>
      {outcomes.map(([value, text]) => (
        <label key={value} className="check">
          <input type="radio" name="outcome" checked={outcome === value} onChange={() => setOutcome(value)} />
          {text}
        </label>
      ))}
      {outcome === 'requeue' && <p className="note attention">If the provider has them after all, it gets them twice.</p>}
      <label>What you saw there (kept with the decision)<input value={note} required maxLength={500} onChange={(e) => setNote(e.target.value)} /></label>
    </Ask>
  );
}
