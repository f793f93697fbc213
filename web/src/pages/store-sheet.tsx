import { useMemo, useState } from 'react';

import { ApiError, flowlane, type Store } from '../api/client';
import { useChange } from '../api/live';
import { count } from '../lib/format';
import { placeMistakes, sheetOf, type LineMistake, type Sheet } from '../lib/sheet';
import { InputError } from '../ui/fields';
import { Ask } from '../ui/parts';

/** The most bytes of a file, and writes of a request. */
const largest = 32 << 20;
const together = 1000;
const most = 20;

/** Writes a file of CSV to one layer of the records that its rows name. */
export function WriteSheet({ store, close }: { store: Store; close: () => void }) {
  const [text, setText] = useState<string>();
  const [key, setKey] = useState('key');
  const [layer, setLayer] = useState(store.layers.at(-1)!);
  const [clear, setClear] = useState(false);
  const [done, setDone] = useState(0);
  const [refused, setRefused] = useState<LineMistake[]>([]);
  const sheet = useMemo(() => (text === undefined ? undefined : sheetOf(text, store.fields, { key, layer, clear })), [text, store.fields, key, layer, clear]);
  const mistakes = [...(sheet?.mistakes ?? []), ...refused];
  const send = useChange(async () => {
    setRefused([]);
    if (!sheet) throw new InputError('Choose a file first.');
    if (sheet.mistakes.length > 0) throw new InputError('Nothing was sent: mend the mistakes in the file first.');
    await sendAll(store.name, sheet, setDone, setRefused);
  }, close);
  const choose = async (file: File | undefined) => {
    setRefused([]);
    setDone(0);
    const tooLarge = file !== undefined && file.size > largest;
    setText(tooLarge ? undefined : await file?.text());
    if (tooLarge) setRefused([{ line: 1, message: 'begins a file of more than 32 MiB: have a flow write so many records.' }]);
  };
  return (
    <Ask title="Write CSV" action={sheet ? `Write ${count(sheet.writes.length)} ${sheet.writes.length === 1 ? 'record' : 'records'}` : 'Write'} busy={send.isPending} error={send.error} onGo={() => send.mutate(undefined)} onClose={close}>
      <p>The first line names one column for the key, and fields: {store.fields.map((f) => f.name).join(', ')}. Fields that it does not name stay as they are.</p>
      <label>File<input type="file" accept=".csv,text/csv" onChange={(e) => void choose(e.target.files?.[0])} /></label>
      <label>Column of the key<input value={key} required onChange={(e) => setKey(e.target.value)} /></label>
      <label>Layer<select value={layer} onChange={(e) => setLayer(e.target.value)}>{store.layers.map((l) => <option key={l} value={l}>{l}</option>)}</select></label>
      <label className="check"><input type="checkbox" checked={clear} onChange={(e) => setClear(e.target.checked)} />An empty cell takes its value away</label>
      {(sheet || mistakes.length > 0) && <p role="status">{mistakes.length > 0 ? `${count(mistakes.length)} ${mistakes.length === 1 ? 'mistake' : 'mistakes'}` : `${count(sheet!.writes.length)} records, no mistakes`}{done > 0 && `; ${count(done)} are written`}</p>}
      {mistakes.length > 0 && (
        <ul aria-label="Mistakes of the file" className="bad">
          {mistakes.slice(0, most).map((m, i) => <li key={i}>Line {m.line} {m.message}</li>)}
          {mistakes.length > most && <li>and {count(mistakes.length - most)} more</li>}
        </ul>
      )}
    </Ask>
  );
}

/** Sends the writes of a sheet in their order; what is refused is told by its line, and nothing behind it is sent. */
async function sendAll(store: string, { writes, lines }: Sheet, progress: (done: number) => void, refuse: (mistakes: LineMistake[]) => void): Promise<void> {
  for (let at = 0; at < writes.length; at += together) {
    try {
      await flowlane.stores.upsertRecords({ path: { store }, body: { records: writes.slice(at, at + together) } });
    } catch (error) {
      if (!(error instanceof ApiError) || error.fields.length === 0) throw error;
      refuse(placeMistakes(error.fields, lines.slice(at)));
      throw new InputError(at === 0 ? 'Nothing was written.' : `The first ${count(at)} records were written, and nothing behind them.`, { cause: error });
    }
    progress(Math.min(at + together, writes.length));
  }
}
