-- +goose Up
-- The schema flow holds everything that Flowlane owns; River's tables live in the schema river.
CREATE SCHEMA IF NOT EXISTS flow;

-- The clock that every rule in SQL reads. Tests move it so that days pass in seconds; nothing else writes the offset.
CREATE TABLE flow.clock_offset (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    ahead interval NOT NULL DEFAULT '0'
);
INSERT INTO flow.clock_offset DEFAULT VALUES;

-- +goose StatementBegin
CREATE FUNCTION flow.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$ SELECT clock_timestamp() + (SELECT ahead FROM flow.clock_offset) $$;
-- +goose StatementEnd

-- Everything that must happen at a time. lease_no fences workers: a job that carries an older number does nothing.
-- seq counts wake-ups, so that one that arrives while work is under way is not lost.
CREATE TABLE flow.due (
    kind text NOT NULL,
    key text NOT NULL,
    due_at timestamptz NOT NULL,
    seq bigint NOT NULL DEFAULT 1,
    lease_no bigint NOT NULL DEFAULT 0,
    leased_until timestamptz,
    PRIMARY KEY (kind, key)
);
CREATE INDEX due_next ON flow.due (due_at);

-- +goose Down
DROP SCHEMA flow CASCADE;
