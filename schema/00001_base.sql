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

-- Everything that must happen at a time. While work is under way (leased), due_at is where its lease ends, and woken_at the
-- earliest wake-up that arrived meanwhile and that the work may not have seen.
-- lease_no fences workers: one that carries an older number changes nothing. The numbers come from a sequence, because a
-- row that is done goes away, and its next life must not give out the numbers of this one again.
CREATE SEQUENCE flow.due_lease;
CREATE TABLE flow.due (
    kind text NOT NULL,
    key text NOT NULL,
    due_at timestamptz NOT NULL,
    lease_seconds double precision NOT NULL CHECK (lease_seconds > 0),
    lease_no bigint NOT NULL DEFAULT 0,
    leased boolean NOT NULL DEFAULT false,
    woken_at timestamptz CHECK (woken_at IS NULL OR leased),
    -- How often in a row the work has failed.
    failures integer NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX due_next ON flow.due (due_at);

-- +goose Down
DROP SCHEMA flow CASCADE;
