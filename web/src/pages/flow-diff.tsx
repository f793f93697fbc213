import { diff, type DiffLine } from '../lib/diff';

/** Lines that stay around each change. */
const around = 3;

/** Two texts side by side, of which only the lines near a change are shown. */
export function Diff({ before, after, names }: { before: string; after: string; names: [string, string] }) {
  const lines = diff(before, after);
  if (lines.every((l) => l.same)) return <p className="faint">Nothing differs.</p>;
  const near = lines.map((_, i) => lines.slice(Math.max(0, i - around), i + around + 1).some((l) => !l.same));
  return (
    <div className="scroll high" role="region" aria-label="What differs" tabIndex={0}>
      <table className="diff">
        <thead><tr><th>{names[0]}</th><th>{names[1]}</th></tr></thead>
        <tbody>
          {lines.map((line, i) => (near[i] ? <Row key={i} line={line} /> : near[i - 1] || i === 0
            ? <tr key={i}><td colSpan={2} className="skipped">…</td></tr> : null))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ line: { before, after, same } }: { line: DiffLine }) {
  return (
    <tr>
      <td className={same || before === undefined ? undefined : 'gone'}>{before !== undefined && (same ? '  ' : '− ')}{before}</td>
      <td className={same || after === undefined ? undefined : 'come'}>{after !== undefined && (same ? '  ' : '+ ')}{after}</td>
    </tr>
  );
}
