import type { Definition } from '../api/client';
import { count, percent } from '../lib/format';
import { readsOf } from '../lib/reads';
import type { Report } from '../upload/report';

interface Row {
  name: string;
  /** How many records have something in it; undefined where the file has no such column. */
  filled: number | undefined;
  required: boolean;
  described: boolean;
  read: boolean;
}

/** The columns of the file and the fields that the flow wants, missing ones first. */
export function rowsOf(flow: Definition, report: Report): { rows: Row[]; whole: boolean } {
  const reads = readsOf([flow.key, flow.steps]);
  const schema = (flow.input_schema ?? {}) as { required?: unknown; properties?: unknown };
  const required = new Set(Array.isArray(schema.required) ? schema.required.map(String) : []);
  const described = new Set(schema.properties !== null && typeof schema.properties === 'object' ? Object.keys(schema.properties!) : []);
  const filled = new Map(report.columns.map((c) => [c.name, c.filled]));
  const names = new Set([...required, ...reads.fields, ...filled.keys()]);
  const rows = [...names].map((name) => ({
    name, filled: filled.get(name), required: required.has(name), described: described.has(name), read: reads.fields.has(name),
  }));
  return { rows: rows.sort((a, b) => Number(a.filled !== undefined) - Number(b.filled !== undefined)), whole: reads.whole };
}

const shown = 50;

/** The columns of a file against what the flow reads of a record. */
export function Columns({ flow, report }: { flow: Definition; report: Report }) {
  const { rows, whole } = rowsOf(flow, report);
  const missing = rows.filter((r) => r.required && r.filled === undefined);
  const unread = rows.filter((r) => r.read && !r.required && r.filled === undefined);
  return (
    <>
      {missing.length > 0 && (
        <div className="note failure" role="alert">Every record will fail: the input schema requires {list(missing)}, and the file has no such column.</div>
      )}
      {unread.length > 0 && <div className="note attention">The flow reads {list(unread)}, which the file does not have; there it finds null.</div>}
      {whole && <p>The flow takes each record as a whole, so every column goes into what is sent.</p>}
      <div className="scroll">
        <table>
          <thead><tr><th>Field</th><th>In the file</th><th>In the flow</th></tr></thead>
          <tbody>
            {rows.slice(0, shown).map((r) => (
              <tr key={r.name}>
                <td><code>{r.name}</code></td>
                <td>{r.filled === undefined ? <span className={r.required ? 'bad' : ''}>no column</span> : r.filled === report.records ? 'in every record' : `in ${percent(r.filled, report.records)} of the records`}</td>
                <td>{use(r, whole)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown && <p className="faint">And {count(rows.length - shown)} more.</p>}
    </>
  );
}

const list = (rows: Row[]) => rows.map((r) => r.name).join(', ');

function use(r: Row, whole: boolean): string {
  const uses = [r.required ? 'required' : r.described ? 'in the input schema' : '', r.read ? 'read by name' : ''].filter((text) => text !== '');
  if (uses.length > 0) return uses.join(', ');
  return whole ? 'part of the whole record' : 'not read';
}
