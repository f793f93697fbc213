-- Slices, and the jobs that were detached from them.

-- name: SliceInsert :exec
-- One slice for each page of the set. Where they enter calls, each task of the first step has one part of all of them:
-- what SlicesQueue makes, without reading the slices again, which took 2 of 20 ms of the start of a million records.
WITH slices AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY p.first) - 1 AS no, p.first, p.rows FROM flow.page p WHERE p.set_id = @page_set
), added AS (
    INSERT INTO flow.slice (batch_id, no, first, records, state, remaining, staged, queued)
    SELECT @batch_id, s.no, s.first, s.rows, @state, s.rows * @call_tasks::int,
        CASE WHEN @staged::boolean THEN s.rows ELSE 0 END, CASE WHEN @staged::boolean THEN 0 ELSE s.rows END
    FROM slices s
), whole AS MATERIALIZED (
    SELECT s.no AS last_no, s.rows AS to_off, s.first + s.rows AS records FROM slices s
    WHERE @state = 'calling' ORDER BY s.no DESC LIMIT 1
), part AS (
    INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off)
    SELECT l.batch_id, l.step_no, l.task_no, 0, w.last_no, 0, w.to_off
    FROM flow.lane_batch l CROSS JOIN whole w WHERE l.batch_id = @batch_id AND l.step_no = 0 ORDER BY l.task_no
)
UPDATE flow.lane_batch l SET ready_parts = 1, ready_records = w.records
FROM whole w WHERE l.batch_id = @batch_id AND l.step_no = 0;

-- name: SliceRelease :execrows
UPDATE flow.slice SET state = @state, queued = staged, staged = 0 WHERE batch_id = @batch_id AND state = 'staged';

-- name: SliceMove :many
-- Counts what happened to slices. One whose last step is over is done at once; others are moved on by SliceAdvance.
UPDATE flow.slice s SET
    state = CASE WHEN s.state = 'calling' AND s.remaining + d.remaining = 0 AND s.step_no = d.last_step THEN 'done'
        ELSE s.state END,
    remaining = s.remaining + d.remaining,
    detached = s.detached + d.detached,
    staged = s.staged + (@deltas::int[])[d.i * 12 + 1],
    queued = s.queued + (@deltas::int[])[d.i * 12 + 2],
    pending = s.pending + (@deltas::int[])[d.i * 12 + 3],
    started = s.started + (@deltas::int[])[d.i * 12 + 4],
    needs_reconcile = s.needs_reconcile + (@deltas::int[])[d.i * 12 + 5],
    completed = s.completed + (@deltas::int[])[d.i * 12 + 6],
    failed = s.failed + (@deltas::int[])[d.i * 12 + 7],
    cancelled = s.cancelled + (@deltas::int[])[d.i * 12 + 8],
    accepted = s.accepted + (@deltas::int[])[d.i * 12 + 9],
    rejected = s.rejected + (@deltas::int[])[d.i * 12 + 10],
    unprocessed = s.unprocessed + (@deltas::int[])[d.i * 12 + 11],
    unresolved = s.unresolved + (@deltas::int[])[d.i * 12 + 12]
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@nos::int[]) AS no, unnest(@remaining::int[]) AS remaining,
        unnest(@detached::int[]) AS detached, unnest(@last_steps::smallint[]) AS last_step,
            generate_series(0, cardinality(@nos::int[]) - 1) AS i) d
WHERE s.batch_id = d.batch_id AND s.no = d.no
RETURNING s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.detached, s.page_off, s.first_step,
    s.tasks_done;

-- name: SliceClaim :exec
-- Counts records that went from their queue into calls, and nothing else.
UPDATE flow.slice s SET queued = s.queued - d.records, started = s.started + d.records
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@nos::int[]) AS no, unnest(@records::int[]) AS records) d
WHERE s.batch_id = d.batch_id AND s.no = d.no;

-- name: SliceAdvance :exec
UPDATE flow.slice s SET step_no = d.step_no, state = d.state, remaining = d.remaining
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@nos::int[]) AS no,
    unnest(@step_nos::smallint[]) AS step_no,
        unnest(@states::text[]) AS state, unnest(@remaining::int[]) AS remaining) d
WHERE s.batch_id = d.batch_id AND s.no = d.no;

