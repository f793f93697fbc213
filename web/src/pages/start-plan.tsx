import type { Definition, Estimate, Lane, Pacing, Priority, TriggerRequest } from '../api/client';
import { read, write } from '../lib/exact';
import { count, span, words } from '../lib/format';
import { Facts, Failure, Loading, Time } from '../ui/parts';
import { useRehearsal } from './start-rehearsal';

/** What somebody chose for a start, as it was typed in. */
export interface Form {
  lane: Lane | '';
  priority: Priority;
  records: string;
  minutes: string;
  at: string;
  metadata: string;
}

export const blank: Form = { lane: '', priority: 'normal', records: '', minutes: '', at: '', metadata: '' };

const lanes: Lane[] = ['interactive', 'compliance', 'bulk', 'backfill'];

/** What the form says to the operation that starts a batch; a sentence where it says nothing that makes sense. */
export function planOf(form: Form): TriggerRequest | string {
  const pacing = paceOf(form);
  if (typeof pacing === 'string') return pacing;
  const metadata = notesOf(form.metadata);
  if (typeof metadata === 'string') return metadata;
  return {
    ...(form.lane ? { lane: form.lane } : {}), ...(form.priority === 'high' ? { priority: 'high' } : {}), ...(pacing ? { pacing } : {}),
    ...(form.at ? { scheduled_at: new Date(form.at).toISOString() } : {}), ...(metadata ? { metadata } : {}),
  };
}

function paceOf({ records, minutes }: Form): Pacing | undefined | string {
  if (records === '' && minutes === '') return undefined;
  const whole = (text: string, most: number) => /^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= most;
  if (!whole(records, 1_000_000) || !whole(minutes, 1440)) return 'A pace is 1 to 1 000 000 records each 1 to 1440 minutes: give both, or none.';
  return { records_per_period: Number(records), period_minutes: Number(minutes) };
}

/** The metadata as the text of JSON, `{}` while it is not a JSON object. */
export function metadataOf(form: Form): string {
  const notes = notesOf(form.metadata);
  return typeof notes === 'object' ? write(notes) : '{}';
}

function notesOf(text: string): Record<string, unknown> | undefined | string {
  if (text.trim() === '') return undefined;
  try {
    const value = read(text);
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch { /* said below */ }
  return 'The metadata must be a JSON object.';
}

interface Props {
  flow: Definition;
  records: number;
  sample: string | undefined;
  form: Form;
  change: (form: Form) => void;
  fixed: boolean;
}

/** What the start costs, and the choices that change when it is done. */
export function Settings({ flow, records, sample, form, change, fixed }: Props) {
  const run = useRehearsal(flow, { sample, records, metadata: metadataOf(form) });
  const pace = paceOf(form);
  const set = (part: Partial<Form>) => change({ ...form, ...part });
  return (
    <>
      {run.isPending && <Loading />}
      {run.error && <Failure error={run.error} retry={() => void run.refetch()} />}
      {run.data && (run.data.estimate ? <Cost estimate={run.data.estimate} /> : <p>The flow spends no limited budget.</p>)}
      {run.data?.allowed_failures != null && <p className="faint">The batch stops when more than {count(run.data.allowed_failures)} records have failed.</p>}
      <fieldset disabled={fixed}>
        <div className="fields">
          <label>
            Lane
            <select value={form.lane} onChange={(e) => set({ lane: e.target.value as Lane | '' })}>
              <option value="">{flow.lane ? `as the flow says: ${flow.lane}` : 'as the action says'}</option>
              {lanes.map((lane) => <option key={lane} value={lane}>{lane}</option>)}
            </select>
          </label>
          <label>
            Priority in its lane
            <select value={form.priority} onChange={(e) => set({ priority: e.target.value as Priority })}>
              <option value="normal">normal</option>
              <option value="high">high</option>
            </select>
          </label>
          <label>
            Not before (your time)
            <input type="datetime-local" value={form.at} onChange={(e) => set({ at: e.target.value })} />
          </label>
          <div>
            <span id="start-pace">Pace</span>
            <span className="pace">
              <input inputMode="numeric" aria-label="Records each time" placeholder="any" value={form.records} onChange={(e) => set({ records: e.target.value.trim() })} />
              records each
              <input inputMode="numeric" aria-label="Minutes between two times" placeholder="–" value={form.minutes} onChange={(e) => set({ minutes: e.target.value.trim() })} />
              minutes
            </span>
            {pace !== undefined && typeof pace !== 'string' && <p className="faint">{released(records, pace)}</p>}
          </div>
        </div>
        <details>
          <summary>Metadata</summary>
          <label>
            A JSON object, which expressions read as <code>metadata</code>
            <textarea rows={3} spellCheck={false} placeholder='{"campaign": "spring"}' defaultValue={form.metadata} onBlur={(e) => set({ metadata: e.target.value })} />
          </label>
        </details>
      </fieldset>
    </>
  );
}

function released(records: number, { records_per_period: each, period_minutes: minutes }: Pacing): string {
  const times = Math.ceil(records / each);
  return times <= 1 ? 'All records fit into the first release.' : `${count(times)} releases; the last ${span((times - 1) * minutes * 60)} after the first, at the soonest.`;
}

function Cost({ estimate: e }: { estimate: Estimate }) {
  const c = e.completion;
  const facts: Array<[string, React.ReactNode]> = [
    ['Calls', count(e.estimated_calls)], ['Records in a call, at most', count(e.max_records_per_request)],
  ];
  if (e.queued_estimated_calls > 0) facts.push(['Calls that wait already', count(e.queued_estimated_calls)]);
  if (e.pct_of_remaining_day !== null) facts.push(['Of what is left today', share(e.pct_of_remaining_day)]);
  if (e.day_remaining_calls !== null) facts.push(['Left today', `${count(e.day_remaining_calls)}${e.day_cap === null ? '' : ` of ${count(e.day_cap)}`}`]);
  facts.push(['Done by', c.eta_at ? <><Time at={c.eta_at} /> (in {span(c.eta_seconds ?? 0)})</> : `nobody can say: ${words(c.unknown_reason ?? c.binding_source)}`]);
  return (
    <>
      <Facts facts={facts} />
      {e.warning && <div className="note attention">{e.warning}</div>}
      {c.hold_causes.length > 0 && <div className="note attention">Paused now: {c.hold_causes.map(words).join(', ')}</div>}
      <p className="faint">Of the budget {e.bucket}, if it were started now and at full speed{c.caveats.length > 0 ? `; ${c.caveats.map((name) => caveats[name] ?? words(name)).join('; ')}` : ''}.</p>
    </>
  );
}

/** What the words of the estimate mean. */
const caveats: Record<string, string> = {
  estimated_calls_pre_coalescing_projection: 'records of several batches may share a call, so that it may take fewer',
  batch_sample_truncated: 'a record may make more calls than can be told before, so that it may take longer',
};

const share = (percent: number): string => (percent > 0 && percent < 1 ? '< 1 %' : `${count(Math.round(percent))} %`);
