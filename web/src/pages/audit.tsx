import { useNavigate, useSearch } from '@tanstack/react-router';
import type { FormEvent } from 'react';

import { flowlane, type AuditEntry, type AuditOutcome } from '../api/client';
import { useMe } from '../app/frame';
import { words } from '../lib/format';
import { Listing } from '../ui/listing';
import { Button, Empty, Head, Id, Status, Time } from '../ui/parts';
import { Choice } from './batches';

/** Who did what, newest first. */
export function Audit() {
  const search = useSearch({ from: '/frame/audit' });
  const navigate = useNavigate();
  const { action, outcome, resource } = search;
  const find = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? '').trim() || undefined;
    void navigate({ to: '/audit', search: { outcome, action: text('action'), resource: text('resource') } });
  };
  const filtered = action || outcome || resource;
  if (useMe()?.role === 'member') return <><Head title="Audit" /><Empty>Only an admin reads who did what.</Empty></>;
  return (
    <>
      <Head title="Audit" />
      <form className="filters" onSubmit={find} key={JSON.stringify(search)}>
        <label className="inline">Action <input name="action" defaultValue={action} placeholder="createApiKey" /></label>
        <label className="inline">Id of what <input name="resource" defaultValue={resource} /></label>
        <Choice
          label="Outcome" value={outcome} all={['succeeded', 'denied', 'refused']} name={words}
          onChange={(v) => void navigate({ to: '/audit', search: { ...search, outcome: v as AuditOutcome | undefined } })}
        />
        <Button type="submit">Search</Button>
        {filtered && <Button quiet onClick={() => void navigate({ to: '/audit', search: {} })}>Clear</Button>}
      </form>
      <Listing<AuditEntry>
        of={['audit', action, outcome, resource]} row={(e) => e.id} empty={filtered ? 'Nothing was like that.' : 'Nothing was changed yet.'}
        read={(cursor, signal) => flowlane.account.listAuditLog({ query: { limit: 50, cursor, action, outcome, resource_id: resource }, signal })}
        columns={[
          { head: 'When', cell: (e) => <Time at={e.created_at} /> },
          { head: 'Who', cell: (e) => <>{e.account_name} <span className="faint">{e.api_key_name ?? words(e.auth_method)}</span></> },
          { head: 'Did', cell: (e) => <code>{e.action}</code> },
          { head: 'To', cell: (e) => <>{e.resource_type && words(e.resource_type)} {e.resource_id && <Id id={e.resource_id} />}</> },
          { head: 'Outcome', cell: (e) => <><Status status={e.outcome} /> <span className="faint">{e.reason}</span></> },
          { head: 'From', cell: (e) => e.address },
        ]}
      />
    </>
  );
}
