import { useMutation } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';

import { useChange } from '../api/live';
import { useMe } from '../app/frame';
import { textOf, valuesOf, type Field } from './fields';
import { Ask, Button } from './parts';
import { useZone } from './zone';

export type { Field };

interface FormProps {
  title: string;
  action: string;
  fields: Field[];
  children?: ReactNode;
  /** What can be tried with the values before they are sent: it says what came of it. */
  attempt?: { label: string; run: (values: Record<string, unknown>) => Promise<ReactNode> };
  onSend: (values: Record<string, unknown>) => Promise<unknown>;
  onClose: () => void;
}

/** A dialog that asks for fields and sends them once. */
export function Form({ title, action, fields, children, attempt, onSend, onClose }: FormProps) {
  const [texts, setTexts] = useState<Record<string, string>>({});
  const all = Object.fromEntries(fields.map((f) => [f.name, texts[f.name] ?? textOf(f)]));
  const zone = useZone();
  const send = useChange(async () => onSend(valuesOf(fields, all, zone)), onClose);
  const tried = useMutation({
    mutationFn: async () => {
      send.reset();
      return attempt!.run(valuesOf(fields, all, zone));
    },
  });
  const set = (name: string, text: string) => setTexts((before) => ({ ...before, [name]: text }));
  const input = (f: Field) => <Input key={f.name} field={f} text={all[f.name]!} onText={(text) => set(f.name, text)} />;
  return (
    <Ask
      title={title} action={action} busy={send.isPending} error={send.error ?? tried.error} onGo={() => send.mutate(undefined)} onClose={onClose}
      beside={attempt && <Button disabled={tried.isPending} onClick={(e) => e.currentTarget.form?.reportValidity() && tried.mutate()}>{attempt.label}</Button>}
    >
      {children}
      {fields.filter((f) => !f.more).map(input)}
      {fields.some((f) => f.more) && <details><summary>More</summary>{fields.filter((f) => f.more).map(input)}</details>}
      {tried.data}
    </Ask>
  );
}

function Input({ field: f, text, onText }: { field: Field; text: string; onText: (text: string) => void }) {
  const zone = useZone();
  const hint = [f.kind === 'time' && (zone === 'utc' ? 'in UTC' : 'your time'), f.hint].filter(Boolean).join(', ');
  const label = <span>{f.label}{hint && <span className="faint"> · {hint}</span>}</span>;
  if (f.kind === 'check') {
    return <label className="check"><input type="checkbox" checked={text === 'true'} onChange={(e) => onText(String(e.target.checked))} />{label}</label>;
  }
  if (f.options) {
    return (
      <label>
        {label}
        <select value={text} required={f.required} onChange={(e) => onText(e.target.value)}>
          {!f.options.some(([v]) => v === text) && <option value={text}>{text || 'choose one'}</option>}
          {f.options.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
        </select>
      </label>
    );
  }
  if (f.kind === 'json' || f.kind === 'lines' || f.kind === 'long') {
    return <label>{label}<textarea rows={f.kind === 'json' ? 8 : 3} autoComplete="off" spellCheck={false} required={f.required} value={text} onChange={(e) => onText(e.target.value)} /></label>;
  }
  const type = f.kind === 'secret' ? 'password' : f.kind === 'number' ? 'number' : f.kind === 'time' ? 'datetime-local' : 'text';
  return (
    <label>
      {label}
      <input
        type={type} autoComplete={f.kind === 'secret' ? 'new-password' : 'off'} required={f.required} value={text}
        onChange={(e) => onText(e.target.value)}
      />
    </label>
  );
}

interface ActProps {
  label: string;
  /** What stands on the button, where its place says the rest. */
  short?: string;
  strong?: boolean;
  disabled?: boolean;
  /** What happens at once, where it needs no question. */
  run?: () => Promise<unknown>;
  /** Or the dialog that asks. */
  ask?: (close: () => void) => ReactNode;
}

/** A button for what only an admin may do; a member sees it with the reason why it cannot be pressed. */
export function Act({ label, short, strong, disabled, run, ask }: ActProps) {
  const me = useMe();
  const [open, setOpen] = useState(false);
  const change = useChange(async () => run?.());
  const may = me?.role === 'admin';
  const why = may ? (change.error ? String(change.error.message) : undefined) : 'Only an admin may do this';
  return (
    <>
      <Button
        strong={strong} quiet={short !== undefined} aria-label={short && label} disabled={!may || disabled || change.isPending} title={why}
        onClick={() => (ask ? setOpen(true) : change.mutate(undefined))}
      >
        {short ?? label}
      </Button>
      {change.error && <span className="bad" role="alert">{change.error.message}</span>}
      {open && ask?.(() => setOpen(false))}
    </>
  );
}

interface ConfirmProps {
  title: string;
  action: string;
  children: ReactNode;
  onGo: () => Promise<unknown>;
  onClose: () => void;
}

/** Asks before something that cannot be undone. */
export function Confirm({ title, action, children, onGo, onClose }: ConfirmProps) {
  const go = useChange(onGo, onClose);
  return (
    <Ask title={title} action={action} busy={go.isPending} error={go.error} onGo={() => go.mutate(undefined)} onClose={onClose}>
      {children}
    </Ask>
  );
}
