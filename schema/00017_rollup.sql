-- Sums over batches by the hour in which they were started, so that what is asked about a month need not read each of
-- them. More rows may be there for one key than one, and some are negative: who changes sums only adds rows, and waits
-- for nobody.
CREATE TABLE flow.rollup (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    definition_id uuid NOT NULL,
    hour timestamptz NOT NULL,
    version int NOT NULL,
    status flow.batch_status NOT NULL,
    batches bigint NOT NULL,
    jobs bigint NOT NULL,
    staged bigint NOT NULL,
    queued bigint NOT NULL,
    pending bigint NOT NULL,
    started bigint NOT NULL,
    needs_reconcile bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    accepted bigint NOT NULL,
    rejected bigint NOT NULL,
    unprocessed bigint NOT NULL,
    unresolved bigint NOT NULL,
    timed bigint NOT NULL,
    seconds double precision NOT NULL,
    most_seconds double precision NOT NULL,
    no bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (org_id, hour, no)
);
COMMENT ON TABLE flow.rollup IS
    'Sums over the batches that have ended, by organization, hour of the start, definition, version and status. Up to '
    'where is in flow.organization.rolled_up_to; what was not over then is in flow.rollup_open. Rows outlive their '
    'batches.';
COMMENT ON COLUMN flow.rollup.org_id IS 'The organization whose batches they are.';
COMMENT ON COLUMN flow.rollup.definition_id IS 'The definition that they ran.';
COMMENT ON COLUMN flow.rollup.hour IS 'The hour (UTC) in which they were started.';
COMMENT ON COLUMN flow.rollup.version IS 'The version of the definition that they ran.';
COMMENT ON COLUMN flow.rollup.status IS 'How they ended.';
COMMENT ON COLUMN flow.rollup.batches IS 'How many batches.';
COMMENT ON COLUMN flow.rollup.jobs IS 'How many jobs these have; the counters by status below add up to it.';
COMMENT ON COLUMN flow.rollup.staged IS 'Jobs that are staged.';
COMMENT ON COLUMN flow.rollup.queued IS 'Jobs that are queued.';
COMMENT ON COLUMN flow.rollup.pending IS 'Jobs that are pending.';
COMMENT ON COLUMN flow.rollup.started IS 'Jobs that are started.';
COMMENT ON COLUMN flow.rollup.needs_reconcile IS 'Jobs that are needs_reconcile.';
COMMENT ON COLUMN flow.rollup.completed IS 'Jobs that are completed.';
COMMENT ON COLUMN flow.rollup.failed IS 'Jobs that are failed.';
COMMENT ON COLUMN flow.rollup.cancelled IS 'Jobs that are cancelled.';
COMMENT ON COLUMN flow.rollup.accepted IS 'Jobs that are accepted.';
COMMENT ON COLUMN flow.rollup.rejected IS 'Jobs that are rejected.';
COMMENT ON COLUMN flow.rollup.unprocessed IS 'Jobs that are unprocessed.';
COMMENT ON COLUMN flow.rollup.unresolved IS 'Jobs that are unresolved.';
COMMENT ON COLUMN flow.rollup.timed IS
    'How many of the batches began, so that their time from there to their end is known.';
COMMENT ON COLUMN flow.rollup.seconds IS 'The sum of these times, in seconds.';
COMMENT ON COLUMN flow.rollup.most_seconds IS 'The longest of them.';
COMMENT ON COLUMN flow.rollup.no IS 'Tells rows of one hour apart.';

CREATE TABLE flow.rollup_open (
    org_id uuid NOT NULL,
    started_at timestamptz NOT NULL,
    batch_id uuid NOT NULL,
    PRIMARY KEY (org_id, started_at, batch_id)
);
COMMENT ON TABLE flow.rollup_open IS
    'Batches that were started before organization.rolled_up_to and are not in flow.rollup: they were not over, or '
    'something of them changed since.';
COMMENT ON COLUMN flow.rollup_open.org_id IS 'The organization whose batch it is.';
COMMENT ON COLUMN flow.rollup_open.started_at IS 'When the batch was started.';
COMMENT ON COLUMN flow.rollup_open.batch_id IS 'The batch that is left out.';

