import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useSearch } from '@tanstack/react-router';
import { useState } from 'react';

import { flowlane, type CatalogImport, type CatalogImportInput } from '../api/client';
import { useChange } from '../api/live';
import { useMe } from '../app/frame';
import { count, words } from '../lib/format';
import { documentOf, outlineOf, type Outline } from '../lib/outline';
import { InputError } from '../ui/fields';
import { Table } from '../ui/listing';
import { Button, Empty, Facts, Failure, Head, Status } from '../ui/parts';

/** The most letters of a document. */
const largest = 6_000_000;

/** Makes a platform of an OpenAPI document: what it would do is told before it is done. */
export function ImportPage() {
  const { platform } = useSearch({ from: '/frame/catalog/import' });
  const may = useMe()?.role === 'admin';
  const before = useQuery({
    queryKey: ['import', platform], enabled: platform !== undefined,
    queryFn: ({ signal }) => flowlane.catalog.getImport({ path: { import_id: platform! }, signal }),
  });
  const [file, setFile] = useState<{ text: string; outline: Outline }>();
  const [said, setSaid] = useState<Partial<CatalogImportInput>>({});
  const options: Partial<CatalogImportInput> = { ...(before.data ? optionsOf(before.data) : {}), ...said };
  const body = (dry: boolean): CatalogImportInput => ({ document: file!.text, ...filled(options), ...(platform ? { platform_id: platform } : {}), dry_run: dry });
  // Without what was chosen before, all of the document would be taken.
  const known = platform === undefined || before.data !== undefined;
  const look = useMutation({ mutationFn: () => flowlane.catalog.importPlatform({ body: body(true) }) });
  const go = useChange(() => flowlane.catalog.importPlatform({ body: body(false) }));
  const set = (change: Partial<CatalogImportInput>) => {
    setSaid({ ...said, ...change });
    look.reset();
  };
  const choose = useMutation({
    mutationFn: async (chosen: File) => {
      look.reset();
      setFile(undefined);
      const text = await chosen.text();
      if (text.length > largest) throw new InputError('The document has more than 6 MB: take out what is not to be called.');
      const outline = outlineOf(await documentOf(text).catch((error: unknown) => {
        throw new InputError(`This is neither JSON nor YAML: ${(error as Error).message}`, { cause: error });
      }));
      if (typeof outline === 'string') throw new InputError(outline);
      setFile({ text, outline });
    },
  });
  if (go.data) return <Imported result={go.data as CatalogImport} />;
  return (
    <>
      <Head title={platform ? `Import ${before.data?.name ?? platform} again` : 'Import an OpenAPI document'} back={{ to: '/catalog/imports', label: 'Imported platforms' }} />
      <p className="faint">A document of OpenAPI 3.0 or 3.1, as JSON or YAML. Nothing is fetched, and no other organization sees what comes of it.</p>
      <label>Document<input type="file" accept=".json,.yaml,.yml" disabled={!may} title={may ? undefined : 'Only an admin may import'} onChange={(e) => e.target.files?.[0] && choose.mutate(e.target.files[0])} /></label>
      {choose.error && <Failure error={choose.error} />}
      {before.error && <Failure error={before.error} />}
      {file && known && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            look.mutate();
          }}
        >
          <Facts facts={[['Title', file.outline.title], ['Operations', count(file.outline.operations)], ['Servers', file.outline.servers.join(', ') || 'none']]} />
          <Options outline={file.outline} options={options} fixed={platform} set={set} />
          <div className="lead">
            <button className="button" type="submit" disabled={look.isPending}>{look.isPending ? 'One moment…' : 'See what it would do'}</button>
            {look.data && <Button strong disabled={go.isPending} onClick={() => go.mutate(undefined)}>Import {count(look.data.actions)} {look.data.actions === 1 ? 'action' : 'actions'}</Button>}
          </div>
          {(look.error ?? go.error) && <Failure error={look.error ?? go.error} />}
          {look.data && <Report result={look.data} />}
        </form>
      )}
    </>
  );
}

const optionsOf = ({ options: o }: CatalogImport): Partial<CatalogImportInput> => ({ auth: o.auth, only: o.only, base_url: o.base_url, account: o.account });

/** Leaves out what says nothing. */
const filled = (o: Partial<CatalogImportInput>): Partial<CatalogImportInput> =>
  Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined && v !== null && v !== '' && !(Array.isArray(v) && v.length === 0)));

interface OptionsProps {
  outline: Outline;
  options: Partial<CatalogImportInput>;
  fixed: string | undefined;
  set: (change: Partial<CatalogImportInput>) => void;
}

