-- How long what an organization has is kept, and the deletion of batches that are older.

-- name: RetentionList :many
SELECT name, days FROM flow.retention WHERE org_id = @org_id;

-- name: RetentionLock :exec
-- One change after the other.
SELECT FROM flow.organization WHERE id = @org_id FOR NO KEY UPDATE;

-- name: RetentionClear :exec
DELETE FROM flow.retention WHERE org_id = @org_id;

-- name: RetentionSet :exec
INSERT INTO flow.retention (org_id, name, days)
SELECT @org_id, unnest(@names::text[]), unnest(@days::int[]);

-- name: RetentionClockAdvance :one
-- Notes how long the operator keeps things, and moves the clock of deletions on by twice what has passed for the
-- process and for the server, whichever is less, as far as the time of the server. Tells how far it is behind that.
UPDATE flow.retention_clock c SET moved_at = s.now, kept = @kept, reached = least(s.now, c.reached + 2 * greatest(
    least(make_interval(secs => @seconds), s.now - c.moved_at), interval '0'))
FROM (SELECT clock_timestamp() + stepped AS now FROM flow.clock_offset) s
RETURNING extract(epoch FROM s.now - c.reached)::float8 AS behind;

-- name: BatchesOld :many
-- Locks first batches of records that ended long ago, as retries of them did, and whose results nobody waits for, the
-- oldest first. The counts are asked for one by one: a join with them may begin with all batches that there are.
SELECT c.batch_id FROM flow.batch_count c WHERE c.batch_id = ANY(ARRAY(
    SELECT o.id FROM flow.organization g
    CROSS JOIN LATERAL (SELECT flow.kept_since(g.id, 'batches', @keep_seconds) AS since OFFSET 0) k
    CROSS JOIN LATERAL (
        SELECT b.id FROM flow.batch b
        WHERE b.org_id = g.id AND b.created_at < k.since AND b.retry_of IS NULL
            AND (SELECT flow.batch_is_old(n, k.since) FROM flow.batch_count n WHERE n.batch_id = b.id)
            AND flow.is_rolled_up(b) AND NOT EXISTS (SELECT FROM flow.wait w WHERE w.child = b.id)
            AND NOT EXISTS (SELECT FROM flow.batch r WHERE r.retry_root = b.id AND (NOT flow.is_rolled_up(r)
                OR (SELECT NOT flow.batch_is_old(m, k.since) FROM flow.batch_count m WHERE m.batch_id = r.id)))
        ORDER BY b.created_at LIMIT @max_rows
    ) o
    LIMIT @max_rows
)) ORDER BY c.batch_id FOR UPDATE SKIP LOCKED;

-- name: BatchEraseLock :one
-- Locks a batch of an organization against every other change, and reads what batch it retries, if any.
SELECT b.retry_root FROM flow.batch_count c JOIN flow.batch b ON b.id = c.batch_id
WHERE b.id = @id AND b.org_id = @org_id FOR UPDATE OF c;

-- name: BatchFamilyOpen :one
-- The first of a batch and those that retried its records that is not over, of which something is undecided, or whose
-- results a task waits for.
SELECT b.id, c.status, (c.started + c.needs_reconcile + c.unresolved)::bigint AS undecided, flow.batch_is_old(c,
    'infinity') AS over
FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id
WHERE (b.id = @id OR b.retry_root = @id)
    AND (NOT flow.batch_is_old(c, 'infinity') OR EXISTS (SELECT FROM flow.wait w WHERE w.child = b.id))
ORDER BY b.retry_no LIMIT 1;

