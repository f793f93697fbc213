-- How long what an organization has is kept, and what is on its way out.
CREATE TABLE flow.retention (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (name IN ('batches', 'calls', 'deliveries', 'audit_log', 'usage')),
    days int NOT NULL CHECK (days BETWEEN 1 AND 36500),
    PRIMARY KEY (org_id, name)
);
COMMENT ON TABLE flow.retention IS
    'How long an organization has what is its own kept, where it has said that it wants less than the operator keeps.';
COMMENT ON COLUMN flow.retention.org_id IS 'The organization.';
COMMENT ON COLUMN flow.retention.name IS 'Of what, as the API names it.';
COMMENT ON COLUMN flow.retention.days IS 'For how many days. What the operator keeps for a shorter time goes then.';

CREATE FUNCTION flow.kept_since(org uuid, kind text, most_seconds float8) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN NOT EXISTS (SELECT FROM flow.move m WHERE m.org_id = org AND m.copied_at IS NOT NULL)
        THEN flow.retention_now() - make_interval(secs => least(nullif(most_seconds, 0),
            (SELECT r.days * 86400::float8 FROM flow.retention r WHERE r.org_id = org AND r.name = kind))) END
$$;

CREATE FUNCTION flow.first_id(since timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(greatest((extract(epoch FROM since) * 1000)::bigint, 0)), 12, '0') || repeat('0', 20))::uuid
$$;
COMMENT ON FUNCTION flow.kept_since(uuid, text, double precision) IS
    'What of this kind an organization had before this time goes; null where all is kept. most_seconds: how long the '
    'operator keeps it, 0 for good. All is kept of one that has come from another cell and is not opened.';
COMMENT ON FUNCTION flow.first_id(timestamptz) IS
    'The least id (UUIDv7) that may have been made at a time; no id is of a time before 1970.';

-- One with calls under way, or with outcomes that a person has to decide, is not over however old it is.
CREATE FUNCTION flow.batch_is_old(c flow.batch_count, since timestamptz) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT c.status IN ('completed', 'partially_failed', 'failed', 'cancelled') AND c.completed_at < since
        AND c.started + c.needs_reconcile + c.unresolved = 0
$$;
COMMENT ON FUNCTION flow.batch_is_old(flow.batch_count, timestamptz) IS
    'Whether a batch ended before a time, and nothing of it is undecided.';

-- The rows of a large batch go in many transactions. It is gone for everybody with the first, which writes this.
CREATE TABLE flow.erasure (
    batch_id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    page_set uuid,
    begun_at timestamptz NOT NULL DEFAULT flow.clock()
);
COMMENT ON TABLE flow.erasure IS
    'Batches, and large record sets, that were deleted and whose rows in other tables are still there. Housekeeping '
    'takes them away, and then the row.';
COMMENT ON COLUMN flow.erasure.batch_id IS 'The batch, or the set, that was deleted: no row has this id any more.';
COMMENT ON COLUMN flow.erasure.org_id IS
    'The organization whose batch it was, by which rows of flow.ended_run are found.';
COMMENT ON COLUMN flow.erasure.page_set IS
    'The set of pages that goes with it; null where that belongs to another batch.';
COMMENT ON COLUMN flow.erasure.begun_at IS 'When the batch was deleted.';

CREATE TABLE flow.deletion (
    org_id uuid PRIMARY KEY,
    begun_at timestamptz NOT NULL DEFAULT flow.clock(),
    ended_at timestamptz,
    awaited text[],
    rows jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(rows) = 'object')
);
COMMENT ON TABLE flow.deletion IS
    'Organizations that an operator has deleted, each with the receipt of what went. It stays for good.';
COMMENT ON COLUMN flow.deletion.org_id IS 'The organization that was.';
COMMENT ON COLUMN flow.deletion.begun_at IS 'When an operator said so.';
COMMENT ON COLUMN flow.deletion.ended_at IS 'When nothing was left but the audit log; null before that.';
COMMENT ON COLUMN flow.deletion.awaited IS
    'Transactions of the database that were open when rows began to go, and may have written for a request that was '
    'let in before. It does not end before them. Null until then.';