-- name: SlicesWriteOut :many
-- Writes the slices of batches that stand in their counters, unless they are done, and says how many of their records
-- are in calls: those of a call that has all of them were not counted yet.
WITH claimed AS MATERIALIZED (
    SELECT l.batch_id FROM flow.lane_batch l WHERE l.batch_id = ANY(@batch_ids::uuid[]) AND l.call_id IS NOT NULL
), old AS (
    UPDATE flow.batch_count c SET one_slice = false,
        started = CASE WHEN c.batch_id IN (SELECT m.batch_id FROM claimed m) THEN c.started + c.queued
            ELSE c.started END,
        queued = CASE WHEN c.batch_id IN (SELECT m.batch_id FROM claimed m) THEN 0 ELSE c.queued END
    WHERE c.batch_id = ANY(@batch_ids::uuid[]) AND c.one_slice AND c.completed_at IS NULL
    RETURNING c.*
)
INSERT INTO flow.slice (batch_id, no, first, records, state, remaining, staged, queued, pending, started,
    needs_reconcile, completed, failed,
    cancelled, accepted, rejected, unprocessed, unresolved)
SELECT o.batch_id, 0, 0, o.record_count, 'calling', o.record_count, o.staged, o.queued, o.pending, o.started,
    o.needs_reconcile, o.completed,
    o.failed, o.cancelled, o.accepted, o.rejected, o.unprocessed, o.unresolved
FROM old o
RETURNING batch_id, started::bigint AS started;

-- name: JobsAt :many
SELECT j.* FROM flow.job j
JOIN (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position) d
    ON j.batch_id = d.batch_id AND j.position = d.position;

-- name: JobInsert :copyfrom
INSERT INTO flow.job (batch_id, position, slice_no, detached_step, step_no, remaining, status, ready, end_status,
    attempts, error, started_at, updated_at)
VALUES (@batch_id, @position, @slice_no, @detached_step, @step_no, @remaining, @status, @ready, @end_status,
    @attempts, @error, @started_at, @updated_at);

-- name: JobUpdate :exec
UPDATE flow.job j SET step_no = d.step_no, remaining = d.remaining, status = d.status::flow.job_status, ready = d.ready,
    end_status = nullif(d.end_status, '')::flow.job_status, attempts = d.attempts, error = nullif(d.error, ''),
        started_at = coalesce(j.started_at, @now::timestamptz), updated_at = @now::timestamptz
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position,
    unnest(@step_nos::smallint[]) AS step_no,
        unnest(@remaining::smallint[]) AS remaining, unnest(@statuses::text[]) AS status,
            unnest(@readies::boolean[]) AS ready,
    unnest(@end_statuses::text[]) AS end_status, unnest(@attempts::int[]) AS attempts,
    unnest(@errors::text[]) AS error) d
WHERE j.batch_id = d.batch_id AND j.position = d.position;

-- name: SlicesReady :many
-- Slices with in-process work, for one worker. IS TRUE keeps the status out of the choice of an index, which leaves
-- most batches out.
SELECT s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.detached, s.page_off, s.first_step,
    s.tasks_done FROM flow.slice s
WHERE s.batch_id = @batch_id AND s.ready
    AND EXISTS (SELECT FROM flow.batch_count b WHERE b.batch_id = @batch_id
        AND (b.status IN ('queued', 'running')) IS TRUE AND b.stopped_at IS NULL)
ORDER BY s.no LIMIT @max_slices;

-- name: JobsReady :many
SELECT j.* FROM flow.job j WHERE j.batch_id = @batch_id AND j.ready
    AND EXISTS (SELECT FROM flow.batch_count b WHERE b.batch_id = @batch_id
        AND (b.status IN ('queued', 'running')) IS TRUE AND b.stopped_at IS NULL)
ORDER BY j.position LIMIT @max_jobs;

-- name: SliceRows :many
SELECT s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.detached, s.page_off, s.first_step,
    s.tasks_done
FROM (SELECT DISTINCT unnest(@nos::int[]) AS no) n
CROSS JOIN LATERAL (SELECT * FROM flow.all_slices x WHERE x.batch_id = @batch_id AND x.no = n.no OFFSET 0) s
    ORDER BY s.no;

-- name: SliceOf :one
-- The slice that holds a position.
SELECT s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.detached, s.page_off, s.first_step,
    s.tasks_done
FROM flow.all_slices s
WHERE s.batch_id = @batch_id AND s.no = (SELECT flow.slice_at(@batch_id, @position::bigint)) AND @position >= s.first
    AND @position < s.first + s.records;

-- name: JobPositionsDetached :many
-- Records that left their slice before a step, and so are not part of its tasks' ranges.
SELECT j.slice_no, j.position
FROM (SELECT DISTINCT unnest(@slice_nos::int[]) AS no) n
CROSS JOIN LATERAL (SELECT * FROM flow.job x WHERE x.batch_id = @batch_id AND x.slice_no = n.no
    AND x.detached_step < @step_no OFFSET 0) j
ORDER BY j.slice_no, j.position;
