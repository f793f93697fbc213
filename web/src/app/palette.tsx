import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useRef, useState, type KeyboardEvent } from 'react';

import { flowlane } from '../api/client';
import { all } from '../api/live';
import { groups } from './places';

interface Goal {
  id: string;
  kind: string;
  label: string;
  go: () => void;
}

/** Goes to a screen, a flow or a batch by a few letters of its name or its id. */
export function Palette({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const goals = useGoals(text.trim().toLowerCase());
  const at = Math.min(chosen, goals.length - 1);
  const go = (goal: Goal | undefined) => {
    if (!goal) return;
    dialog.current?.close();
    goal.go();
  };
  const press = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setChosen((at + step + goals.length) % Math.max(1, goals.length));
    } else if (event.key === 'Enter') {
      event.preventDefault();
      go(goals[at]);
    }
  };
  return (
    <dialog ref={dialog} onClose={close} aria-label="Go to" className="palette">
      <input
        role="combobox" aria-label="Go to" aria-expanded="true" aria-controls="goals" aria-activedescendant={goals[at]?.id} autoComplete="off" spellCheck={false}
        placeholder="A screen, a flow or a batch" value={text} onKeyDown={press}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
      />
      <div id="goals" role="listbox" aria-label="Places">
        {goals.map((goal, i) => (
          <div key={goal.id} id={goal.id} role="option" aria-selected={i === at} onClick={() => go(goal)}>
            {goal.label} <span className="faint">{goal.kind}</span>
          </div>
        ))}
      </div>
      {goals.length === 0 && <p className="faint" role="status">Nothing is called that.</p>}
    </dialog>
  );
}

/** What fits a text, at most twelve. */
function useGoals(text: string): Goal[] {
  const navigate = useNavigate();
  const read = useQuery({
    queryKey: ['palette'],
    queryFn: async ({ signal }) => {
      const [flows, batches] = await Promise.all([
        all((page) => flowlane.definitions.list({ query: { limit: 200, ...page }, signal })),
        flowlane.batches.list({ query: { limit: 100, order: 'desc' }, signal }),
      ]);
      return { flows, batches: batches.items };
    },
  });
  const names = new Map(read.data?.flows.map((f) => [f.id, f.name]));
  const batch = (id: string, label: string): Goal =>
    ({ id: `go-${id}`, kind: `batch ${id}`, label, go: () => void navigate({ to: '/batches/$batchId', params: { batchId: id }, search: {} }) });
  const goals: Goal[] = [
    ...groups.flatMap((g) => g.places.map(({ to, label }) => ({ id: `go-${to}`, kind: g.name as string, label, go: () => void navigate({ to, search: {} }) }))),
    ...[...names].map(([id, label]) => (
      { id: `go-${id}`, kind: `flow ${id}`, label, go: () => void navigate({ to: '/flows/$flowId', params: { flowId: id }, search: {} }) }
    )),
    ...(read.data?.batches ?? []).map((b) => batch(b.id, names.get(b.definition_id) ?? 'a deleted flow')),
  ];
  const fit = goals.filter((g) => `${g.label} ${g.kind}`.toLowerCase().includes(text)).slice(0, 12);
  const whole = /^[0-9a-f-]{32,36}$/.test(text) && fit.length === 0;
  return whole ? [batch(text, 'The batch of this id')] : fit;
}
