import { flowlane, type Quota, type Retention, type RetentionChange } from '../api/client';
import { useLive } from '../api/live';
import { count, percent, words } from '../lib/format';
import { Act, Form, type Field } from '../ui/form';
import { Failure, Head, Loading } from '../ui/parts';

type Kind = keyof Retention;

/** What is kept for a while, as people call it. */
const kinds: Array<[Kind, string, string]> = [
  ['batches', 'Batches', 'with their records and results, from their end on'],
  ['calls', 'Calls', 'what they sent and were answered'],
  ['deliveries', 'Deliveries of webhooks', 'a copy of one that is deleted counts as new'],
  ['audit_log', 'Audit log', ''],
  ['usage', 'Usage of each day', ''],
];

const days = (n: number | null) => (n === null ? 'for good' : `${count(n)} ${n === 1 ? 'day' : 'days'}`);

/** How much the organization may have at once, and how long what it has is kept. */
export function Limits() {
  const quotas = useLive(['quotas'], (signal) => flowlane.account.getQuotas({ signal }));
  const kept = useLive(['retention'], (signal) => flowlane.account.getRetention({ signal }));
  return (
    <>
      <Head title="Limits" />
      {quotas.error && <Failure error={quotas.error} retry={() => void quotas.refetch()} />}
      {kept.error && <Failure error={kept.error} retry={() => void kept.refetch()} />}
      {(quotas.isPending || kept.isPending) && <Loading />}
      {quotas.data && <Quotas all={quotas.data.quotas} />}
      {kept.data && <Kept of={kept.data} />}
    </>
  );
}

function Quotas({ all }: { all: Quota[] }) {
  return (
    <section>
      <h2>At once</h2>
      <table>
        <thead><tr><th>Of</th><th className="number">It has</th><th className="number">It may have</th><th className="number">Used</th></tr></thead>
        <tbody>
          {all.map((q) => (
            <tr key={q.name}>
              <td>{words(q.name)}</td>
              <td className="number">{count(q.used)}</td>
              <td className="number">{count(q.limit)}</td>
              <td className={q.used >= q.limit ? 'number bad' : 'number'}>{percent(q.used, q.limit)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="faint">The operator of this service can raise them.</p>
    </section>
  );
}

function Kept({ of }: { of: Retention }) {
  const fields: Field[] = kinds.map(([kind, label]) => {
    const p = of[kind];
    const most = p.longest_days === null ? `${p.shortest_days} days or more` : `${p.shortest_days} to ${Math.floor(p.longest_days)} days`;
    return { name: kind, label, kind: 'number', value: p.own_days, hint: `${most}; empty for ${days(p.longest_days)}` };
  });
  return (
    <section>
      <h2>How long things are kept</h2>
      <table>
        <thead><tr><th>What</th><th>Kept</th><th>The operator keeps it</th></tr></thead>
        <tbody>
          {kinds.map(([kind, label, more]) => (
            <tr key={kind}>
              <td>{label} <span className="faint">{more}</span></td>
              <td>{days(of[kind].days)}</td>
              <td>{days(of[kind].longest_days)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Act
        label="Keep for less"
        ask={(close) => (
          <Form
            title="How many days to keep things" action="Keep for so long" fields={fields} onClose={close}
            onSend={(values) => flowlane.account.setRetention({ body: values as unknown as RetentionChange })}
          >
            <p>What is older is deleted within an hour, and nothing brings it back.</p>
          </Form>
        )}
      />
    </section>
  );
}
