import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from 'react';

import { ApiError, flowlane, type Definition, type ValidationEntry } from '../api/client';
import { useChange } from '../api/live';
import { count } from '../lib/format';
import { locate, scan, type Mistake } from '../lib/json';
import { Ask, Button, Failure, Loading } from '../ui/parts';
import { Diff } from './flow-diff';
import { Rehearse } from './flow-rehearse';
import { TextEditor } from './text-editor';

/** The library for YAML is read where somebody wants YAML. */
const YamlEditor = lazy(() => import('./yaml-editor'));

/** Milliseconds between the last key and the check of what was typed. */
const pause = 600;

interface Draft {
  text: string;
  version: number | undefined;
}

/** A draft stays until it is saved or thrown away, also when the page is read anew. */
function useDraft(flow: Definition | undefined): [Draft | undefined, (text: string | undefined) => void] {
  const place = `flow-draft ${flow?.id ?? 'new'}`;
  const [draft, setDraft] = useState<Draft | undefined>(() => {
    const kept = sessionStorage.getItem(place);
    return kept === null ? undefined : (JSON.parse(kept) as Draft);
  });
  return [draft, (text) => {
    const next = text === undefined ? undefined : { text, version: draft ? draft.version : flow?.version };
    setDraft(next);
    if (next) sessionStorage.setItem(place, JSON.stringify(next));
    else sessionStorage.removeItem(place);
  }];
}

/** The text of a flow, with its mistakes, a rehearsal beside it, and what saves it. */
export function Editor({ flow, before, reason }: { flow?: Definition; before: string; reason: string | undefined }) {
  const [draft, setDraft] = useDraft(flow);
  const [sample, setSample] = useState('{}');
  const [saves, setSaves] = useState(false);
  const [yaml, setYaml] = useState(false);
  const [broken, setBroken] = useState(false);
  const text = draft?.text ?? before;
  const changed = flow === undefined || text !== before;
  const check = useCheck(text);
  const stops = reason ?? (!changed ? 'Nothing was changed' : broken || check.scanned.mistake || check.mistakes.length > 0 ? 'Mend the mistakes first' : undefined);
  const change = (value: string) => setDraft(flow && value === before ? undefined : value);
  const shared = { fields: fieldsOf(check.flow, sample), flow: check.flow, mistakes: check.mistakes, readOnly: reason !== undefined };
  return (
    <div className="editing">
      <section aria-label="Text" onKeyDown={(event) => {
        if (event.key.toLowerCase() !== 's' || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        if (stops === undefined) setSaves(true);
      }}>
        {flow && draft && draft.version !== flow.version && changed && (
          <div className="note attention" role="status">
            This draft began with version {draft.version}; the newest is {flow.version}. Look at what differs before you save.
          </div>
        )}
        <label className="inline">
          Written as
          <select value={yaml ? 'yaml' : 'json'} disabled={broken || check.scanned.mistake !== undefined} onChange={(event) => setYaml(event.target.value === 'yaml')}>
            <option value="json">JSON</option><option value="yaml">YAML</option>
          </select>
          {yaml && <span className="faint">Comments are not kept.</span>}
        </label>
        {yaml ? (
          <Suspense fallback={<Loading />}>
            <YamlEditor key={flow?.version} json={text} {...shared} onJson={change} onBroken={setBroken} />
          </Suspense>
        ) : <TextEditor text={text} {...shared} onChange={change} />}
        {!broken && <State check={check} />}
        <div className="state">
          <Button strong disabled={stops !== undefined} title={stops} onClick={() => setSaves(true)}>{flow ? 'Save…' : 'Create…'}</Button>
          {draft && <Button quiet onClick={() => { setBroken(false); setDraft(undefined); }}>Throw the draft away</Button>}
          <span className="faint">{reason ?? 'Ctrl-Space completes, F8 goes to the next mistake, Ctrl-S saves.'}</span>
        </div>
      </section>
      <Rehearse flow={flow} text={text} changed={changed} sample={sample} onSample={setSample} />
      {saves && <Save flow={flow} before={before} text={text} onSaved={() => setDraft(undefined)} onClose={() => setSaves(false)} />}
    </div>
  );
}

/** The fields that a record may have: those of the input schema, and those of the sample. */
function fieldsOf(flow: unknown, sample: string): string[] {
  const schema = (flow as { input_schema?: { properties?: object } | null } | undefined)?.input_schema?.properties ?? {};
  let row: unknown;
  try {
    row = JSON.parse(sample);
  } catch { /* it is being typed */ }
  return [...new Set([...Object.keys(schema), ...(typeof row === 'object' && row !== null ? Object.keys(row) : [])])];
}

/** Has the service check a text once nobody types any more; too many checks wait and are made later. */
function useCheck(text: string) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), pause);
    return () => clearTimeout(timer);
  }, [text]);
  const scanned = useMemo(() => scan(text), [text]);
  const last = useRef<unknown>(undefined);
  const flow = useMemo(() => (scanned.root ? (last.current = JSON.parse(text) as unknown) : last.current), [scanned, text]);
  const answer = useQuery({
    queryKey: ['check of a flow', settled],
    queryFn: ({ signal }) => flowlane.definitions.validate({ body: settled as never, bodySerializer: null, signal }),
    enabled: scan(settled).root !== undefined,
    retry: (failures, error) => error instanceof ApiError && error.status === 429 && failures < 6,
    retryDelay: (failures) => 4000 * 2 ** failures,
    staleTime: 60_000,
    gcTime: 60_000,
    refetchOnWindowFocus: false,
  });
  const refused = answer.error instanceof ApiError && answer.error.status === 422 ? answer.error : undefined;
  const mistakes = useMemo((): Array<Mistake & { path?: string[] }> => {
    if (scanned.mistake) return [scanned.mistake];
    if (settled !== text) return [];
    return (answer.data?.errors ?? refused?.fields ?? []).map((entry) => placed(scanned.root!, entry));
  }, [scanned, settled, text, answer.data, refused]);
  return {
    scanned, flow, mistakes, waits: settled !== text || answer.isFetching, limited: answer.failureReason instanceof ApiError && answer.failureReason.status === 429,
    warnings: settled === text ? (answer.data?.warnings ?? []) : [], error: refused && refused.fields.length > 0 ? null : answer.error,
  };
}