-- name: BatchesErase :execrows
-- Deletes batches that are locked, with those that retry their records, unless one that is not old (or, at once, not
-- over) has come since; what else there is of them is left to RowsErase.
WITH old AS (
    SELECT b.id, b.org_id, coalesce(b.page_set, b.id) AS page_set FROM flow.batch b
    JOIN flow.batch_count n ON n.batch_id = b.id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN @at_once::boolean THEN 'infinity' ELSE flow.kept_since(b.org_id, 'batches',
            @keep_seconds) END AS since OFFSET 0
    ) k
    WHERE b.id = ANY(@ids::uuid[]) AND flow.batch_is_old(n, k.since)
        AND (@at_once OR flow.is_rolled_up(b)) AND NOT EXISTS (SELECT FROM flow.wait w WHERE w.child = b.id)
        AND NOT EXISTS (
        SELECT FROM flow.batch r JOIN flow.batch_count m ON m.batch_id = r.id
        WHERE r.retry_root = b.id AND NOT (flow.batch_is_old(m, k.since) AND (@at_once OR flow.is_rolled_up(r))))
), family AS (
    SELECT o.id, o.org_id, o.page_set FROM old o
    UNION ALL
    SELECT r.id, r.org_id, NULL FROM old o JOIN flow.batch r ON r.retry_root = o.id
), gone AS (
    DELETE FROM flow.batch b USING family f WHERE b.id = f.id
), counts AS (
    DELETE FROM flow.batch_count c USING family f WHERE c.batch_id = f.id
), sets AS (
    DELETE FROM flow.record_set s USING old o WHERE s.id = o.page_set
)
INSERT INTO flow.erasure (batch_id, org_id, page_set) SELECT f.id, f.org_id, f.page_set FROM family f;

-- name: ErasuresLock :many
-- Some batches that are gone, of an organization or, where it is null, of all.
SELECT * FROM flow.erasure e WHERE e.org_id = sqlc.narg('org_id')::uuid OR sqlc.narg('org_id')::uuid IS NULL
ORDER BY e.batch_id LIMIT @max_rows FOR UPDATE SKIP LOCKED;

-- name: RowsErase :many
-- Deletes rows of batches that are gone, up to max_rows of each table, and says how many.
WITH slices AS (
    DELETE FROM flow.slice WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.slice WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), jobs AS (
    DELETE FROM flow.job WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.job WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), parts AS (
    DELETE FROM flow.part WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.part WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), fragments AS (
    DELETE FROM flow.fragment WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.fragment WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), elements AS (
    DELETE FROM flow.element WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.element WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), inheriteds AS (
    DELETE FROM flow.inherited WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.inherited WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), kept_keys AS (
    DELETE FROM flow.kept_key WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.kept_key WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), waits AS (
    DELETE FROM flow.wait WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.wait WHERE batch_id = ANY(@ids::uuid[])
        LIMIT @max_rows)) RETURNING 1
), exchange_batchs AS (
    DELETE FROM flow.exchange_batch WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.exchange_batch
        WHERE batch_id = ANY(@ids::uuid[]) LIMIT @max_rows)) RETURNING 1
), ended_runs AS (
    DELETE FROM flow.ended_run WHERE ctid = ANY(ARRAY(
        SELECT r.ctid FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@ids::uuid[]) AS id) n
        CROSS JOIN LATERAL (SELECT x.ctid FROM flow.ended_run x WHERE x.org_id = n.org_id
            AND x.batch_id = n.id OFFSET 0) r LIMIT @max_rows)) RETURNING 1
), resolutions AS (
    DELETE FROM flow.resolution WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.resolution
        WHERE batch_id = ANY(@ids::uuid[]) LIMIT @max_rows)) RETURNING 1
), pages AS (
    DELETE FROM flow.page WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.page WHERE set_id = ANY(@page_sets::uuid[])
        LIMIT @max_rows)) RETURNING 1
), blobs AS ( -- at most one for each chunk: where few chunks are left, none of these are
    UPDATE flow.blob SET set_id = NULL, unnamed_at = flow.clock() WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM flow.blob WHERE set_id = ANY(@page_sets::uuid[]) LIMIT @max_rows)) RETURNING 1
), record_chunks AS (
    DELETE FROM flow.record_chunk WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM flow.record_chunk WHERE record_set_id = ANY(@page_sets::uuid[]) LIMIT @max_rows)) RETURNING 1
)
SELECT 'slice'::text AS name, count(*) AS gone FROM slices
UNION ALL SELECT 'job'::text AS name, count(*) AS gone FROM jobs
UNION ALL SELECT 'part'::text AS name, count(*) AS gone FROM parts
UNION ALL SELECT 'fragment'::text AS name, count(*) AS gone FROM fragments
UNION ALL SELECT 'element'::text AS name, count(*) AS gone FROM elements
UNION ALL SELECT 'inherited'::text AS name, count(*) AS gone FROM inheriteds
UNION ALL SELECT 'kept_key'::text AS name, count(*) AS gone FROM kept_keys
UNION ALL SELECT 'wait'::text AS name, count(*) AS gone FROM waits
UNION ALL SELECT 'exchange_batch'::text AS name, count(*) AS gone FROM exchange_batchs
UNION ALL SELECT 'ended_run'::text AS name, count(*) AS gone FROM ended_runs
UNION ALL SELECT 'resolution'::text AS name, count(*) AS gone FROM resolutions
UNION ALL SELECT 'page'::text AS name, count(*) AS gone FROM pages
UNION ALL SELECT 'record_chunk'::text AS name, count(*) AS gone FROM record_chunks;

