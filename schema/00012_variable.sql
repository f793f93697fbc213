-- +goose Up
-- A definition that was deleted is kept for the history of its batches, and is not found by anything else.
ALTER TABLE flow.definition ADD COLUMN deleted_at timestamptz;
CREATE INDEX batch_live ON flow.batch (definition_id) WHERE status IN ('queued', 'running', 'paused');

-- Named values of an organization for its flows. keys: [{name, type, default}]; versions: [{name, values}], each with the
-- values that differ from the defaults. They are json, not jsonb: digits stay as they were written.
CREATE TABLE flow.variable_set (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    keys json NOT NULL,
    versions json NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    UNIQUE (org_id, id),
    CONSTRAINT variable_set_name UNIQUE (org_id, name)
);

-- The set that the newest version of a definition names: it cannot be deleted.
ALTER TABLE flow.definition ADD COLUMN variable_set_id uuid,
    ADD CONSTRAINT definition_variable_set FOREIGN KEY (org_id, variable_set_id) REFERENCES flow.variable_set (org_id, id);
CREATE INDEX definition_by_variable_set ON flow.definition (variable_set_id) WHERE variable_set_id IS NOT NULL;

-- What `vars` is in a batch, from its start on; no row where its definition names no set.
CREATE TABLE flow.batch_vars (
    batch_id uuid PRIMARY KEY REFERENCES flow.batch (id) ON DELETE CASCADE,
    vars text NOT NULL
);

-- +goose Down
DROP TABLE flow.batch_vars;
ALTER TABLE flow.definition DROP COLUMN variable_set_id;
DROP TABLE flow.variable_set;
DROP INDEX flow.batch_live;
ALTER TABLE flow.definition DROP COLUMN deleted_at;
