import { Link } from '@tanstack/react-router';
import { useRef, useState } from 'react';

import type { RecordSet } from '../api/client';
import { count } from '../lib/format';
import { Button, Facts, Failure, Loading, Status, Time } from '../ui/parts';
import { take, type Job, type State } from '../upload/job';
import type { Report } from '../upload/report';
import { formatOf } from '../upload/rows';
import { Progress, useFocus } from './start-progress';

const size = (bytes: number): string =>
  bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

/** Where a file is dropped or chosen, and what it holds. */
export function FileSource({ current }: { current: { job: Job; state: State } | undefined }) {
  const [refused, setRefused] = useState('');
  const offer = (file: File | undefined) => {
    if (!file) return;
    const known = formatOf(file.name);
    setRefused(known ? '' : refusal(file.name));
    if (known) take(file);
  };
  return (
    <>
      {!current && <Drop offer={offer} />}
      {refused && <div className="note failure" role="alert">{refused}</div>}
      {current && <Held {...current} />}
    </>
  );
}

function refusal(name: string): string {
  return /\.xls[mb]?$/i.test(name)
    ? `${name} is a workbook of another format than .xlsx. In Excel, save it as “Excel Workbook (.xlsx)”, and drop that.`
    : `${name} is none of .csv, .ndjson and .xlsx: rename it after its format.`;
}

function Drop({ offer }: { offer: (file: File | undefined) => void }) {
  const [over, setOver] = useState(false);
  return (
    <label
      className={over ? 'drop over' : 'drop'} onDragOver={(e) => { e.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
      onDrop={(e) => {
        e.preventDefault();
        setOver(false);
        offer(e.dataTransfer.files[0]);
      }}
    >
      <input type="file" aria-label="File of records" aria-describedby="start-formats" accept=".csv,.ndjson,.jsonl,.xlsx" onChange={(e) => offer(e.target.files?.[0])} />
      <strong>Drop a file here, or choose one</strong>
      <span className="faint" id="start-formats">
        CSV or the first sheet of a workbook (XLSX), whose first line names the columns, or NDJSON with one object a line; text in UTF-8.
        It is read here, and sent when you start.
      </span>
    </label>
  );
}

function Held({ job, state }: { job: Job; state: State }) {
  const { report, phase, read, error } = state;
  const busy = ['sending', 'starting'].includes(phase);
  const name = useRef<HTMLParagraphElement>(null);
  useFocus(name);
  return (
    <>
      <p className="lead" ref={name} tabIndex={-1}>
        <strong>{job.file.name}</strong> <span className="faint">{size(job.file.size)}</span>
        <Button quiet disabled={busy} title={busy ? 'Pause the upload first' : undefined} onClick={() => take(undefined)}>Another file</Button>
      </p>
      {phase === 'reading' && <Progress label="Reading" part={read} whole={job.file.size} text={`${size(read)} of ${size(job.file.size)} read`} />}
      {error != null && !report && <Failure error={error} />}
      {report && <What report={report} />}
      {state.found && phase === 'read' && <Found set={state.found} report={report!} />}
    </>
  );
}

/** Says that some or all of the file is there already. */
function Found({ set, report }: { set: RecordSet; report: Report }) {
  return (
    <div className="note" role="status">
      {set.status === 'sealed'
        ? <>This file was uploaded <Time at={set.created_at} ago /> and nothing was started with it: it is not sent again.</>
        : <>{count(set.received_count)} of {count(report.records)} records were uploaded <Time at={set.updated_at} ago />: the upload goes on from there.</>}
    </div>
  );
}

function What({ report: r }: { report: Report }) {
  if (r.mistaken === 0) {
    return (
      <>
        <Facts facts={[['Records', count(r.records)], ['Columns', count(r.columns.length)], ['Requests to upload', count(Math.ceil(r.records / r.chunkSize))]]} />
        {r.notes.length > 0 && <div className="note attention">{r.notes.map((text) => <p key={text}>{text}</p>)}</div>}
      </>
    );
  }
  const [word, words] = r.format === 'xlsx' ? ['Row', 'rows'] : ['Line', 'lines'];
  if (r.mistakes[0]?.line === 0) {
    return <div className="note failure" role="alert"><p>{r.mistakes[0].message}</p><p>Mend the file and drop it again; nothing was sent.</p></div>;
  }
  return (
    <div className="note failure" role="alert">
      <p><strong>{r.mistaken === 1 ? `One ${word.toLowerCase()} is` : `${count(r.mistaken)} ${words} are`} wrong.</strong> Mend the file and drop it again; nothing was sent.</p>
      <ul className="mistakes">{r.mistakes.map((m) => <li key={`${m.line} ${m.message}`}>{word} {count(m.line)} {m.message}.</li>)}</ul>
      {r.mistaken > r.mistakes.length && <p>And {count(r.mistaken - r.mistakes.length)} more.</p>}
      <Semicolons columns={r.columns.map((c) => c.name)} />
    </div>
  );
}

/** Some programs part the values of CSV by semicolons or tabs. */
function Semicolons({ columns }: { columns: string[] }) {
  return columns.length === 1 && /[;\t]/.test(columns[0]!) ? <p>Its values seem not to be parted by commas: save it with commas.</p> : null;
}

/** A set that is there already. */
export function SetSource({ set, error }: { set: RecordSet | undefined; error: unknown }) {
  if (error) return <Failure error={error} />;
  if (!set) return <Loading />;
  return (
    <>
      <Facts
        facts={[
          ['Record set', typeof set.metadata['file'] === 'string' ? set.metadata['file'] : set.id], ['State', <Status status={set.status} />],
          ['Records', count(set.received_count)], ['Made', <Time at={set.created_at} />],
          ...(set.staging_expires_at ? [['Goes', <Time at={set.staging_expires_at} />] as [string, React.ReactNode]] : []),
        ]}
      />
      {set.status === 'open' && <div className="note">Its upload did not end. <Link to="/start" search={{}}>Drop the same file</Link>, and it goes on.</div>}
      {set.status === 'consumed' && set.batch_id && (
        <div className="note">A <Link to="/batches/$batchId" params={{ batchId: set.batch_id }}>batch</Link> has used it: a set is used once.</div>
      )}
      <p><Link to="/start" search={{}}>Use a file instead</Link></p>
    </>
  );
}