CREATE VIEW flow.batch_figures WITH (security_invoker = true) AS
SELECT b.id AS batch_id, b.org_id, b.definition_id, b.created_at AS at, b.version, c.status,
    c.completed_at IS NOT NULL AS over,
    1::bigint AS batches, b.record_count::bigint AS jobs, c.staged::bigint AS staged, c.queued::bigint AS queued,
    c.pending::bigint AS pending, c.started::bigint AS started, c.needs_reconcile::bigint AS needs_reconcile,
    c.completed::bigint AS completed, c.failed::bigint AS failed, c.cancelled::bigint AS cancelled,
    c.accepted::bigint AS accepted, c.rejected::bigint AS rejected, c.unprocessed::bigint AS unprocessed,
    c.unresolved::bigint AS unresolved,
    (c.completed_at IS NOT NULL AND c.started_at IS NOT NULL)::int::bigint AS timed,
    coalesce(extract(epoch FROM c.completed_at - c.started_at), 0)::double precision AS seconds
FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id;
COMMENT ON VIEW flow.batch_figures IS 'What flow.rollup sums up, of each batch.';

CREATE FUNCTION flow.hour_of(at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT date_bin('1 hour', at, '2000-01-01T00:00:00Z')
$$;

CREATE FUNCTION flow.rollup_key(org uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('rollup ' || org, 0)
$$;

-- The hour before now is left out, and some more for a clock that is set back.
CREATE FUNCTION flow.rollup_until() RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT flow.hour_of(flow.clock() - interval '75 minutes') WHERE NOT EXISTS (
        SELECT FROM pg_stat_activity a WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL
            AND a.xact_start < clock_timestamp() - interval '1 hour')
$$;

CREATE FUNCTION flow.is_rolled_up(b flow.batch) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT b.created_at < o.rolled_up_to
        AND NOT EXISTS (SELECT FROM flow.rollup_open u WHERE u.org_id = b.org_id AND u.started_at = b.created_at
            AND u.batch_id = b.id)
    FROM flow.organization o WHERE o.id = b.org_id
$$;

-- What is there of the same hours is brought into one row a key on the way.
CREATE FUNCTION flow.roll_up(org uuid, ids uuid[]) RETURNS void LANGUAGE sql AS $$
    WITH added AS MATERIALIZED (
        SELECT f.*, flow.hour_of(f.at) AS hour FROM flow.batch_figures f WHERE f.batch_id = ANY(ids)
    ), gone AS (
        DELETE FROM flow.rollup r WHERE r.org_id = org AND r.hour IN (SELECT a.hour FROM added a) RETURNING r.*
    )
    INSERT INTO flow.rollup
    SELECT org, s.definition_id, s.hour, s.version, s.status, sum(s.batches), sum(s.jobs), sum(s.staged), sum(s.queued),
        sum(s.pending), sum(s.started), sum(s.needs_reconcile), sum(s.completed), sum(s.failed), sum(s.cancelled),
            sum(s.accepted),
        sum(s.rejected), sum(s.unprocessed), sum(s.unresolved), sum(s.timed), sum(s.seconds), max(s.most_seconds)
    FROM (
        SELECT g.* FROM gone g
        UNION ALL
        SELECT org, a.definition_id, a.hour, a.version, a.status, a.batches, a.jobs, a.staged, a.queued, a.pending,
            a.started,
            a.needs_reconcile, a.completed, a.failed, a.cancelled, a.accepted, a.rejected, a.unprocessed, a.unresolved,
                a.timed,
            a.seconds, a.seconds, 0::bigint
        FROM added a
    ) s
    GROUP BY s.definition_id, s.hour, s.version, s.status
    HAVING sum(s.batches) <> 0
$$;

-- A function and not a view, so that an index is asked for no more than what is newer than the sums.
CREATE FUNCTION flow.figures(org uuid, since timestamptz, until timestamptz,
    sums boolean) RETURNS SETOF flow.rollup LANGUAGE sql STABLE AS $$
    SELECT r.* FROM flow.rollup r WHERE sums AND r.org_id = org AND r.hour >= since AND r.hour < until
    UNION ALL
    SELECT f.org_id, f.definition_id, f.at, f.version, f.status, f.batches, f.jobs, f.staged, f.queued, f.pending,
        f.started,
        f.needs_reconcile, f.completed, f.failed, f.cancelled, f.accepted, f.rejected, f.unprocessed, f.unresolved,
            f.timed, f.seconds,
        f.seconds, 0::bigint
    FROM flow.batch_figures f
    WHERE f.org_id = org AND f.at < until
        AND f.at >= greatest(since, (SELECT o.rolled_up_to FROM flow.organization o WHERE o.id = org))
    UNION ALL
    SELECT org, f.definition_id, f.at, f.version, f.status, f.batches, f.jobs, f.staged, f.queued, f.pending, f.started,
        f.needs_reconcile, f.completed, f.failed, f.cancelled, f.accepted, f.rejected, f.unprocessed, f.unresolved,
            f.timed, f.seconds,
        f.seconds, 0::bigint
    FROM flow.rollup_open u CROSS JOIN LATERAL (SELECT * FROM flow.batch_figures b
        WHERE b.batch_id = u.batch_id OFFSET 0) f
    WHERE u.org_id = org AND u.started_at >= since AND u.started_at < until
$$;

-- It waits only for who rolls up, and who rolls up waits for nobody.
CREATE FUNCTION flow.rollup_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(flow.rollup_key(OLD.org_id));
    INSERT INTO flow.rollup_open (org_id, started_at, batch_id)
    SELECT b.org_id, b.created_at, b.id FROM flow.batch b JOIN flow.organization o ON o.id = b.org_id
    WHERE b.id = OLD.batch_id AND b.created_at < o.rolled_up_to
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        INSERT INTO flow.rollup
        SELECT b.org_id, b.definition_id, flow.hour_of(b.created_at), b.version, OLD.status, -1, -b.record_count,
            -OLD.staged,
            -OLD.queued, -OLD.pending, -OLD.started, -OLD.needs_reconcile, -OLD.completed, -OLD.failed, -OLD.cancelled,
            -OLD.accepted, -OLD.rejected, -OLD.unprocessed, -OLD.unresolved, -(OLD.started_at IS NOT NULL)::int,
            -coalesce(extract(epoch FROM OLD.completed_at - OLD.started_at), 0), 0
        FROM flow.batch b WHERE b.id = OLD.batch_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER rollup_changes AFTER UPDATE ON flow.batch_count
    FOR EACH ROW WHEN (OLD.completed_at IS NOT NULL) EXECUTE FUNCTION flow.rollup_changes();
COMMENT ON FUNCTION flow.hour_of(timestamptz) IS 'The beginning of the hour (UTC) of a time.';
COMMENT ON FUNCTION flow.rollup_key(uuid) IS
    'The key of an advisory lock: who moves organization.rolled_up_to or takes batches out of flow.rollup_open has it '
    'alone, who goes by them shares it.';
COMMENT ON FUNCTION flow.rollup_until() IS
    'Up to where batches can be rolled up; null where a transaction has been under way for so long that it may still '
    'add one that was started before.';
COMMENT ON FUNCTION flow.is_rolled_up(flow.batch) IS 'Whether the figures of a batch are in flow.rollup.';
COMMENT ON FUNCTION flow.roll_up(uuid, uuid[]) IS 'Adds the figures of batches of an organization to flow.rollup.';
COMMENT ON FUNCTION flow.figures(uuid, timestamptz, timestamptz, boolean) IS
    'Figures of the batches that an organization started from one time to another, to be summed up: rows of '
    'flow.rollup, and each batch that is not in there, whose hour is the time of its start. Without sums only the '
    'latter, which is all that is there of the last hour.';
COMMENT ON FUNCTION flow.rollup_changes() IS
    'Takes a batch that changes after its end out of flow.rollup, to be added again as it is then.';

COMMENT ON COLUMN flow.batch_figures.batch_id IS 'The batch whose figures they are.';
COMMENT ON COLUMN flow.batch_figures.at IS 'When it was started.';
COMMENT ON COLUMN flow.batch_figures.over IS 'Whether it has ended.';
-- What the view has of flow.rollup is called by the same names.
DO $$
DECLARE c record;
BEGIN
    FOR c IN
        SELECT v.attname AS name, col_description(r.attrelid, r.attnum) AS says
        FROM pg_attribute r JOIN pg_attribute v ON v.attname = r.attname AND v.attrelid = 'flow.batch_figures'::regclass
        WHERE r.attrelid = 'flow.rollup'::regclass AND r.attnum > 0
    LOOP
        EXECUTE format('COMMENT ON COLUMN flow.batch_figures.%I IS %L', c.name, c.says);
    END LOOP;
END $$;