/** By what calls sign in, and which operations are taken. */
function Options({ outline, options, fixed, set }: OptionsProps) {
  const only = options.only ?? [];
  const take = (pattern: string, yes: boolean) => set({ only: yes ? [...only, pattern] : only.filter((o) => o !== pattern) });
  const tagged = outline.tags.filter((t) => t.name !== '');
  return (
    <>
      <div className="columns-two">
        <div>
          <label>
            Signs in by
            <select value={options.auth?.[0] ?? ''} onChange={(e) => set({ auth: e.target.value ? [e.target.value] : [] })}>
              <option value="">what most operations take</option>
              {outline.schemes.map((s) => <option key={s.name} value={s.name}>{s.name}: {s.what}</option>)}
            </select>
          </label>
          {!fixed && <label><span>Id of the platform <span className="faint">· empty for one of its title</span></span><input value={options.platform_id ?? ''} maxLength={80} onChange={(e) => set({ platform_id: e.target.value })} /></label>}
          <label><span>Address <span className="faint">· where those of the document are relative</span></span><input value={options.base_url ?? ''} onChange={(e) => set({ base_url: e.target.value })} /></label>
        </div>
        <div>
          <fieldset>
            <legend>Operations{only.length === 0 && <span className="faint"> · all, while none is chosen</span>}</legend>
            {tagged.slice(0, 100).map((t) => (
              <label key={t.name} className="check">
                <input type="checkbox" checked={only.includes(`tag:${t.name}`)} onChange={(e) => take(`tag:${t.name}`, e.target.checked)} />{t.name} <span className="faint">{count(t.operations)}</span>
              </label>
            ))}
          </fieldset>
          <label>
            <span>Patterns <span className="faint">· one a line: an operationId, tag:NAME, or GET /orders/*</span></span>
            <textarea rows={3} spellCheck={false} value={only.join('\n')} onChange={(e) => set({ only: e.target.value.split('\n') })} onBlur={() => set({ only: only.map((o) => o.trim()).filter(Boolean) })} />
          </label>
        </div>
      </div>
    </>
  );
}

/** What an import makes, what differs from the one before, and what could not be carried over. */
function Report({ result: r }: { result: CatalogImport }) {
  return (
    <section aria-label="What it does">
      <h2>{r.stored ? 'What it did' : 'What it would do'}</h2>
      <Facts facts={[
        ['Platform', r.platform_id], ['Version', count(r.version)], ['Services', count(r.services)], ['Actions', count(r.actions)],
        ['Operations not asked for', count(r.operations_skipped)], ['That cannot be called', count(r.operations_left_out)],
      ]} />
      <h3>Changes</h3>
      {r.changes.length === 0 ? <Empty>{r.version === 1 ? 'It is new.' : `Nothing differs from version ${r.version - 1}.`}</Empty> : (
        <ul className="cards" aria-label="Changes">
          {r.changes.map((c) => (
            <li key={c.id} className="card">
              <span><strong>{c.effect}</strong> <code className="message">{c.id}</code></span>
              {c.diff && <details><summary>What differs</summary><pre tabIndex={0} role="region" aria-label={`What differs in ${c.id}`}>{c.diff}</pre></details>}
            </li>
          ))}
        </ul>
      )}
      <h3>Not carried over as it was</h3>
      {r.report.length === 0 ? <Empty>All of it was.</Empty> : (
        <Table
          rows={r.report} row={(e) => `${e.pointer} ${e.effect} ${e.message}`}
          columns={[
            { head: 'Line', cell: (e) => (e.line > 0 ? count(e.line) : '–'), number: true },
            { head: 'What', cell: (e) => words(e.effect) },
            { head: 'Why', cell: (e) => <span className="message">{e.message}</span> },
            { head: 'Place', cell: (e) => <code className="message">{e.pointer}</code> },
          ]}
        />
      )}
      {r.report_total > r.report.length && <p className="faint">These are the first {count(r.report.length)} of {count(r.report_total)}.</p>}
    </section>
  );
}

function Imported({ result }: { result: CatalogImport }) {
  return (
    <>
      <Head title={`${result.name} is imported`} back={{ to: '/catalog/imports', label: 'Imported platforms' }}>
        <Link className="button strong" to="/catalog" search={{ q: result.platform_id }}>See its actions</Link>
        <Link className="button" to="/credentials">Make a credential</Link>
      </Head>
      <p className="lead"><Status status="active" /></p>
      <Report result={result} />
    </>
  );
}