-- name: ErasuresEnd :one
-- Of these batches nothing is left but what has one row each. Tells how many record sets went.
WITH sets AS (
    DELETE FROM flow.record_set s WHERE s.id = ANY(@page_sets::uuid[]) RETURNING 1
), vars AS (
    DELETE FROM flow.batch_vars v WHERE v.batch_id = ANY(@ids::uuid[])
), estimates AS (
    DELETE FROM flow.batch_estimate e WHERE e.batch_id = ANY(@ids::uuid[])
), ended AS (
    DELETE FROM flow.erasure e WHERE e.batch_id = ANY(@ids::uuid[])
)
SELECT count(*) FROM sets;

-- name: DeletionBegin :exec
-- An organization that went to another cell and came back has the receipt of what was deleted here before.
INSERT INTO flow.deletion (org_id) VALUES (@org_id)
ON CONFLICT (org_id) DO UPDATE SET begun_at = excluded.begun_at, ended_at = NULL, awaited = NULL, rows = excluded.rows;

-- name: DeletionGet :one
SELECT * FROM flow.deletion WHERE org_id = @org_id;

-- name: DeletionLock :one
-- A deletion that is under way, and the time. Whoever else works on it waits.
SELECT d.begun_at, d.awaited, flow.clock()::timestamptz AS now FROM flow.deletion d
WHERE d.org_id = @org_id AND d.ended_at IS NULL FOR NO KEY UPDATE;

-- name: DeletionAwait :exec
UPDATE flow.deletion d SET awaited = @awaited::text[] WHERE d.org_id = @org_id;

-- name: DeletionNote :exec
-- Adds to the receipt.
UPDATE flow.deletion d SET rows = d.rows || (
    SELECT jsonb_object_agg(n.name, n.gone + coalesce((d.rows ->> n.name)::bigint, 0))
        FROM (SELECT unnest(@names::text[]) AS name, unnest(@counts::bigint[]) AS gone) n)
WHERE d.org_id = @org_id AND cardinality(@names::text[]) > 0;

-- name: OrgErase :one
SELECT coalesce(e.tables, '{}')::text[] AS names, coalesce(e.counts, '{}')::bigint[] AS counts
FROM flow.erase_organization(@org_id, sqlc.narg('only_tables')::text[], @max_rows) e;

-- name: OrgBatchesOpen :many
SELECT c.batch_id FROM flow.batch_count c WHERE c.org_id = @org_id AND c.status IN ('queued', 'running', 'paused')
    ORDER BY c.batch_id LIMIT @max_rows;

