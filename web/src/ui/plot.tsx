import { count } from '../lib/format';
import { Time } from './parts';
import './plot.css';

/** What happened from one moment on, as amounts upon each other. */
export interface Column {
  at: string;
  parts: Array<{ kind: 'ok' | 'failed' | 'running'; value: number }>;
  /** What of it there might have been at most. */
  cap?: number;
  /** What somebody else counted. */
  mark?: number;
}

interface Props {
  label: string;
  columns: Column[];
  /** Seconds that each column stands for. */
  seconds: number;
  /** Times at which something held. */
  spans?: Array<{ from: string; to: string | null; text: string }>;
  heads: { at: string; parts: string[]; cap?: string; mark?: string };
}

const height = 100;
/** How many columns there is room for at least, so that one alone is not as wide as the page. */
const least = 30;
const total = (c: Column): number => c.parts.reduce((sum, p) => sum + p.value, 0);

/** Amounts over time, as columns and as a table. Times without a column are empty. */
export function Plot({ label, columns, seconds, spans = [], heads }: Props) {
  const times = columns.map((c) => Date.parse(c.at));
  const ends = spans.flatMap((s) => [Date.parse(s.from), s.to ? Date.parse(s.to) : Date.now()]);
  const to = Math.max(...times.map((t) => t + seconds * 1000), ...ends);
  const from = Math.min(...times, ...ends, to - least * seconds * 1000);
  const most = Math.max(1, ...columns.map((c) => Math.max(total(c), c.cap ?? 0, c.mark ?? 0)));
  const x = (ms: number) => (1000 * (ms - from)) / (to - from);
  const y = (value: number) => height - (height * value) / most;
  const width = Math.max(1.5, (1000 * seconds * 1000 * 0.85) / (to - from));
  const caps = columns.filter((c) => c.cap !== undefined);
  return (
    <figure className="plot">
      <svg viewBox={`0 0 1000 ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {spans.map((s) => (
          <rect
            key={s.from} className="held" x={x(Date.parse(s.from))} y="0" height={height}
            width={Math.max(2, x(s.to ? Date.parse(s.to) : Date.now()) - x(Date.parse(s.from)))}
          >
            <title>{s.text}</title>
          </rect>
        ))}
        {columns.map((c, i) => {
          let below = 0;
          return (
            <g key={c.at}>
              {c.parts.map((p, n) => {
                below += p.value;
                return <rect key={n} className={`fill-${p.kind}`} x={x(times[i]!)} width={width} y={y(below)} height={y(0) - y(p.value)} />;
              })}
              {c.mark !== undefined && <rect className="mark" x={x(times[i]!)} width={width} y={Math.max(0, y(c.mark) - 1)} height="2" />}
            </g>
          );
        })}
        {caps.length > 0 && (
          <polyline
            className="cap" fill="none"
            points={caps.map((c) => `${x(Date.parse(c.at))},${y(c.cap!)} ${x(Date.parse(c.at)) + width},${y(c.cap!)}`).join(' ')}
          />
        )}
      </svg>
      <figcaption className="faint">
        <Time at={new Date(from).toISOString()} /> to <Time at={new Date(to).toISOString()} /> · the top is {count(most)}
      </figcaption>
      <details>
        <summary>As a table</summary>
        <div className="scroll table" tabIndex={0} role="group" aria-label={label}>
          <table>
            <thead>
              <tr>
                <th>{heads.at}</th>
                {heads.parts.map((h) => <th key={h} className="number">{h}</th>)}
                {heads.cap && <th className="number">{heads.cap}</th>}
                {heads.mark && <th className="number">{heads.mark}</th>}
              </tr>
            </thead>
            <tbody>
              {columns.map((c) => (
                <tr key={c.at}>
                  <td><Time at={c.at} /></td>
                  {c.parts.map((p, i) => <td key={i} className="number">{count(p.value)}</td>)}
                  {heads.cap && <td className="number">{c.cap === undefined ? '–' : count(c.cap)}</td>}
                  {heads.mark && <td className="number">{c.mark === undefined ? '–' : count(c.mark)}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}