COMMENT ON COLUMN flow.deletion.rows IS 'How many rows went, by table.';

-- A table whose rows others refer to has its turn once those are gone.
CREATE FUNCTION flow.erase_organization(org uuid, only_tables text[], max_rows int, OUT tables text[],
    OUT counts bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    name text;
    n bigint;
    referred text;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id'
            AND NOT a.attisdropped
        WHERE c.relnamespace = 'flow'::regnamespace AND c.relkind IN ('r', 'p')
            AND c.relname NOT IN ('audit_log', 'retention', 'deletion', 'erasure', 'batch', 'batch_count', 'record_set',
                'blob', 'move', 'move_name')
            AND (only_tables IS NULL OR c.relname = ANY(only_tables))
        ORDER BY 1
    LOOP
        BEGIN
            EXECUTE format('DELETE FROM flow.%1$I WHERE ctid = ANY(ARRAY('
                'SELECT ctid FROM flow.%1$I WHERE org_id = $1 LIMIT $2))', name) USING org, max_rows;
            GET DIAGNOSTICS n = ROW_COUNT;
            IF n > 0 THEN
                tables := tables || name;
                counts := counts || n;
            END IF;
        EXCEPTION WHEN foreign_key_violation THEN
            referred := SQLERRM;
        END;
    END LOOP;
    IF tables IS NULL AND referred IS NOT NULL THEN
        RAISE EXCEPTION 'organization % has rows that others refer to: %', org, referred;
    END IF;
END $$;
COMMENT ON FUNCTION flow.erase_organization(uuid, text[], int) IS
    'Deletes up to so many rows of an organization from each table that has any, or from these tables only, and says '
    'how many. Batches, record sets, blobs and the audit log go other ways.';

CREATE FUNCTION flow.forget_organizations(max_rows int, OUT gone bigint, OUT kept text) LANGUAGE plpgsql AS $$
DECLARE
    org uuid;
BEGIN
    gone := 0;
    FOR org IN
        SELECT o.id FROM flow.organization o
        WHERE o.status = 'deleted' AND NOT EXISTS (SELECT FROM flow.audit_log l WHERE l.org_id = o.id)
    LOOP
        EXIT WHEN gone >= max_rows;
        BEGIN
            DELETE FROM flow.retention r WHERE r.org_id = org;
            DELETE FROM flow.organization o WHERE o.id = org;
            gone := gone + 1;
        EXCEPTION WHEN foreign_key_violation THEN
            kept := concat_ws('; ', kept, format('organization %s: %s', org, SQLERRM));
        END;
    END LOOP;
END $$;
COMMENT ON FUNCTION flow.forget_organizations(int) IS
    'Takes away what is left of organizations that were deleted and whose audit log is gone, up to so many, and says '
    'how many went, and which ones rows still refer to.';

-- By the indexes that housekeeping finds old rows by, one row for each kind and organization. It reckons itself what
-- flow.retention_now and flow.kept_since say: whoever reads a view runs its functions with rights of their own.
CREATE VIEW ops.retention_debt AS
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() + o.ahead AS now, least(clock_timestamp() + o.stepped, c.reached)
        + (o.ahead - o.stepped) AS retention_now, c.kept
    FROM flow.clock_offset o, flow.retention_clock c
)
SELECT k.kind, (nullif(k.seconds, 0) / 86400)::numeric(10, 2) AS kept_days, o.org_id, o.oldest_at, o.overdue
FROM clock CROSS JOIN LATERAL (
    SELECT n.kind, (clock.kept->>n.kind)::float8 AS seconds FROM unnest(ARRAY['batches', 'calls', 'deliveries',
        'audit_log', 'usage']) n (kind)
) k
LEFT JOIN LATERAL (
    SELECT g.id AS org_id, x.at AS oldest_at, s.since - x.at AS overdue
    FROM flow.organization g
    CROSS JOIN LATERAL (
        SELECT clock.retention_now - make_interval(secs => least(nullif(k.seconds, 0),
            (SELECT r.days * 86400::float8 FROM flow.retention r WHERE r.org_id = g.id
                AND r.name = k.kind))) AS since OFFSET 0
    ) s
    CROSS JOIN LATERAL (
        (SELECT b.created_at AS at FROM flow.batch b
            WHERE k.kind = 'batches' AND b.org_id = g.id AND b.created_at < s.since AND b.retry_of IS NULL
                AND (SELECT n.status IN ('completed', 'partially_failed', 'failed', 'cancelled')
                    AND n.completed_at < s.since
                    AND n.started + n.needs_reconcile + n.unresolved = 0 FROM flow.batch_count n
                        WHERE n.batch_id = b.id)
            ORDER BY b.created_at LIMIT 1)
        UNION ALL
        (SELECT e.claimed_at FROM flow.exchange e WHERE k.kind = 'calls' AND e.org_id = g.id AND e.claimed_at < s.since
            ORDER BY e.id LIMIT 1)
        UNION ALL
        (SELECT d.received_at FROM flow.webhook w CROSS JOIN LATERAL (
                SELECT v.received_at FROM flow.webhook_delivery v WHERE v.org_id = w.org_id AND v.webhook_id = w.id
                    AND v.next_at IS NULL
                ORDER BY v.id LIMIT 1
            ) d
            WHERE k.kind = 'deliveries' AND w.org_id = g.id AND d.received_at < s.since ORDER BY d.received_at LIMIT 1)
        UNION ALL
        (SELECT l.created_at FROM flow.audit_log l WHERE k.kind = 'audit_log' AND l.org_id = g.id
            AND l.created_at < s.since
            ORDER BY l.created_at LIMIT 1)
        UNION ALL
        (SELECT (u.day + 1)::timestamp AT TIME ZONE 'UTC' FROM flow.usage u
            WHERE k.kind = 'usage' AND u.org_id = g.id AND u.day < (s.since AT TIME ZONE 'UTC')::date ORDER BY u.day
                LIMIT 1)
    ) x
    ORDER BY overdue DESC LIMIT 1
) o ON true
UNION ALL
SELECT 'erasure', NULL, e.org_id, e.begun_at, clock.now - e.begun_at
FROM clock LEFT JOIN LATERAL (SELECT * FROM flow.erasure a ORDER BY a.begun_at LIMIT 1) e ON true;
COMMENT ON VIEW ops.retention_debt IS
    'What should be gone and is not: for each kind of what is kept for a while, the row that should have gone first. '
    'Housekeeping is every hour.';
