import { Link } from '@tanstack/react-router';
import { useEffect, useRef, useState, type ButtonHTMLAttributes, type ReactNode } from 'react';

import { ApiError } from '../api/client';
import { clock, cut, exact, relative, words } from '../lib/format';
import { InputError } from './fields';
import { useNow } from './now';
import { useZone } from './zone';

/** What a status means, beside its word: shapes and colours follow it. */
const kinds: Record<string, string> = {
  queued: 'waiting', staged: 'waiting', pending: 'waiting', skipped: 'waiting', unprocessed: 'waiting', cancelled: 'waiting', waiting: 'waiting', inactive: 'waiting', revoked: 'waiting', expired: 'waiting',
  running: 'running', started: 'running',
  paused: 'hold', held: 'hold',
  completed: 'ok', accepted: 'ok', success: 'ok', succeeded: 'ok', enabled: 'ok', active: 'ok', fired: 'ok', dispatched: 'ok',
  partially_failed: 'partial', retry_later: 'partial', not_arrived: 'partial',
  failed: 'failed', rejected: 'failed', refused: 'failed', failure: 'failed', dead: 'failed', denied: 'failed',
  unresolved: 'unknown', needs_reconcile: 'unknown', unknown: 'unknown',
};

/** Which colour and shape a status has. */
export const kindOf = (status: string): string => kinds[status] ?? 'waiting';

/** A status as a shape, a word and a colour. */
export function Status({ status, word }: { status: string; word?: string }) {
  return (
    <span className={`status status-${kindOf(status)}`}>
      <span className="shape" aria-hidden="true" />
      {word ?? words(status)}
    </span>
  );
}

/** A time as people tell it, with the whole of it in the tooltip. */
export function Time({ at, ago = false }: { at: string | null | undefined; ago?: boolean }) {
  const zone = useZone();
  const now = useNow();
  if (!at) return <span className="faint">–</span>;
  const short = clock(at, zone, now);
  return (
    <time dateTime={at} title={`${exact(at, zone)} · ${relative(at, now)}`}>
      {ago ? relative(at, now) : short}
    </time>
  );
}

/** An id, cut in the middle; a click copies all of it. */
export function Id({ id }: { id: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(id).then(() => setCopied(true));
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button type="button" className="id" title={`${id} (click to copy)`} aria-label={`Copy ${id}`} onClick={copy}>
      {copied ? 'copied' : cut(id)}
    </button>
  );
}

/** Copies a text that people use elsewhere, such as a command. */
export function Copy({ text, children }: { text: string; children: ReactNode }) {
  const [copied, setCopied] = useState(false);
  return (
    <Button quiet onClick={() => void navigator.clipboard?.writeText(text).then(() => setCopied(true))} title={text}>
      {copied ? 'Copied' : children}
    </Button>
  );
}

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & { quiet?: boolean; strong?: boolean };

/** A button; strong is the one thing to do, quiet one of several. */
export function Button({ quiet, strong, ...rest }: ButtonProps) {
  return <button type="button" className={strong ? 'button strong' : quiet ? 'button quiet' : 'button'} {...rest} />;
}

/** Why something could not be read or done, and what to do about it. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const api = error instanceof ApiError ? error : undefined;
  return (
    <div className="note failure" role="alert">
      <p>{api ? api.message.replace(/^\d+: /, '') : error instanceof InputError ? error.message : 'The service does not answer. What is shown may be old.'}</p>
      {api?.hint && <p className="faint">{api.hint}</p>}
      {api?.requestId && <p className="faint">Request <code>{api.requestId}</code></p>}
      {retry && <Button quiet onClick={retry}>Try again</Button>}
    </div>
  );
}

/** What stands where there is nothing yet: a sentence, and what fills it. */
export function Empty({ children }: { children: ReactNode }) {
  return <div className="note empty">{children}</div>;
}

/** Bars in the place of what is being read, after a moment: most answers come sooner. */
export function Loading() {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return shown ? <div className="loading" role="status" aria-label="Loading"><span /><span /><span /></div> : null;
}

/** A heading with what can be done beside it. */
export function Head({ title, children, back }: { title: ReactNode; children?: ReactNode; back?: { to: string; label: string } }) {
  return (
    <header className="head">
      <div>
        {back && <Link to={back.to} className="back">{back.label}</Link>}
        <h1>{title}</h1>
      </div>
      <div className="actions">{children}</div>
    </header>
  );
}

/** Names and values side by side. */
export function Facts({ facts }: { facts: ReadonlyArray<readonly [string, ReactNode]> }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface AskProps {
  title: string;
  children: ReactNode;
  action: string;
  busy?: boolean;
  /** Something is missing before it can be done. */
  disabled?: boolean;
  error?: unknown;
  /** Whether there is nothing to give up: it only shows something. */
  shows?: boolean;
  /** Another button of the form. */
  beside?: ReactNode;
  onGo: () => void;
  onClose: () => void;
}

/** Asks before something is done: what it is, how much of it, and what comes of it. */
export function Ask({ title, children, action, busy, disabled, error, shows, beside, onGo, onClose }: AskProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-label={title}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          onGo();
        }}
      >
        <h2>{title}</h2>
        {children}
        {error != null && <Failure error={error} />}
        <div className="actions">
          {!shows && <Button onClick={() => dialog.current?.close()}>Cancel</Button>}
          {beside}
          <button className="button strong" type="submit" disabled={busy || disabled}>{busy ? 'One moment…' : action}</button>
        </div>
      </form>
    </dialog>
  );
}
