-- Platforms that organizations imported for themselves.

-- file is the catalog file as it was made, and is never changed; an import again makes another version. Only the newest
-- version of a platform counts, earlier ones tell what was called before. options and report are json, not jsonb: they
-- are shown as they were.
CREATE TABLE flow.catalog_import (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    platform_id text NOT NULL CHECK (char_length(platform_id) BETWEEN 1 AND 80),
    version integer NOT NULL CHECK (version >= 1),
    name text NOT NULL,
    file text NOT NULL,
    document_digest text NOT NULL,
    options json NOT NULL,
    report json NOT NULL,
    services integer NOT NULL,
    actions integer NOT NULL,
    operations integer NOT NULL,
    skipped integer NOT NULL,
    left_out integer NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (org_id, platform_id, version)
);
COMMENT ON TABLE flow.catalog_import IS
    'A platform that an organization made of an OpenAPI document. No other organization sees it. The newest version '
    'counts.';
COMMENT ON COLUMN flow.catalog_import.org_id IS 'The organization that sees the platform.';
COMMENT ON COLUMN flow.catalog_import.platform_id IS
    'What services and actions begin with. One that comes with the program under the same id goes before it.';
COMMENT ON COLUMN flow.catalog_import.version IS
    'Counts the imports of the platform from 1; a platform that was deleted begins anew.';
COMMENT ON COLUMN flow.catalog_import.name IS 'The title of the document.';
COMMENT ON COLUMN flow.catalog_import.file IS
    'The platform as a catalog file (YAML), made of the document; the document itself is not kept.';
COMMENT ON COLUMN flow.catalog_import.document_digest IS
    'sha256:<hex> of the document, by which an importer can tell whether it has changed since.';
COMMENT ON COLUMN flow.catalog_import.options IS 'What the importer chose: {auth, only, base_url}.';
COMMENT ON COLUMN flow.catalog_import.report IS
    'The first entries of what could not be carried over as it was, and how many there were.';
COMMENT ON COLUMN flow.catalog_import.services IS 'How many services the platform has.';
COMMENT ON COLUMN flow.catalog_import.actions IS 'How many actions the platform has.';
COMMENT ON COLUMN flow.catalog_import.operations IS 'How many operations the document has.';
COMMENT ON COLUMN flow.catalog_import.skipped IS 'How many of them were not asked for.';
COMMENT ON COLUMN flow.catalog_import.left_out IS 'How many of them were asked for and cannot be called.';
COMMENT ON COLUMN flow.catalog_import.created_by IS 'The account that imported it.';
COMMENT ON COLUMN flow.catalog_import.created_at IS 'When it was imported.';

CREATE TABLE flow.catalog_state (
    org_id uuid PRIMARY KEY REFERENCES flow.organization (id),
    generation bigint NOT NULL
);
COMMENT ON TABLE flow.catalog_state IS
    'One row for each organization that ever imported a platform; whoever imports or deletes one holds it until the '
    'commit.';
COMMENT ON COLUMN flow.catalog_state.org_id IS 'Whose platforms.';
COMMENT ON COLUMN flow.catalog_state.generation IS
    'Raised with every import and deletion: what processes keep of the platforms is good as long as it stays the same.';
