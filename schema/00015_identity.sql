-- Which database this is. A dump that is restored, a copy, and a server that was restored to a point in time or
-- promoted have forgotten calls that were sent.
CREATE TABLE flow.identity (
    no int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    system_identifier bigint,
    database_oid oid NOT NULL,
    timeline int,
    written_by xid NOT NULL DEFAULT pg_current_xact_id()::xid,
    confirmed_at timestamptz NOT NULL,
    lost_since timestamptz CHECK (lost_since <= confirmed_at)
);
COMMENT ON TABLE flow.identity IS
    'Which database this was when a process first started on it, and whenever somebody said that it may go on after a '
    'restore. The last row counts.';
COMMENT ON COLUMN flow.identity.no IS 'Counts the rows.';
COMMENT ON COLUMN flow.identity.system_identifier IS
    'That of the server (pg_control_system), which a base backup and a standby share; null where it does not tell.';
COMMENT ON COLUMN flow.identity.database_oid IS 'That of the database in its server.';
COMMENT ON COLUMN flow.identity.timeline IS
    'Timeline of the log then: a server that was restored to a point in time, or promoted, begins another. Null where '
    'it does not tell.';
COMMENT ON COLUMN flow.identity.written_by IS
    'The transaction that wrote this row. A row that came out of a dump was written by another.';
COMMENT ON COLUMN flow.identity.confirmed_at IS 'When it was said that this is the database that counts.';
COMMENT ON COLUMN flow.identity.lost_since IS
    'What was committed from then on, up to confirmed_at, may be lost; null where nothing is.';

-- A server that somebody else runs may refuse to tell of itself. Then dumps and copies are known all the same.
CREATE FUNCTION flow.system_identifier() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT s.system_identifier FROM pg_control_system() s);
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported
    OR object_not_in_prerequisite_state THEN
    RETURN NULL;
END $$;

CREATE FUNCTION flow.timeline() RETURNS int LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int;
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported
    OR object_not_in_prerequisite_state THEN
    RETURN NULL;
END $$;

