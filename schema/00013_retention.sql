-- How long what an organization has is kept, and what is on its way out.
-- +goose Up
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

-- +goose StatementBegin
CREATE FUNCTION flow.kept_since(org uuid, kind text, most_seconds float8) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT flow.clock() - make_interval(secs => least(nullif(most_seconds, 0),
        (SELECT r.days * 86400::float8 FROM flow.retention r WHERE r.org_id = org AND r.name = kind)))
$$;

CREATE FUNCTION flow.first_id(since timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM since) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION flow.kept_since(uuid, text, double precision) IS 'What of this kind an organization had before this time goes; null where all is kept. most_seconds: how long the operator keeps it, 0 for good.';
COMMENT ON FUNCTION flow.first_id(timestamptz) IS 'The least id (UUIDv7) that may have been made at a time.';

-- +goose StatementBegin
-- One with calls under way, or with outcomes that a person has to decide, is not over however old it is.
CREATE FUNCTION flow.batch_is_old(c flow.batch_count, since timestamptz) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT c.status IN ('completed', 'partially_failed', 'failed', 'cancelled') AND c.completed_at < since
        AND c.started + c.needs_reconcile + c.unresolved = 0
$$;
-- +goose StatementEnd
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
