-- name: ScheduleAdd :exec
INSERT INTO flow.schedule (id, org_id, definition_id, description, cron_expression, timezone, enabled, input_data,
    metadata, catch_up_seconds, overlap_policy,
    decided_upto, created_by, created_at, updated_at)
VALUES (@id, @org_id, @definition_id, @description, @cron_expression, @timezone, @enabled, sqlc.narg('input_data'),
    @metadata, @catch_up_seconds, @overlap_policy,
    @now, @created_by, @now, @now);

-- name: ScheduleGet :one
-- A schedule, what became of the batch that it started last, and the time.
SELECT sqlc.embed(s), b.status AS last_status, flow.clock()::timestamptz AS now
FROM flow.schedule s LEFT JOIN flow.batch_count b ON b.batch_id = s.last_batch_id
WHERE s.org_id = @org_id AND s.id = @id;

-- name: ScheduleList :many
-- In insertion order, between two ids.
SELECT sqlc.embed(s), b.status AS last_status, flow.clock()::timestamptz AS now
FROM flow.schedule s LEFT JOIN flow.batch_count b ON b.batch_id = s.last_batch_id
WHERE s.org_id = @org_id AND s.id BETWEEN @least AND @most
    AND (sqlc.narg('definition_id')::uuid IS NULL OR s.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR s.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR s.created_at < sqlc.narg('created_before'))
ORDER BY s.id LIMIT @max_rows OFFSET @skip;

-- name: ScheduleListNewest :many
-- ScheduleList from the newest on.
SELECT sqlc.embed(s), b.status AS last_status, flow.clock()::timestamptz AS now
FROM flow.schedule s LEFT JOIN flow.batch_count b ON b.batch_id = s.last_batch_id
WHERE s.org_id = @org_id AND s.id BETWEEN @least AND @most
    AND (sqlc.narg('definition_id')::uuid IS NULL OR s.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR s.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR s.created_at < sqlc.narg('created_before'))
ORDER BY s.id DESC LIMIT @max_rows OFFSET @skip;

-- name: ScheduleCount :one
SELECT count(*) FROM flow.schedule s
WHERE s.org_id = @org_id AND s.id BETWEEN @least AND @most
    AND (sqlc.narg('definition_id')::uuid IS NULL OR s.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR s.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR s.created_at < sqlc.narg('created_before'));

-- name: ScheduleLock :one
-- Locks a schedule of an organization. What fires it waits.
SELECT * FROM flow.schedule WHERE org_id = @org_id AND id = @id FOR NO KEY UPDATE;

-- name: ScheduleLockDue :one
-- Locks a schedule whose slot may have come.
SELECT * FROM flow.schedule WHERE id = @id FOR NO KEY UPDATE;

-- name: ScheduleUpdate :exec
UPDATE flow.schedule SET definition_id = @definition_id, description = @description, cron_expression = @cron_expression,
    timezone = @timezone, enabled = @enabled,
    input_data = sqlc.narg('input_data'), metadata = @metadata, catch_up_seconds = @catch_up_seconds,
        overlap_policy = @overlap_policy,
    decided_upto = @decided_upto, updated_at = @now
WHERE org_id = @org_id AND id = @id;

-- name: ScheduleDelete :exec
DELETE FROM flow.schedule WHERE org_id = @org_id AND id = @id;

-- name: ScheduleDecided :exec
UPDATE flow.schedule SET decided_upto = @decided_upto WHERE id = @id;

-- name: ScheduleFired :exec
-- The last fire: with a batch where one was started.
UPDATE flow.schedule SET last_fired_at = @fired_at, last_batch_id = sqlc.narg('batch_id') WHERE id = @id;

-- name: ScheduleOverlaps :one
-- Whether a batch that the schedule started is not over.
SELECT EXISTS (
    SELECT FROM flow.batch_count b WHERE b.schedule_id = @schedule_id AND b.status IN ('queued', 'running', 'paused')
);

-- name: ScheduleNames :one
-- Whether a schedule names the definition.
SELECT EXISTS (SELECT FROM flow.schedule WHERE org_id = @org_id AND definition_id = @definition_id);

-- name: FireAdd :exec
-- Fires of one schedule that are decided together.
INSERT INTO flow.schedule_fire (id, org_id, schedule_id, slot_at, manual, status, reason, batch_id, created_at)
SELECT d.id, @org_id, @schedule_id, d.slot_at, @manual, d.status, nullif(d.reason, ''),
    nullif(d.batch_id, '00000000-0000-0000-0000-000000000000'), @now
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@slots::timestamptz[]) AS slot_at, unnest(@statuses::text[]) AS status,
        unnest(@reasons::text[]) AS reason, unnest(@batch_ids::uuid[]) AS batch_id) d;

-- name: FireList :many
-- In insertion order, between two ids.
SELECT * FROM flow.schedule_fire
WHERE schedule_id = @schedule_id AND org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY id LIMIT @max_rows OFFSET @skip;

-- name: FireListNewest :many
-- FireList from the newest on.
SELECT * FROM flow.schedule_fire
WHERE schedule_id = @schedule_id AND org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY id DESC LIMIT @max_rows OFFSET @skip;

-- name: FireCount :one
SELECT count(*) FROM flow.schedule_fire
WHERE schedule_id = @schedule_id AND org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'));

-- name: HousekeepFires :execrows
DELETE FROM flow.schedule_fire f USING (
    SELECT o.id FROM flow.schedule_fire o WHERE o.created_at < (SELECT flow.retention_now()) - interval '90 days'
    ORDER BY o.created_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
) old
WHERE f.id = old.id;