COMMENT ON COLUMN ops.retention_debt.kind IS
    'batches, calls, deliveries, audit_log, usage, as GET /account/retention names them; erasure: batches that are '
    'deleted and have rows in other tables still.';
COMMENT ON COLUMN ops.retention_debt.kept_days IS
    'How long the operator keeps it, in days; null for good, and before a process has done housekeeping. An '
    'organization may keep it for less.';
COMMENT ON COLUMN ops.retention_debt.org_id IS 'Whose row it is; null where nothing is overdue.';
COMMENT ON COLUMN ops.retention_debt.oldest_at IS
    'When it was made; of an erasure, when the batch was deleted; null where nothing is overdue.';
COMMENT ON COLUMN ops.retention_debt.overdue IS 'For how long it should have been gone; null where nothing is.';

-- What is kept for a year loses a four-hundredth of its rows a day. By default Postgres waits until a fifth of them are
-- dead, for three months: their room is not used again until then, and they are cleared all at once, for which each
-- index is read many times. Nor does it find out before how much of what was inserted everybody may see, which sums
-- over an index rest on. Queues and calls, which live for milliseconds, are small: the default clears them at each
-- turn.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['audit_log', 'batch', 'batch_count', 'event_delivery', 'exchange', 'exchange_batch',
        'fragment', 'job', 'page', 'record_chunk', 'slice', 'webhook_delivery'] LOOP
        EXECUTE format('ALTER TABLE flow.%I SET (autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_insert_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02)', name);
    END LOOP;
END $$;
