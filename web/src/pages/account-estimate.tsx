import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';

import { flowlane, type BucketHeadroom } from '../api/client';
import { count, span, words } from '../lib/format';
import { Facts, Failure, Time } from '../ui/parts';

interface Props {
  path: { platform: string; tenancy_id: string };
  buckets: Record<string, BucketHeadroom>;
}

/** What would come of so many records more. */
export function WhatIf({ path, buckets }: Props) {
  const [bucket, setBucket] = useState(Object.keys(buckets)[0] ?? '');
  const [records, setRecords] = useState('');
  const ask = useMutation({ mutationFn: () => flowlane.dispatch.estimateUpload({ path, body: { bucket, record_count: Number(records) } }) });
  if (bucket === '') return null;
  const e = ask.data;
  return (
    <section>
      <h2>What if more came?</h2>
      <form
        className="what-if"
        onSubmit={(event) => {
          event.preventDefault();
          ask.mutate();
        }}
      >
        <label>Records<input type="number" min="1" step="1" required value={records} onChange={(ev) => setRecords(ev.target.value)} /></label>
        <label>
          Budget
          <select value={bucket} onChange={(ev) => setBucket(ev.target.value)}>
            {Object.entries(buckets).map(([name, b]) => <option key={name} value={name}>{b.label}</option>)}
          </select>
        </label>
        <button type="submit" className="button" disabled={ask.isPending}>Estimate</button>
      </form>
      {ask.error && <Failure error={ask.error} />}
      {e && (
        <div role="status">
          <Facts
            facts={[
              ['Calls', count(e.estimated_calls)], ['Calls that wait before them', count(e.queued_estimated_calls)],
              ['Of what is left of the day', e.pct_of_remaining_day === null ? '–' : `${e.pct_of_remaining_day < 1 && e.pct_of_remaining_day > 0 ? '< 1' : Math.ceil(e.pct_of_remaining_day)} %`],
              ['Done', e.completion.eta_at
                ? <><Time at={e.completion.eta_at} /> (in {span(e.completion.eta_seconds ?? 0)})</>
                : `nobody can say: ${words(e.completion.unknown_reason ?? e.completion.binding_source)}`],
            ]}
          />
          {e.spills_past_day_cap && <p className="note attention">They do not fit into what is left of the day.</p>}
          {e.warning && <p className="note attention">{e.warning}</p>}
        </div>
      )}
    </section>
  );
}
