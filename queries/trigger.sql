-- Starts: each has a batch, or was refused. A start has the id of its batch, or one of its own: both
-- sort by time. status is that of the batch, or empty.

-- name: TriggerList :many
-- In insertion order, between two ids. These come first and alone: their two orders can be merged, while whole rows
-- would all be sorted.
SELECT t.* FROM (
    SELECT u.id FROM (
    SELECT b.id FROM flow.batch b
    WHERE b.org_id = @org_id AND b.id BETWEEN @least AND @most
        AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
        AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
        AND (sqlc.narg('definition_id')::uuid IS NULL OR b.definition_id = sqlc.narg('definition_id'))
        AND (sqlc.narg('trigger_type')::text IS NULL OR b.trigger_type = sqlc.narg('trigger_type'))
    UNION ALL
    SELECT r.id FROM flow.refused_start r
    WHERE r.org_id = @org_id AND r.id BETWEEN @least AND @most
        AND (sqlc.narg('created_after')::timestamptz IS NULL OR r.created_at >= sqlc.narg('created_after'))
        AND (sqlc.narg('created_before')::timestamptz IS NULL OR r.created_at < sqlc.narg('created_before'))
        AND (sqlc.narg('definition_id')::uuid IS NULL OR r.definition_id = sqlc.narg('definition_id'))
        AND (sqlc.narg('trigger_type')::text IS NULL OR r.trigger_type = sqlc.narg('trigger_type'))
    ) u ORDER BY u.id LIMIT @max_rows OFFSET @skip_rows
) k CROSS JOIN LATERAL (
    SELECT b.id, b.definition_id, b.version, b.trigger_type, b.trigger_source, c.status::text AS status, b.record_count,
        b.created_by, b.created_at, ''::text AS reason
    FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.id = k.id
    UNION ALL
    SELECT r.id, r.definition_id, r.version, r.trigger_type, r.trigger_source, ''::text, 0::bigint, r.created_by,
        r.created_at, r.reason
    FROM flow.refused_start r WHERE r.id = k.id
) t ORDER BY t.id;

-- name: TriggerListNewest :many
-- TriggerList from the newest on.
SELECT t.* FROM (
    SELECT u.id FROM (
    SELECT b.id FROM flow.batch b
    WHERE b.org_id = @org_id AND b.id BETWEEN @least AND @most
        AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
        AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
        AND (sqlc.narg('definition_id')::uuid IS NULL OR b.definition_id = sqlc.narg('definition_id'))
        AND (sqlc.narg('trigger_type')::text IS NULL OR b.trigger_type = sqlc.narg('trigger_type'))
    UNION ALL
    SELECT r.id FROM flow.refused_start r
    WHERE r.org_id = @org_id AND r.id BETWEEN @least AND @most
        AND (sqlc.narg('created_after')::timestamptz IS NULL OR r.created_at >= sqlc.narg('created_after'))
        AND (sqlc.narg('created_before')::timestamptz IS NULL OR r.created_at < sqlc.narg('created_before'))
        AND (sqlc.narg('definition_id')::uuid IS NULL OR r.definition_id = sqlc.narg('definition_id'))
        AND (sqlc.narg('trigger_type')::text IS NULL OR r.trigger_type = sqlc.narg('trigger_type'))
    ) u ORDER BY u.id DESC LIMIT @max_rows OFFSET @skip_rows
) k CROSS JOIN LATERAL (
    SELECT b.id, b.definition_id, b.version, b.trigger_type, b.trigger_source, c.status::text AS status, b.record_count,
        b.created_by, b.created_at, ''::text AS reason
    FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.id = k.id
    UNION ALL
    SELECT r.id, r.definition_id, r.version, r.trigger_type, r.trigger_source, ''::text, 0::bigint, r.created_by,
        r.created_at, r.reason
    FROM flow.refused_start r WHERE r.id = k.id
) t ORDER BY t.id DESC;

-- name: TriggerRead :one
SELECT b.id, b.definition_id, b.version, b.trigger_type, b.trigger_source, c.status::text AS status, b.record_count,
    b.created_by, b.created_at, ''::text AS reason
FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.id = @id AND (b.org_id = @org_id) IS TRUE
UNION ALL
SELECT r.id, r.definition_id, r.version, r.trigger_type, r.trigger_source, ''::text, 0::bigint, r.created_by,
    r.created_at, r.reason
FROM flow.refused_start r WHERE r.id = @id AND (r.org_id = @org_id) IS TRUE;

-- name: RefusedStartTotal :one
SELECT count(*) FROM flow.refused_start r
WHERE r.org_id = @org_id AND r.id BETWEEN @least AND @most
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR r.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR r.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('definition_id')::uuid IS NULL OR r.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('trigger_type')::text IS NULL OR r.trigger_type = sqlc.narg('trigger_type'));

-- name: RefusedStartAdd :execrows
INSERT INTO flow.refused_start (id, org_id, definition_id, version, trigger_type, trigger_source, reason, created_by,
    created_at)
SELECT @id, d.org_id, d.id, d.version, @trigger_type, @trigger_source, @reason, @created_by, (SELECT flow.clock())
FROM flow.definition d WHERE d.org_id = @org_id AND d.id = @definition_id;

-- name: HousekeepRefusedStarts :execrows
DELETE FROM flow.refused_start s USING (
    SELECT o.id FROM flow.refused_start o WHERE o.created_at < (SELECT flow.retention_now()) - interval '90 days'
    ORDER BY o.created_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
) old
WHERE s.id = old.id;
