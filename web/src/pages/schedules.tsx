import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type Fire, type FireStatus, type Schedule, type ScheduleInput, type SchedulePreview } from '../api/client';
import { useLive } from '../api/live';
import { exactly } from '../lib/exact';
import { words } from '../lib/format';
import { RequestKey } from '../lib/key';
import { useFlows } from '../ui/flows';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Listing } from '../ui/listing';
import { Facts, Failure, Head, Id, Loading, Status, Time } from '../ui/parts';
import { Choice } from './batches';
import { Strip } from './schedule-strip';

/** What starts by the clock, when next, and what became of it last. */
export function Schedules() {
  const flows = useFlows();
  return (
    <>
      <Head title="Schedules">
        <Act label="New schedule" strong ask={(close) => <Edit close={close} />} />
      </Head>
      <Listing<Schedule>
        of={['schedules']} row={(s) => s.id} empty="Nothing starts by the clock yet. Make a schedule of a flow that is active."
        read={(cursor, signal) => flowlane.schedules.list({ query: { limit: 50, cursor, order: 'desc' }, signal })}
        columns={[
          { head: 'Schedule', cell: (s) => <Link to="/schedules/$scheduleId" params={{ scheduleId: s.id }}>{s.description || s.cron_expression}</Link> },
          { head: 'Flow', cell: (s) => flows.get(s.definition_id) ?? 'a deleted flow' },
          { head: 'When', cell: (s) => <><code>{s.cron_expression}</code> <span className="faint">{s.timezone}</span></> },
          { head: 'Next', cell: (s) => (s.enabled ? <Time at={s.next_fire_at} /> : <Status status="paused" />) },
          { head: 'Last', cell: (s) => <><Time at={s.last_fired_at} /> {s.last_fire_status && <Status status={s.last_fire_status} />}</> },
        ]}
      />
    </>
  );
}

/** One schedule: its next slots, and what became of those before and why. */
export function SchedulePage() {
  const { scheduleId } = useParams({ from: '/frame/schedules/$scheduleId' });
  const { status } = useSearch({ from: '/frame/schedules/$scheduleId' });
  const navigate = useNavigate();
  const flows = useFlows();
  const path = { schedule_id: scheduleId };
  const read = useLive(['schedule', scheduleId], (signal) => exactly(flowlane.schedules.get({ path, signal, parseAs: 'text' })));
  const s = read.data;
  if (!s) return read.error ? <Failure error={read.error} retry={() => void read.refetch()} /> : <Loading />;
  const remove = async () => {
    await flowlane.schedules.delete({ path });
    await navigate({ to: '/schedules' });
  };
  return (
    <>
      <Head title={s.description || s.cron_expression} back={{ to: '/schedules', label: 'Schedules' }}>
        <Act label="Run now" ask={(close) => <Run scheduleId={scheduleId} close={close} />} />
        <Act label={s.enabled ? 'Pause' : 'Resume'} run={() => flowlane.schedules.update({ path, body: { enabled: !s.enabled } })} />
        <Act label="Edit" ask={(close) => <Edit schedule={s} close={close} />} />
        <Act
          label="Delete"
          ask={(close) => (
            <Confirm title="Delete this schedule" action="Delete it" onGo={remove} onClose={close}>
              <p>Nothing more starts by it. What it started stays.</p>
            </Confirm>
          )}
        />
      </Head>
      {read.error && <Failure error={read.error} retry={() => void read.refetch()} />}
      {s.warnings.map((w) => <p key={w} className="note attention">{w}</p>)}
      <p className="lead"><Status status={s.enabled ? 'enabled' : 'paused'} /> <Id id={s.id} /></p>
      <Facts
        facts={[
          ['Flow', flows.get(s.definition_id) ?? 'a deleted flow'], ['When', <code>{s.cron_expression}</code>], ['Zone', s.timezone],
          ['Caught up within', `${s.catch_up_seconds} s`], ['While the one before runs', s.overlap_policy === 'skip' ? 'skips' : 'starts'],
        ]}
      />
      <section>
        <h2>Next</h2>
        {(s.next_fires ?? []).length === 0 && <p className="faint">{s.enabled ? 'It never comes.' : 'Nothing while it is paused.'}</p>}
        <ol className="slots">
          {(s.next_fires ?? []).map((n) => <li key={n.at}><Time at={n.at} /> <span className="faint">{n.local}{n.note && ` · ${n.note}`}</span></li>)}
        </ol>
      </section>
      <section>
        <h2>What became of each</h2>
        <Strip schedule={s} />
        <div className="filters">
          <Choice
            label="Status" value={status} all={['fired', 'skipped', 'failed']} name={words}
            onChange={(v) => void navigate({ to: '/schedules/$scheduleId', params: { scheduleId }, search: { status: v as FireStatus | undefined } })}
          />
        </div>
        <Listing<Fire>
          of={['fires', scheduleId, status]} row={(f) => f.id} empty={status ? `No slot was ${status}.` : 'No slot has come yet.'}
          read={(cursor, signal) => flowlane.schedules.listFires({ path, query: { limit: 50, cursor, status }, signal })}
          columns={[
            { head: 'Slot', cell: (f) => <><Time at={f.slot_at} /> {f.manual && <span className="tag">by hand</span>}</> },
            { head: 'Status', cell: (f) => <Status status={f.status} /> },
            { head: 'Why', cell: (f) => f.reason ?? '' },
            { head: 'Batch', cell: (f) => f.batch_id && <Link to="/batches/$batchId" params={{ batchId: f.batch_id }}>The batch</Link> },
          ]}
        />
      </section>
    </>
  );
}

