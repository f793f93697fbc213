-- One that was deleted is kept for the history of its batches, and is not found by anything else. The variable set that
-- its newest version names cannot be deleted.
CREATE TABLE flow.definition (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '',
    status text NOT NULL CHECK (status IN ('draft', 'active', 'archived')),
    version integer NOT NULL DEFAULT 1 CHECK (version >= 1),
    variable_set_id uuid,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    deleted_at timestamptz,
    UNIQUE (org_id, id),
    CONSTRAINT definition_variable_set FOREIGN KEY (org_id, variable_set_id) REFERENCES flow.variable_set (org_id, id)
);
-- Most are active: starts, which ask for those, must not find them by their status.
CREATE INDEX definition_inactive ON flow.definition (org_id, status, id) WHERE status <> 'active';
CREATE INDEX definition_by_name ON flow.definition (org_id, lower(name) text_pattern_ops) WHERE deleted_at IS NULL;
CREATE INDEX definition_by_variable_set ON flow.definition (variable_set_id) WHERE variable_set_id IS NOT NULL;
COMMENT ON TABLE flow.definition IS
    'What a flow does. The steps stand in its versions; this row says which one counts now.';
COMMENT ON COLUMN flow.definition.id IS 'What triggers name.';
COMMENT ON COLUMN flow.definition.org_id IS 'The organization that wrote it.';
COMMENT ON COLUMN flow.definition.name IS 'How its author calls it.';
COMMENT ON COLUMN flow.definition.description IS 'What its author says of it; may be empty.';
COMMENT ON COLUMN flow.definition.status IS 'draft, active (can be triggered) or archived; nothing goes back to draft.';
COMMENT ON COLUMN flow.definition.version IS 'The number of the version that new batches run.';
COMMENT ON COLUMN flow.definition.variable_set_id IS
    'The variable set that its newest version names, which cannot be deleted meanwhile; null for none.';
COMMENT ON COLUMN flow.definition.created_by IS 'The account that saved version 1.';
COMMENT ON COLUMN flow.definition.created_at IS 'When version 1 was saved.';
COMMENT ON COLUMN flow.definition.updated_at IS 'When version or status changed last.';
COMMENT ON COLUMN flow.definition.deleted_at IS
    'When it was deleted: kept for the history of its batches, found by nothing else. Null while it lives.';

-- draft → active ⇄ archived, draft → archived. Package definition answers 409 before this is reached.
CREATE FUNCTION flow.definition_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'draft' THEN
        RAISE EXCEPTION 'definition % cannot go from % to draft', OLD.id, OLD.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION flow.definition_moves() IS 'Refuses to make a draft of a definition again.';
CREATE TRIGGER definition_moves BEFORE UPDATE OF status ON flow.definition
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION flow.definition_moves();

-- doc is json, not jsonb: digits and key order stay as they were written. actions ({"call": ..., "bulk": ...} by id)
-- tells how records end, and whether a task made calls, once the catalog has lost the action or made another kind of
-- it.
CREATE TABLE flow.definition_version (
    definition_id uuid NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    org_id uuid NOT NULL,
    doc json NOT NULL,
    actions json NOT NULL DEFAULT '{}',
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (definition_id, version),
    FOREIGN KEY (org_id, definition_id) REFERENCES flow.definition (org_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.definition_version IS
    'One authored document of a definition. It never changes: batches run on it for days.';
COMMENT ON COLUMN flow.definition_version.definition_id IS 'What the document is a version of (flow.definition).';
COMMENT ON COLUMN flow.definition_version.version IS 'Counts from 1.';
COMMENT ON COLUMN flow.definition_version.org_id IS 'The organization that wrote it.';
COMMENT ON COLUMN flow.definition_version.doc IS 'The document as it was written, steps included.';
COMMENT ON COLUMN flow.definition_version.actions IS
    'What its actions were then, by id: whether they call and are bulk. Needed when the catalog loses one.';
COMMENT ON COLUMN flow.definition_version.created_by IS 'The account that saved it.';
COMMENT ON COLUMN flow.definition_version.created_at IS 'When it was saved.';

-- Batches run on a version for days, and every process caches it.
CREATE FUNCTION flow.definition_version_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'version % of definition % cannot change', OLD.version,
        OLD.definition_id USING ERRCODE = 'check_violation';
END $$;
COMMENT ON FUNCTION flow.definition_version_stays() IS 'Refuses changes of a version: batches run on it.';
CREATE TRIGGER definition_version_stays BEFORE UPDATE ON flow.definition_version
    FOR EACH ROW EXECUTE FUNCTION flow.definition_version_stays();
