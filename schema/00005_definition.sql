-- +goose Up
-- What a flow does. The steps stand in its versions, which never change; the row says which one counts now.
CREATE TABLE flow.definition (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '',
    status text NOT NULL CHECK (status IN ('draft', 'active', 'archived')),
    version integer NOT NULL DEFAULT 1 CHECK (version >= 1),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    UNIQUE (org_id, id)
);
CREATE INDEX definition_by_status ON flow.definition (org_id, status, id);

-- One authored document. It is json, not jsonb: digits and key order stay as they were written.
CREATE TABLE flow.definition_version (
    definition_id uuid NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    org_id uuid NOT NULL,
    doc json NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (definition_id, version),
    FOREIGN KEY (org_id, definition_id) REFERENCES flow.definition (org_id, id) ON DELETE CASCADE
);

-- draft → active ⇄ archived, draft → archived. Package definition answers 409 before this is reached.
-- +goose StatementBegin
CREATE FUNCTION flow.definition_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'draft' THEN
        RAISE EXCEPTION 'definition % cannot go from % to draft', OLD.id, OLD.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER definition_moves BEFORE UPDATE OF status ON flow.definition
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION flow.definition_moves();

-- Batches run on a version for days, and every process caches it.
-- +goose StatementBegin
CREATE FUNCTION flow.definition_version_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'version % of definition % cannot change', OLD.version, OLD.definition_id USING ERRCODE = 'check_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER definition_version_stays BEFORE UPDATE ON flow.definition_version
    FOR EACH ROW EXECUTE FUNCTION flow.definition_version_stays();

-- +goose Down
DROP TABLE flow.definition_version;
DROP TABLE flow.definition;
DROP FUNCTION flow.definition_version_stays();
DROP FUNCTION flow.definition_moves();