/** Asks before the flow of a schedule starts besides its slots. */
function Run({ scheduleId, close }: { scheduleId: string; close: () => void }) {
  const navigate = useNavigate();
  const [key] = useState(() => new RequestKey());
  const run = async () => {
    const headers = { 'Idempotency-Key': key.for(scheduleId) };
    const started = await flowlane.schedules.run({ path: { schedule_id: scheduleId }, headers });
    await navigate({ to: '/batches/$batchId', params: { batchId: started.batch_id }, search: {} });
  };
  return (
    <Confirm title="Run this schedule now" action="Run it" onGo={run} onClose={close}>
      <p>Its flow starts once, at once. When it starts next by the clock stays as it is.</p>
    </Confirm>
  );
}

/** The next slots of an expression that was typed. */
function Slots({ of }: { of: SchedulePreview }) {
  return (
    <div role="status" aria-label="Next slots">
      {of.warnings.map((w) => <p key={w} className="note attention">{w}</p>)}
      <ol>{of.next_fires.map((n) => <li key={n.at}><Time at={n.at} /> <span className="faint">{n.local}{n.note && ` · ${n.note}`}</span></li>)}</ol>
    </div>
  );
}

function Edit({ schedule: s, close }: { schedule?: Schedule; close: () => void }) {
  const flows = useFlows();
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const fields: Field[] = [
    { name: 'description', label: 'Name', value: s?.description, required: true },
    { name: 'definition_id', label: 'Flow', value: s?.definition_id, options: [...flows], required: true },
    { name: 'cron_expression', label: 'When', value: s?.cron_expression ?? '0 9 * * 1-5', required: true, hint: 'minute hour day month weekday' },
    { name: 'timezone', label: 'Zone', value: s?.timezone ?? zone, required: true },
    { name: 'catch_up_seconds', label: 'Still starts when late by seconds', kind: 'number', value: s?.catch_up_seconds ?? 0, required: true },
    { name: 'overlap_policy', label: 'While the one before runs', value: s?.overlap_policy ?? 'skip', options: [['skip', 'skip the slot'], ['allow', 'start all the same']] },
    { name: 'input_data', label: 'Input', kind: 'json', value: s?.input_data, hint: 'JSON; empty for none' },
  ];
  return (
    <Form
      title={s ? 'Edit the schedule' : 'New schedule'} action={s ? 'Save' : 'Make it'} fields={fields} onClose={close}
      attempt={{ label: 'Next slots', run: async (values) => <Slots of={await flowlane.schedules.preview({ body: { cron_expression: String(values.cron_expression), timezone: String(values.timezone) } })} /> }}
      onSend={(body) => s
        ? flowlane.schedules.update({ path: { schedule_id: s.id }, body })
        : flowlane.schedules.create({ body: body as unknown as ScheduleInput })}
    />
  );
}
