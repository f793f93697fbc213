import { useState } from 'react';

import { flowlane, type ApiKey, type ApiKeyCreate } from '../api/client';
import { Act, Confirm, Form, type Field } from '../ui/form';
import { Listing } from '../ui/listing';
import { Head, Status, Time } from '../ui/parts';
import { Secret } from '../ui/secret';

const fields: Field[] = [
  { name: 'name', label: 'Name', required: true, hint: 'who or what uses it' },
  { name: 'role', label: 'Role', value: 'member', options: [['member', 'member: reads, and starts flows'], ['admin', 'admin: may do everything']] },
  { name: 'scopes', label: 'Only these scopes', kind: 'lines', hint: 'one a line, such as batches:read; empty for all of the role' },
  { name: 'expires_at', label: 'Ends', kind: 'time', hint: 'empty for no end' },
];

/** The keys that programs sign in with. */
export function Keys() {
  const [secret, setSecret] = useState<string>();
  const make = async (values: Record<string, unknown>) => {
    const scopes = values.scopes as string[];
    const body = { ...values, scopes: scopes.length > 0 ? scopes : null } as unknown as ApiKeyCreate;
    setSecret((await flowlane.account.createApiKey({ body })).key);
  };
  return (
    <>
      <Head title="API keys">
        <Act label="New key" strong ask={(close) => <Form title="New API key" action="Make it" fields={fields} onSend={make} onClose={close} />} />
      </Head>
      {secret && <Secret title="The new key" secret={secret} onClose={() => setSecret(undefined)} />}
      <Listing<ApiKey>
        of={['api-keys']} row={(k) => k.id} empty="There are no keys."
        read={(cursor, signal) => flowlane.account.listApiKeys({ query: { limit: 50, cursor }, signal })}
        columns={[
          { head: 'Name', cell: (k) => k.name },
          { head: 'Key', cell: (k) => <code>{k.prefix}…{k.last_four}</code> },
          { head: 'Role', cell: (k) => <>{k.role}{k.scopes && <span className="faint"> {k.scopes.join(' ')}</span>}</> },
          { head: 'Status', cell: (k) => <Status status={k.status} /> },
          { head: 'Last used', cell: (k) => <><Time at={k.last_used_at} ago /> <span className="faint">{k.last_used_address}</span></> },
          { head: 'Ends', cell: (k) => <Time at={k.expires_at} /> },
          {
            head: 'End it',
            cell: (k) => k.status === 'active' && (
              <Act
                label="Revoke"
                ask={(close) => (
                  <Confirm title="Revoke this key" action="Revoke it" onGo={() => flowlane.account.revokeApiKey({ path: { key_id: k.id } })} onClose={close}>
                    <p>Whatever uses {k.name} is refused within a second, sessions made from it, too. This cannot be undone.</p>
                  </Confirm>
                )}
              />
            ),
          },
        ]}
      />
    </>
  );
}
