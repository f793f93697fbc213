import { Link, useNavigate } from '@tanstack/react-router';

import { flowlane, type CatalogImport } from '../api/client';
import { count } from '../lib/format';
import { Act, Confirm } from '../ui/form';
import { Listing } from '../ui/listing';
import { Head, Time } from '../ui/parts';

/** The platforms that the organization made of OpenAPI documents. */
export function Imports() {
  const navigate = useNavigate();
  const again = (id?: string) => void navigate({ to: '/catalog/import', search: { platform: id } });
  return (
    <>
      <Head title="Imported platforms" back={{ to: '/catalog', label: 'Catalog' }}>
        <Act label="Import a document" strong run={async () => again()} />
      </Head>
      <Listing<CatalogImport>
        of={['imports']} row={(i) => i.platform_id} empty="No platform was imported yet. An OpenAPI document of an API makes one, which this organization alone sees."
        read={(cursor, signal) => flowlane.catalog.listImports({ query: { limit: 50, cursor }, signal })}
        columns={[
          { head: 'Platform', cell: (i) => <><Link to="/catalog" search={{ q: i.platform_id }}>{i.name}</Link> <code>{i.platform_id}</code></> },
          { head: 'Version', cell: (i) => count(i.version), number: true },
          { head: 'Actions', cell: (i) => count(i.actions), number: true },
          { head: 'Of operations', cell: (i) => count(i.operations), number: true },
          { head: 'Imported', cell: (i) => <Time at={i.created_at} /> },
          {
            head: 'Change',
            cell: (i) => (
              <span className="actions">
                <Act label={`Import ${i.name} again`} short="Import again" run={async () => again(i.platform_id)} />
                <Act
                  label={`Delete ${i.name}`} short="Delete"
                  ask={(close) => (
                    <Confirm title="Delete this platform" action="Delete it" onGo={() => flowlane.catalog.deleteImport({ path: { import_id: i.platform_id } })} onClose={close}>
                      <p>{i.name} goes in all its {count(i.version)} versions. It stays while an active flow uses it, or a credential of it is there.</p>
                    </Confirm>
                  )}
                />
              </span>
            ),
          },
        ]}
      />
    </>
  );
}