-- With the rights of its owner, as whoever reads ops reads nothing else.
CREATE FUNCTION ops.moved(trust_failover boolean DEFAULT false) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN pg_is_in_recovery() THEN 'its server is a standby'
        WHEN i.system_identifier <> flow.system_identifier() THEN 'it is on another server than it was'
        WHEN i.database_oid <> (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            THEN 'it is a copy of another database'
        WHEN i.xmin <> i.written_by THEN 'it was restored from a dump, or declared to be restored'
        WHEN NOT trust_failover AND i.timeline <> flow.timeline()
            THEN 'its server was restored to a point in time, or was a standby that is now promoted'
    END
    FROM flow.identity i ORDER BY i.no DESC LIMIT 1
$$;
COMMENT ON FUNCTION flow.system_identifier() IS 'That of the server; null where it does not tell.';
COMMENT ON FUNCTION flow.timeline() IS
    'The timeline that the server writes its log to; null on a standby, and where it does not tell.';
COMMENT ON FUNCTION ops.moved(boolean) IS
    'Why this is not the database that was last confirmed; null where it is, or none was yet. Services write nothing '
    'to one that is not. With trust_failover another timeline is no reason.';

CREATE VIEW ops.restore AS
SELECT i.no, i.confirmed_at, i.lost_since, i.timeline, CASE WHEN i.no = (SELECT max(l.no) FROM flow.identity l)
    THEN ops.moved() END AS closed_because
FROM flow.identity i;
COMMENT ON VIEW ops.restore IS
    'When a process first started on this database, and each restore after which it was opened again by `flowlane '
    'restore confirm`.';
COMMENT ON COLUMN ops.restore.no IS 'Counts them.';
COMMENT ON COLUMN ops.restore.confirmed_at IS 'When it was opened.';
COMMENT ON COLUMN ops.restore.lost_since IS
    'What was committed from then on, up to confirmed_at, may be lost; null where nothing is.';
COMMENT ON COLUMN ops.restore.timeline IS 'Timeline of the log of the server then.';
COMMENT ON COLUMN ops.restore.closed_because IS
    'Of the last row: why services write nothing until the next confirmation; null where they do.';

-- Which of several databases an organization lives in. Unlike its identity it stays when a database is restored.
CREATE TABLE flow.cell (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    no smallint NOT NULL DEFAULT 0 CHECK (no BETWEEN 0 AND 4095)
);
INSERT INTO flow.cell DEFAULT VALUES;
COMMENT ON TABLE flow.cell IS
    'Which cell this database is: one row, which `flowlane migrate up --cell` writes before there are organizations.';
COMMENT ON COLUMN flow.cell.only_row IS 'Always true: lets the table have one row.';
COMMENT ON COLUMN flow.cell.no IS 'The number of the cell, which ids and API keys that are made here carry.';

-- Rows that go to another cell take their numbers along, so each cell has numbers of its own: 2^50 of them are used up
-- in 3,500 years at ten thousand a second.
CREATE FUNCTION flow.set_cell(n smallint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE flow.cell SET no = n;
    PERFORM setval(format('%I.%I', s.schemaname, s.sequencename)::regclass, ((n::bigint << 50) + 1), false)
    FROM pg_sequences s WHERE s.schemaname = 'flow' AND s.data_type = 'bigint'::regtype;
END $$;
COMMENT ON FUNCTION flow.set_cell(smallint) IS
    'Makes an empty database a cell: sets its number, and has its sequences begin where those of no other cell are.';

-- An organization that goes to another cell, or comes from one. What is left of one that went is how it is known: where
-- its requests have to go now.
CREATE TABLE flow.move (
    org_id uuid PRIMARY KEY,
    to_url text NOT NULL,
    was_status text NOT NULL CHECK (was_status IN ('active', 'suspended')),
    begun_at timestamptz NOT NULL DEFAULT flow.clock(),
    refused_at timestamptz,
    closed_at timestamptz,
    copied_at timestamptz,
    due json,
    moved_at timestamptz
);
COMMENT ON TABLE flow.move IS
    'Organizations on their way to another cell, or from one, and those that went. See `flowlane org move`.';
COMMENT ON COLUMN flow.move.org_id IS 'The organization.';
COMMENT ON COLUMN flow.move.to_url IS 'The root of the API of the cell to which it goes, without /v1.';
COMMENT ON COLUMN flow.move.was_status IS 'What status it has once it is there.';
COMMENT ON COLUMN flow.move.begun_at IS 'When the move began, here.';
COMMENT ON COLUMN flow.move.refused_at IS
    'In the cell from which it goes: since when its requests are answered 503; null until then.';
COMMENT ON COLUMN flow.move.closed_at IS
    'In the cell from which it goes: since when nothing is written for requests that were let in before, either; null '
    'until then.';
COMMENT ON COLUMN flow.move.copied_at IS
    'In the cell to which it goes: when all of it was there. Null in the other one.';
COMMENT ON COLUMN flow.move.due IS
    'In the cell to which it goes: what is to be done for it, as flow.due had it when all was copied.';
COMMENT ON COLUMN flow.move.moved_at IS
    'In the cell from which it goes: since when its requests are answered with where it is; null until then.';

-- It is called for a row that is there alone, so looking costs no call.
CREATE FUNCTION flow.refuse_moved(m flow.move) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'organization % goes to another cell', m.org_id
        USING ERRCODE = 'FLMOV', DETAIL = CASE WHEN m.moved_at IS NULL THEN '' ELSE m.to_url END;
END $$;
COMMENT ON FUNCTION flow.refuse_moved(flow.move) IS
    'Fails, and says in the detail where the organization is once it has moved: package pg has transactions of '
    'requests call it.';

CREATE FUNCTION flow.refuse_deleted(org uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'organization % is deleted', org USING ERRCODE = 'FLDEL';
END $$;
COMMENT ON FUNCTION flow.refuse_deleted(uuid) IS
    'Fails: package pg has transactions of requests call it for an organization that is deleted, or on its way there.';

CREATE TABLE flow.move_name (
    name bytea PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.move (org_id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.move_name IS
    'By what requests of organizations that move are known, while nothing else of them may be here.';
COMMENT ON COLUMN flow.move_name.name IS
    'The hash of an API key, the id of a webhook or of the organization, or how the identity provider names it.';
COMMENT ON COLUMN flow.move_name.org_id IS 'The organization.';
