-- What each thing means stands in its COMMENT ON, which the database itself can show; other comments say why it is as
-- it is. Some primary keys are made after the other indexes of their table: of those that look equally good, as all do
-- while a table is empty, Postgres takes the newest, and keeps the plan.
CREATE SCHEMA IF NOT EXISTS flow;
COMMENT ON SCHEMA flow IS
    'Everything that Flowlane owns. The tables of its job queue are in the schema river, views for operators in ops.';

CREATE TABLE flow.schema_version (
    version_id bigint PRIMARY KEY,
    content_sha256 text NOT NULL,
    least_program bigint NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE flow.schema_version IS
    'Which migrations of the schema flow are applied, a row for each. See `flowlane migrate status`.';
COMMENT ON COLUMN flow.schema_version.version_id IS 'The number of the migration''s file.';
COMMENT ON COLUMN flow.schema_version.content_sha256 IS
    'Digest of the migration''s file, in hex, by which a program knows that the tables are those that it expects.';
COMMENT ON COLUMN flow.schema_version.least_program IS
    'Programs that do not know the migration of this number must not run on the database any more; 0 where it says '
    'nothing.';
COMMENT ON COLUMN flow.schema_version.applied_at IS 'When it was applied, by the clock of the server.';

-- Nothing but tests writes the offset: they move it so that days pass in seconds.
CREATE TABLE flow.clock_offset (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    ahead interval NOT NULL DEFAULT '0',
    stepped interval NOT NULL DEFAULT '0'
);
INSERT INTO flow.clock_offset DEFAULT VALUES;
COMMENT ON TABLE flow.clock_offset IS
    'How far tests have moved flow.clock() ahead: one row, zero wherever customers are.';
COMMENT ON COLUMN flow.clock_offset.only_row IS 'Always true: lets the table have one row.';
COMMENT ON COLUMN flow.clock_offset.ahead IS 'What flow.clock() adds to the time of the server.';
COMMENT ON COLUMN flow.clock_offset.stepped IS
    'How much of ahead stands for steps of the clock. The rest stands for time that has passed.';

-- Postgres parses and plans a function of language sql anew for each statement that calls it, and nearly every
-- statement of ours asks for the time: that took 75 µs of each, four fifths of it for that. The plans of plpgsql are
-- kept by the connection.
CREATE FUNCTION flow.clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
    RETURN clock_timestamp() + (SELECT ahead FROM flow.clock_offset);
END $$;
COMMENT ON FUNCTION flow.clock() IS 'The time that every rule in SQL reads: that of the server, moved ahead in tests.';

CREATE TABLE flow.clock_watch (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    steady_since timestamptz NOT NULL,
    watched_at timestamptz NOT NULL
);
COMMENT ON TABLE flow.clock_watch IS
    'For how long processes have seen the clock of the database go like their own, for those that start later: one '
    'row.';
COMMENT ON COLUMN flow.clock_watch.only_row IS 'Always true: lets the table have one row.';
COMMENT ON COLUMN flow.clock_watch.steady_since IS 'The clock has not stepped between this time and watched_at.';
COMMENT ON COLUMN flow.clock_watch.watched_at IS 'When a process last compared the clock with its own.';

-- A clock that jumps ahead by a year would have everything be old. What is deleted cannot be had back, so deletions
-- have a clock of their own, which follows the other one only as far as processes have seen time pass.
CREATE TABLE flow.retention_clock (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    reached timestamptz NOT NULL DEFAULT clock_timestamp(),
    moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kept jsonb NOT NULL DEFAULT '{}'
);
INSERT INTO flow.retention_clock DEFAULT VALUES;
COMMENT ON TABLE flow.retention_clock IS 'The time by which things are old enough to be deleted: one row.';
COMMENT ON COLUMN flow.retention_clock.only_row IS 'Always true: lets the table have one row.';
COMMENT ON COLUMN flow.retention_clock.reached IS
    'It is never later than this, nor than the time of the server. Housekeeping moves it on, by twice the time that '
    'has passed for its process and for the server.';
COMMENT ON COLUMN flow.retention_clock.moved_at IS 'When that was last, by the clock of the server.';
COMMENT ON COLUMN flow.retention_clock.kept IS
    'How long the operator keeps each kind, in seconds and 0 for good, as the process was told that moved it last. For '
    'operators to see.';

CREATE FUNCTION flow.retention_now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT least(clock_timestamp() + o.stepped, c.reached) + (o.ahead - o.stepped) FROM flow.clock_offset o,
        flow.retention_clock c);
END $$;
COMMENT ON FUNCTION flow.retention_now() IS
    'The time by which things are old enough to be deleted: that of the server, or an earlier one where the server''s '
    'has jumped ahead or nobody was there while it passed.';
