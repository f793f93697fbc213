import { flowlane, type Lane, type Pause } from '../api/client';
import { Act, Confirm, Form } from '../ui/form';
import { Listing } from '../ui/listing';
import { Time } from '../ui/parts';
import { words } from '../lib/format';

const lanes: Array<[string, string]> = (['interactive', 'compliance', 'bulk', 'backfill'] satisfies Lane[]).map((l) => [l, l]);

/** What holds an account, by people and by the provider; what people hold can be prolonged and released. */
export function Holds({ path }: { path: { platform: string; tenancy_id: string } }) {
  return (
    <section>
      <header className="head">
        <h2>Pauses</h2>
        <Act label="Pause the account…" ask={(close) => <PauseAccount path={path} close={close} />} />
      </header>
      <Listing<Pause>
        of={['domain-pauses', path.tenancy_id]} row={(p) => p.id} empty="Nothing holds it."
        read={(cursor, signal) => flowlane.dispatch.listDomainPauses({ path, query: { limit: 50, cursor }, signal })}
        columns={[
          { head: 'What', cell: (p) => (p.scope === 'lane' ? `the lane ${p.lane}` : p.scope === 'bucket' ? `the budget ${p.bucket}` : 'all of the account') },
          { head: 'Why', cell: (p) => p.reason ?? words(p.cause) },
          { head: 'Since', cell: (p) => <Time at={p.created_at} /> },
          { head: 'Until', cell: (p) => (p.expires_at ? <Time at={p.expires_at} /> : 'somebody resumes it') },
          { head: '', cell: (p) => <Change path={path} pause={p} /> },
        ]}
      />
    </section>
  );
}

function PauseAccount({ path, close }: { path: { platform: string; tenancy_id: string }; close: () => void }) {
  return (
    <Form
      title="Pause this account" action="Pause" onClose={close}
      fields={[
        { name: 'lane', label: 'What', options: [['', 'all of the account'], ...lanes.map(([v, n]): [string, string] => [v, `the lane ${n}`])] },
        { name: 'reason', label: 'Why', hint: 'others read it' },
        { name: 'minutes', label: 'For how many minutes', kind: 'number', hint: 'empty: until somebody resumes it' },
      ]}
      onSend={({ lane, reason, minutes }) => flowlane.dispatch.pauseDomain({
        path, body: { lane: lane as Lane | null, reason: reason as string | null, duration_seconds: minutes === null ? null : Math.round(Number(minutes) * 60) },
      })}
    >
      <p>Calls that are under way end. From the answer on nothing of your organization is sent to it.</p>
    </Form>
  );
}

/** What can be done about a pause. Backoffs end by themselves, and what has no end cannot end later. */
function Change({ path, pause: p }: { path: { platform: string; tenancy_id: string }; pause: Pause }) {
  if (p.scope !== 'domain' && p.scope !== 'lane') return <span className="faint">ends by itself</span>;
  const lane = p.scope === 'lane' ? p.lane! : undefined;
  return (
    <span className="lead">
      {p.expires_at && (
        <Act
          label="Prolong…"
          ask={(close) => (
            <Form
              title="Prolong this pause" action="Prolong" onClose={close} fields={[{ name: 'until', label: 'Until', kind: 'time', required: true }]}
              onSend={({ until }) => flowlane.dispatch.extendPause({ path: { ...path, pause_id: p.id }, body: { expires_at: String(until) } })}
            >
              <p>It ends <Time at={p.expires_at} /> now, and can only end later.</p>
            </Form>
          )}
        />
      )}
      <Act
        label="Resume…"
        ask={(close) => (
          <Confirm
            title={lane ? `Resume the lane ${lane}` : 'Resume the account'} action="Resume" onClose={close}
            onGo={() => flowlane.dispatch.resumeDomain({ path, query: { lane } })}
          >
            <p>All pauses of {lane ? `the lane ${lane}` : 'all of the account'} are released, and what waits goes on.</p>
          </Confirm>
        )}
      />
    </span>
  );
}
