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

-- name: BatchesOld :many
-- Locks first batches of records that ended long ago, as retries of them did, the oldest first. The counts are asked for one by one: a
-- join with them may begin with all batches that there are.
SELECT c.batch_id FROM flow.batch_count c WHERE c.batch_id = ANY(ARRAY(
    SELECT o.id FROM flow.organization g
    CROSS JOIN LATERAL (SELECT flow.kept_since(g.id, 'batches', @keep_seconds) AS since OFFSET 0) k
    CROSS JOIN LATERAL (
        SELECT b.id FROM flow.batch b
        WHERE b.org_id = g.id AND b.created_at < k.since AND b.retry_of IS NULL AND (SELECT flow.batch_is_old(n, k.since) FROM flow.batch_count n WHERE n.batch_id = b.id)
            AND NOT EXISTS (SELECT FROM flow.batch r WHERE r.retry_root = b.id AND (SELECT NOT flow.batch_is_old(m, k.since) FROM flow.batch_count m WHERE m.batch_id = r.id))
        ORDER BY b.created_at LIMIT @max_rows
    ) o
    LIMIT @max_rows
)) ORDER BY c.batch_id FOR UPDATE SKIP LOCKED;

-- name: BatchesErase :execrows
-- Deletes batches that are locked, with those that retry their records, unless one that is not old has come since; what else there is of
-- them is left to RowsErase.
WITH old AS (
    SELECT b.id, b.org_id, b.page_set FROM flow.batch b JOIN flow.batch_count n ON n.batch_id = b.id
    CROSS JOIN LATERAL (SELECT flow.kept_since(b.org_id, 'batches', @keep_seconds) AS since OFFSET 0) k
    WHERE b.id = ANY(@ids::uuid[]) AND flow.batch_is_old(n, k.since) AND NOT EXISTS (
        SELECT FROM flow.batch r JOIN flow.batch_count m ON m.batch_id = r.id
        WHERE r.retry_root = b.id AND NOT flow.batch_is_old(m, k.since))
), family AS (
    SELECT o.id, o.org_id, o.page_set FROM old o
    UNION ALL
    SELECT r.id, r.org_id, NULL FROM old o JOIN flow.batch r ON r.retry_root = o.id
), gone AS (
    DELETE FROM flow.batch b USING family f WHERE b.id = f.id
), counts AS (
    DELETE FROM flow.batch_count c USING family f WHERE c.batch_id = f.id
)
INSERT INTO flow.erasure (batch_id, org_id, page_set) SELECT f.id, f.org_id, f.page_set FROM family f;

-- name: ErasuresLock :many
SELECT * FROM flow.erasure ORDER BY batch_id LIMIT @max_rows FOR UPDATE SKIP LOCKED;

-- name: RowsErase :one
-- Deletes rows of batches that were deleted, up to max_rows of each table, and says how many of the table that had most.
WITH slices AS (
    DELETE FROM flow.slice WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.slice WHERE batch_id = ANY(@ids::uuid[]) LIMIT @max_rows)) RETURNING 1
), jobs AS (
    DELETE FROM flow.job WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.job WHERE batch_id = ANY(@ids) LIMIT @max_rows)) RETURNING 1
), parts AS (
    DELETE FROM flow.part WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.part WHERE batch_id = ANY(@ids) LIMIT @max_rows)) RETURNING 1
), fragments AS (
    DELETE FROM flow.fragment WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.fragment WHERE batch_id = ANY(@ids) LIMIT @max_rows)) RETURNING 1
), elements AS (
    DELETE FROM flow.element WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.element WHERE batch_id = ANY(@ids) LIMIT @max_rows)) RETURNING 1
), inherited AS (
    DELETE FROM flow.inherited WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.inherited WHERE batch_id = ANY(@ids) LIMIT @max_rows)) RETURNING 1
), keys AS (
    DELETE FROM flow.kept_key WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.kept_key WHERE batch_id = ANY(@ids) LIMIT @max_rows)) RETURNING 1
), runs AS (
    DELETE FROM flow.ended_run WHERE ctid = ANY(ARRAY(
        SELECT r.ctid FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@ids) AS id) n
        CROSS JOIN LATERAL (SELECT x.ctid FROM flow.ended_run x WHERE x.org_id = n.org_id AND x.batch_id = n.id OFFSET 0) r LIMIT @max_rows)) RETURNING 1
), waits AS (
    DELETE FROM flow.wait WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.wait WHERE batch_id = ANY(@ids) LIMIT @max_rows)) RETURNING 1
), pages AS (
    DELETE FROM flow.page WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.page WHERE set_id = ANY(@page_sets::uuid[]) LIMIT @max_rows)) RETURNING 1
), chunks AS (
    DELETE FROM flow.record_chunk WHERE ctid = ANY(ARRAY(SELECT ctid FROM flow.record_chunk WHERE record_set_id = ANY(@page_sets) LIMIT @max_rows)) RETURNING 1
)
SELECT greatest((SELECT count(*) FROM slices), (SELECT count(*) FROM jobs), (SELECT count(*) FROM parts), (SELECT count(*) FROM fragments),
    (SELECT count(*) FROM elements), (SELECT count(*) FROM inherited), (SELECT count(*) FROM keys), (SELECT count(*) FROM runs),
    (SELECT count(*) FROM waits), (SELECT count(*) FROM pages), (SELECT count(*) FROM chunks))::bigint AS most;

-- name: ErasuresEnd :exec
-- Of these batches nothing is left but what has one row each.
WITH sets AS (
    DELETE FROM flow.record_set s WHERE s.id = ANY(@page_sets::uuid[])
), vars AS (
    DELETE FROM flow.batch_vars v WHERE v.batch_id = ANY(@ids::uuid[])
), estimates AS (
    DELETE FROM flow.batch_estimate e WHERE e.batch_id = ANY(@ids::uuid[])
)
DELETE FROM flow.erasure e WHERE e.batch_id = ANY(@ids::uuid[]);
