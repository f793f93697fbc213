import { Link, useNavigate, useSearch } from '@tanstack/react-router';

import { flowlane, type ActiveHold, type Batch, type Dashboard } from '../api/client';
import { useLive } from '../api/live';
import { count, percent, span, words } from '../lib/format';
import { RecordBar } from '../ui/bar';
import { Empty, Facts, Failure, Head, Loading, Status, Time } from '../ui/parts';
import { Attention } from './attention';

const periods = ['1h', '24h', '7d', '30d'] as const;

/** What runs, what waits, and what needs somebody. */
export function Overview() {
  const { period = '24h' } = useSearch({ from: '/frame/' });
  const navigate = useNavigate();
  const dashboard = useLive(['dashboard', period], (signal) => flowlane.usage.getDashboard({ query: { period }, signal }), true);
  const running = useLive(['batches', 'running', 'newest'], (signal) => flowlane.batches.list({ query: { status: 'running', order: 'desc', limit: 10 }, signal }), true);
  const data = dashboard.data;
  return (
    <>
      <Head title="Overview">
        <label className="inline">
          Period{' '}
          <select value={period} onChange={(event) => void navigate({ to: '/', search: { period: event.target.value as typeof period } })}>
            {periods.map((p) => <option key={p} value={p}>{p}</option>)}
          </select>
        </label>
      </Head>
      {dashboard.error && <Failure error={dashboard.error} retry={() => void dashboard.refetch()} />}
      {!data ? <Loading /> : <><Figures dashboard={data} /><Attention dashboard={data} /></>}
      <section>
        <h2>Moving now</h2>
        {running.data && (running.data.items.length > 0 ? <Moving batches={running.data.items} /> : (
          <Empty>
            No batch runs. Start one from a terminal with <code>flowlane run FLOW FILE.csv --watch</code>, or look at{' '}
            <Link to="/batches">all batches</Link>.
          </Empty>
        ))}
      </section>
      {data && data.active_holds.length > 0 && <Holds holds={data.active_holds} more={data.active_hold_count - data.active_holds.length} />}
      {data && <Series dashboard={data} />}
      {data && data.failing_definitions.length > 0 && (
        <section>
          <h2>Flows that fail most</h2>
          <table>
            <thead><tr><th>Flow</th><th className="number">Batches</th><th className="number">Records</th><th className="number">Failed</th></tr></thead>
            <tbody>
              {data.failing_definitions.map((d) => (
                <tr key={d.definition_id}>
                  <td><Link to="/batches" search={{ flow: d.definition_id }}>{d.name ?? d.definition_id}</Link></td>
                  <td className="number">{count(d.batches)}</td>
                  <td className="number">{count(d.jobs)}</td>
                  <td className="number">{count(d.failed)} ({percent(d.failed, d.jobs)})</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </>
  );
}

function Figures({ dashboard }: { dashboard: Dashboard }) {
  const { batch_counts: batches, job_counts: jobs } = dashboard;
  const failed = jobs.failed + jobs.rejected;
  return (
    <>
      <Facts
        facts={[
          ['Running batches', <Link to="/batches" search={{ status: 'running' }}>{count(batches.running)}</Link>],
          ['Waiting batches', <Link to="/batches" search={{ status: 'queued' }}>{count(batches.queued)}</Link>],
          ['Paused batches', <Link to="/batches" search={{ status: 'paused' }}>{count(batches.paused)}</Link>],
          ['Records done', count(jobs.completed + jobs.accepted)],
          ['Records failed', <span className={failed > 0 ? 'bad' : ''}>{count(failed)}</span>],
          ['Succeeded', dashboard.success_rate == null ? '–' : percent(dashboard.success_rate, 1)],
        ]}
      />
    </>
  );
}

function Moving({ batches }: { batches: Batch[] }) {
  return (
    <ul className="cards">
      {batches.map((b) => (
        <li key={b.id}>
          <Link to="/batches/$batchId" params={{ batchId: b.id }} className="card">
            <span><Status status={b.status} /> {count(b.record_count)} records · {words(b.trigger_type)} · <Time at={b.created_at} ago /></span>
            <RecordBar counts={b.job_counts} records={b.record_count} />
            <span className="faint">{b.status_reason ?? `${Math.floor(b.progress_percent)} %`}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}

function Holds({ holds, more }: { holds: ActiveHold[]; more: number }) {
  return (
    <section>
      <h2>Pauses in force</h2>
      <table>
        <thead><tr><th>What</th><th>Why</th><th>Since</th><th>Until</th></tr></thead>
        <tbody>
          {holds.map((h) => (
            <tr key={h.id}>
              <td>{h.batch_id ? <Link to="/batches/$batchId" params={{ batchId: h.batch_id }}>one batch</Link> : [words(h.scope), h.lane, h.bucket].filter(Boolean).join(' · ')}</td>
              <td>{h.reason ?? words(h.cause)}</td>
              <td><Time at={h.created_at} /></td>
              <td>{h.expires_at ? <Time at={h.expires_at} /> : 'somebody resumes it'}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {more > 0 && <p className="faint">and {count(more)} more</p>}
    </section>
  );
}

/** Records that succeeded and failed over the period, as columns. */
function Series({ dashboard }: { dashboard: Dashboard }) {
  const points = dashboard.series;
  const most = Math.max(1, ...points.map((p) => p.succeeded + p.failed));
  if (points.every((p) => p.jobs === 0)) return null;
  const step = 100 / Math.max(points.length, 1);
  const total = points.reduce((sum, p) => ({ ok: sum.ok + p.succeeded, bad: sum.bad + p.failed }), { ok: 0, bad: 0 });
  const label = `Records that ended in the last ${dashboard.period}: ${count(total.ok)} succeeded, ${count(total.bad)} failed`;
  return (
    <section>
      <h2>Records that ended, by {span(dashboard.interval_seconds)}</h2>
      <svg className="columns" viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label={label}>
        <title>{label}</title>
        {points.map((p, i) => {
          const ok = (30 * p.succeeded) / most;
          const bad = (30 * p.failed) / most;
          return (
            <g key={p.starts_at}>
              <rect className="fill-ok" x={i * step} y={30 - ok} width={step * 0.8} height={ok} />
              <rect className="fill-failed" x={i * step} y={30 - ok - bad} width={step * 0.8} height={bad} />
            </g>
          );
        })}
      </svg>
      <p className="faint">From <Time at={dashboard.from} /> to <Time at={dashboard.to} />; the highest column is {count(most)} records.</p>
    </section>
  );
}