/** Where a mistake that the service found stands in the text. */
function placed(root: NonNullable<ReturnType<typeof scan>['root']>, { loc, msg }: ValidationEntry): Mistake & { path?: string[] } {
  const path = loc.slice(1);
  const { place } = locate(root, path);
  return { at: place.from, path, message: `${path.join('.')}: ${msg}` };
}

function State({ check }: { check: ReturnType<typeof useCheck> }) {
  const { mistakes, warnings, waits, limited, error } = check;
  const word = mistakes.length > 0 ? `${count(mistakes.length)} ${mistakes.length === 1 ? 'mistake' : 'mistakes'}`
    : waits ? (limited ? 'Many checks were made; this one waits a moment.' : 'Checking…') : error ? '' : 'No mistakes';
  return (
    <>
      <p role="status" className={mistakes.length > 0 ? 'bad state' : 'faint state'}>{word}</p>
      {!waits && error && <Failure error={error} />}
      {warnings.map((w) => <div key={w} className="note">{w}</div>)}
    </>
  );
}

interface SaveProps {
  flow: Definition | undefined;
  before: string;
  text: string;
  onSaved: () => void;
  onClose: () => void;
}

/** Shows what changes, then saves it. */
function Save({ flow, before, text, onSaved, onClose }: SaveProps) {
  const navigate = useNavigate();
  const save = useChange(async () => {
    if (flow) {
      await flowlane.definitions.replace({ path: { definition_id: flow.id }, body: text as never, bodySerializer: null });
      onSaved();
      return;
    }
    const made = await flowlane.definitions.create({ body: text as never, bodySerializer: null });
    onSaved();
    await navigate({ to: '/flows/$flowId', params: { flowId: made.id } });
  }, onClose);
  return (
    <div className="wide-dialog">
      <Ask title={flow ? `Save ${flow.name}` : 'Create this flow'} action={flow ? 'Save' : 'Create'} busy={save.isPending} error={save.error}
        onGo={() => save.mutate(undefined)} onClose={onClose}>
        {flow && <p>New starts take it from now on. What runs goes on with its own version.</p>}
        <Diff before={flow ? before : ''} after={text} names={flow ? [`Version ${flow.version}`, 'Your text'] : ['Nothing', 'Your text']} />
      </Ask>
    </div>
  );
}