-- name: OrgBatchesErase :one
-- Deletes batches that are over and have no call under way, whoever is working on the others, and leaves their rows to
-- RowsErase. They are found by their organization, and looked at one by one: of their counts, those of batches that are
-- completed are in no index.
WITH old AS MATERIALIZED (
    SELECT c.batch_id AS id FROM flow.batch_count c
    WHERE c.batch_id = ANY(ARRAY(
        SELECT b.id FROM flow.batch b
        WHERE b.org_id = @org_id AND (
            SELECT n.started = 0 AND n.status NOT IN ('queued', 'running', 'paused') FROM flow.batch_count n
                WHERE n.batch_id = b.id)
        ORDER BY b.id LIMIT @max_rows))
        AND c.started = 0 AND c.status NOT IN ('queued', 'running', 'paused')
    FOR UPDATE
), counts AS (
    DELETE FROM flow.batch_count c USING old o WHERE c.batch_id = o.id
), gone AS (
    DELETE FROM flow.batch b USING old o WHERE b.id = o.id RETURNING b.id, b.org_id, b.page_set, b.retry_of
), noted AS (
    INSERT INTO flow.erasure (batch_id, org_id, page_set) SELECT g.id,
        g.org_id, CASE WHEN g.retry_of IS NULL THEN coalesce(g.page_set, g.id) END FROM gone g
    RETURNING 1
)
SELECT count(*) FROM noted;

-- name: OrgRecordSetsErase :execrows
-- Leaves record sets that no batch used to RowsErase.
INSERT INTO flow.erasure (batch_id, org_id, page_set)
SELECT s.id, s.org_id, s.id FROM flow.record_set s
WHERE s.org_id = @org_id AND NOT EXISTS (SELECT FROM flow.erasure e WHERE e.batch_id = s.id OR e.batch_id = s.batch_id)
LIMIT @max_rows;

-- name: OrgBudgetsErase :exec
-- What is counted of Domains that are of this organization alone: their names have its id or its mark
-- (dispatch.orgMark), or flow.domain says so.
WITH org AS (
    SELECT (@org_id::uuid)::text AS id,
        translate(encode(substr(sha256(uuid_send(@org_id::uuid)), 1, 9), 'base64'), '+/', '-_') AS mark
), own AS (
    SELECT b.domain FROM flow.budget b, org o
    WHERE starts_with(b.domain, 'credential:' || o.id || ':') OR starts_with(b.domain, 'host:' || o.mark || ':')
        OR b.domain = 'organization:' || o.mark
    UNION SELECT d.tenancy_id FROM flow.domain d WHERE d.org_id = @org_id
), ledgers AS (
    DELETE FROM flow.ledger l USING own o WHERE l.domain = o.domain
), cells AS (
    DELETE FROM flow.rolling r USING own o WHERE r.domain = o.domain
), limits AS (
    DELETE FROM flow.domain_limit l USING own o WHERE l.tenancy_id = o.domain
), backoffs AS (
    DELETE FROM flow.pause p USING own o WHERE p.org_id IS NULL AND p.domain = o.domain
)
DELETE FROM flow.budget b USING own o WHERE b.domain = o.domain;

-- name: DeletionEnd :exec
WITH ended AS (
    UPDATE flow.deletion d SET ended_at = flow.clock() WHERE d.org_id = @org_id
), kept AS (
    INSERT INTO flow.retention (org_id, name, days) VALUES (@org_id, 'audit_log', @audit_days) ON CONFLICT (org_id,
        name) DO UPDATE SET days = excluded.days
)
UPDATE flow.organization o SET status = 'deleted', name = 'deleted', external_id = NULL, request_limits = '{}'
    WHERE o.id = @org_id;

-- name: HousekeepOrganizations :one
-- Those that were deleted and whose audit log is gone. kept are those to which rows refer.
SELECT f.gone::bigint AS gone, coalesce(f.kept, '')::text AS kept FROM flow.forget_organizations(@max_rows) f;
