-- How long what an organization has is kept, and what is on its way out.
CREATE TABLE flow.retention (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (name IN ('batches', 'calls', 'deliveries', 'audit_log', 'usage')),
    days int NOT NULL CHECK (days BETWEEN 1 AND 36500),
    PRIMARY KEY (org_id, name)
);
COMMENT ON TABLE flow.retention IS 'How long an organization has what is its own kept, where it has said that it wants less than the operator keeps.';
COMMENT ON COLUMN flow.retention.org_id IS 'The organization.';
COMMENT ON COLUMN flow.retention.name IS 'Of what, as the API names it.';
COMMENT ON COLUMN flow.retention.days IS 'For how many days. What the operator keeps for a shorter time goes then.';

CREATE FUNCTION flow.kept_since(org uuid, kind text, most_seconds float8) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT flow.retention_now() - make_interval(secs => least(nullif(most_seconds, 0),
        (SELECT r.days * 86400::float8 FROM flow.retention r WHERE r.org_id = org AND r.name = kind)))
$$;

CREATE FUNCTION flow.first_id(since timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM since) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
COMMENT ON FUNCTION flow.kept_since(uuid, text, double precision) IS 'What of this kind an organization had before this time goes; null where all is kept. most_seconds: how long the operator keeps it, 0 for good.';
COMMENT ON FUNCTION flow.first_id(timestamptz) IS 'The least id (UUIDv7) that may have been made at a time.';

-- One with calls under way, or with outcomes that a person has to decide, is not over however old it is.
CREATE FUNCTION flow.batch_is_old(c flow.batch_count, since timestamptz) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT c.status IN ('completed', 'partially_failed', 'failed', 'cancelled') AND c.completed_at < since
        AND c.started + c.needs_reconcile + c.unresolved = 0
$$;
COMMENT ON FUNCTION flow.batch_is_old(flow.batch_count, timestamptz) IS 'Whether a batch ended before a time, and nothing of it is undecided.';

-- The rows of a large batch go in many transactions. It is gone for everybody with the first, which writes this.
CREATE TABLE flow.erasure (
    batch_id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    page_set uuid,
    begun_at timestamptz NOT NULL DEFAULT flow.clock()
);
COMMENT ON TABLE flow.erasure IS 'Batches that were deleted and whose rows in other tables are still there. Housekeeping takes them away, and then the row.';
COMMENT ON COLUMN flow.erasure.batch_id IS 'The batch that was deleted. No row of flow.batch has this id any more.';
COMMENT ON COLUMN flow.erasure.org_id IS 'The organization whose batch it was, by which rows of flow.ended_run are found.';
COMMENT ON COLUMN flow.erasure.page_set IS 'The set of pages that goes with it; null where that belongs to another batch.';
COMMENT ON COLUMN flow.erasure.begun_at IS 'When the batch was deleted.';

CREATE TABLE flow.deletion (
    org_id uuid PRIMARY KEY,
    begun_at timestamptz NOT NULL DEFAULT flow.clock(),
    ended_at timestamptz,
    rows jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(rows) = 'object')
);
COMMENT ON TABLE flow.deletion IS 'Organizations that an operator has deleted, each with the receipt of what went. It stays for good.';
COMMENT ON COLUMN flow.deletion.org_id IS 'The organization that was.';
COMMENT ON COLUMN flow.deletion.begun_at IS 'When an operator said so.';
COMMENT ON COLUMN flow.deletion.ended_at IS 'When nothing was left but the audit log; null before that.';
COMMENT ON COLUMN flow.deletion.rows IS 'How many rows went, by table.';

-- A table whose rows others refer to has its turn once those are gone.
CREATE FUNCTION flow.erase_organization(org uuid, only_tables text[], max_rows int, OUT tables text[], OUT counts bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    name text;
    n bigint;
    referred text;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id' AND NOT a.attisdropped
        WHERE c.relnamespace = 'flow'::regnamespace AND c.relkind IN ('r', 'p')
            AND c.relname NOT IN ('audit_log', 'retention', 'deletion', 'erasure', 'batch', 'batch_count', 'record_set')
            AND (only_tables IS NULL OR c.relname = ANY(only_tables))
        ORDER BY 1
    LOOP
        BEGIN
            EXECUTE format('DELETE FROM flow.%1$I WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.%1$I WHERE org_id = $1 LIMIT $2))', name) USING org, max_rows;
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
COMMENT ON FUNCTION flow.erase_organization(uuid, text[], int) IS 'Deletes up to so many rows of an organization from each table that has any, or from these tables only, and says how many. Batches, record sets and the audit log go other ways.';
