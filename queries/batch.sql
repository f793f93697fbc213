-- Batches, their counters, and what happens to them as a whole.

-- name: Clock :one
SELECT flow.clock()::timestamptz;

-- name: BatchLock :many
-- Locks batches against every other change, in one order, and reads them. The clock is read once, when all locks were
-- had: beside FOR UPDATE it would be read before.
WITH locked AS MATERIALIZED (
    SELECT b.id, b.org_id, b.definition_id, b.version, c.status,
        coalesce(b.page_set, b.id)::uuid AS page_set, flow.batch_metadata(b)::text AS metadata, b.created_at,
        b.record_count, c.stopped_at, c.change_no,
        (c.pacing IS NOT NULL)::boolean AS paced, b.event_depth, b.root_id, b.created_by, c.one_slice,
            ARRAY[c.staged, c.queued, c.pending, c.started,
            c.needs_reconcile, c.completed, c.failed, c.cancelled, c.accepted, c.rejected, c.unprocessed,
                c.unresolved]::bigint[] AS counts
    FROM flow.batch_count c JOIN flow.batch b ON b.id = c.batch_id
    WHERE c.batch_id = ANY(@ids::uuid[]) ORDER BY c.batch_id FOR UPDATE OF c
)
SELECT locked.*, (SELECT flow.clock() FROM (SELECT count(*) FROM locked) l)::timestamptz AS now FROM locked;

-- name: BatchHeads :many
SELECT id, org_id, definition_id, version, coalesce(page_set, id)::uuid AS page_set,
    flow.batch_metadata(b)::text AS metadata, created_at, scheduled_at, root_id, record_count, retry_of, trace
    FROM flow.batch b WHERE id = ANY(@ids::uuid[]);

-- name: BatchesStart :exec
-- Batches that alike ones start, in one statement. Each has its records in one page and is all here, unless it is
-- paged: then its records have pages already, and its slices come later. A page whose set is the batch itself stands in
-- its row. Metadata '' is what flow.batch_metadata makes. calls: the records are queued for the first step, as parts or
-- in_queue, and then the slice is one_slice; with a call id, which is zero for none, they are in that call, which this
-- transaction writes down. One without records is over. The queues of a paced batch have nothing to claim before the
-- first tick.
WITH started AS MATERIALIZED (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@metadata::text[]) AS metadata,
        unnest(@page_sets::uuid[]) AS page_set, unnest(@rows::bigint[]) AS rows, unnest(@raw_bytes::int[]) AS raw_bytes,
            unnest(@bodies::bytea[]) AS body,
        nullif(unnest(@traces::bytea[]), '') AS trace,
        nullif(unnest(@call_ids::uuid[]), '00000000-0000-0000-0000-000000000000') AS call_id
), queue AS MATERIALIZED (
    SELECT unnest(@steps::smallint[]) AS step_no, unnest(@tasks::smallint[]) AS task_no,
        unnest(@domains::text[]) AS domain,
        unnest(@buckets::text[]) AS bucket, unnest(@lanes::text[])::flow.lane AS lane
), batch AS (
    INSERT INTO flow.batch (id, org_id, definition_id, version, trigger_type, trigger_source, metadata, record_count,
        page_set, lane,
        scheduled_at, created_by, created_at, event_depth, root_id, trace, page_bytes, page)
    SELECT s.id, @org_id, @definition_id, @version, @trigger_type, @trigger_source, nullif(s.metadata, ''), s.rows,
        nullif(s.page_set, s.id), @lane, @scheduled_at, @created_by, @now, @event_depth, sqlc.narg('root_id'),
            s.trace, CASE WHEN s.page_set = s.id THEN s.raw_bytes END,
        CASE WHEN s.page_set = s.id THEN s.body END
    FROM started s
), count AS (
    INSERT INTO flow.batch_count (batch_id, org_id, schedule_id, status, started_at, completed_at, updated_at, priority,
        pacing, pace_next_at,
        record_count, staged, queued, one_slice)
    SELECT s.id, @org_id, sqlc.narg('schedule_id'), CASE WHEN s.rows = 0 THEN 'completed'
        ELSE 'queued' END::flow.batch_status,
        CASE WHEN s.rows = 0 THEN @now::timestamptz END, CASE WHEN s.rows = 0 THEN @now::timestamptz END, @now,
            @priority, @pacing, @pace_next_at,
        s.rows, CASE WHEN @staged::boolean THEN s.rows ELSE 0 END, CASE WHEN @staged::boolean THEN 0 ELSE s.rows END,
        @calls::boolean AND @in_queue::boolean AND s.rows > 0
    FROM started s
), page AS (
    INSERT INTO flow.page (set_id, first, rows, raw_bytes, body) SELECT s.page_set, 0, s.rows, s.raw_bytes, s.body
        FROM started s
    WHERE NOT @paged::boolean AND s.page_set <> s.id
), slice AS (
    INSERT INTO flow.slice (batch_id, no, first, records, state, remaining, queued)
    SELECT s.id, 0, 0, s.rows, @state, s.rows * @call_tasks::int, s.rows FROM started s
    WHERE NOT @paged::boolean AND NOT (@calls::boolean AND @in_queue::boolean)
), part AS (
    INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off)
    SELECT s.id, q.step_no, q.task_no, 0, 0, 0, s.rows FROM started s CROSS JOIN queue q WHERE @calls::boolean
        AND NOT @in_queue::boolean AND q.step_no = 0
)
INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, domain, bucket, lane, ready_parts, ready_records, high,
    definition_id, version,
    allowance, lapses_at, part_id, call_id)
SELECT s.id, q.step_no, q.task_no, @org_id, q.domain, q.bucket, q.lane,
    CASE WHEN @calls::boolean AND q.step_no = 0 AND s.call_id IS NULL THEN 1 ELSE 0 END,
    CASE WHEN @calls::boolean AND q.step_no = 0 AND s.call_id IS NULL THEN s.rows ELSE 0 END, @high, @definition_id,
    @version,
    CASE WHEN @paced::boolean THEN 0 END, CASE WHEN @paced::boolean THEN @now::timestamptz END,
    CASE WHEN @calls::boolean AND @in_queue::boolean AND q.step_no = 0 THEN nextval('flow.part_id_seq') END,
    CASE WHEN q.step_no = 0 THEN s.call_id END
FROM started s CROSS JOIN queue q WHERE s.rows > 0;

-- name: BatchCountRelease :exec
UPDATE flow.batch_count SET queued = queued + staged, staged = 0 WHERE batch_id = @batch_id;

-- name: BatchCountMove :exec
-- Counts what happened to the jobs of batches. One that ended as something is over; what was over so soon that nobody
-- marked it as running began when its work did.
UPDATE flow.batch_count c SET
    status = CASE WHEN d.ended_as <> '' THEN d.ended_as::flow.batch_status ELSE c.status END,
    started_at = CASE WHEN d.ended_as <> '' THEN coalesce(c.started_at, d.began) ELSE c.started_at END,
    completed_at = CASE WHEN d.ended_as <> '' THEN @now::timestamptz ELSE c.completed_at END,
    updated_at = CASE WHEN d.ended_as <> '' THEN @now ELSE c.updated_at END,
    change_no = c.change_no + 1, fragment = coalesce(nullif(d.fragment, ''), c.fragment),
    staged = c.staged + (@deltas::bigint[])[d.i * 12 + 1],
    queued = c.queued + (@deltas::bigint[])[d.i * 12 + 2],
    pending = c.pending + (@deltas::bigint[])[d.i * 12 + 3],
    started = c.started + (@deltas::bigint[])[d.i * 12 + 4],
    needs_reconcile = c.needs_reconcile + (@deltas::bigint[])[d.i * 12 + 5],
    completed = c.completed + (@deltas::bigint[])[d.i * 12 + 6],
    failed = c.failed + (@deltas::bigint[])[d.i * 12 + 7],
    cancelled = c.cancelled + (@deltas::bigint[])[d.i * 12 + 8],
    accepted = c.accepted + (@deltas::bigint[])[d.i * 12 + 9],
    rejected = c.rejected + (@deltas::bigint[])[d.i * 12 + 10],
    unprocessed = c.unprocessed + (@deltas::bigint[])[d.i * 12 + 11],
    unresolved = c.unresolved + (@deltas::bigint[])[d.i * 12 + 12]
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@ended_as::text[]) AS ended_as,
    unnest(@began::timestamptz[]) AS began, unnest(@fragments::bytea[]) AS fragment,
        generate_series(0, cardinality(@batch_ids::uuid[]) - 1) AS i) d
WHERE c.batch_id = d.batch_id;

-- name: BatchStart :exec
-- Marks as running what is queued, or was when it was paused, and counts the records of a call that has all of them;
-- paused_from is null unless it is paused. A batch that somebody works on just now is left to them.
WITH claimed AS MATERIALIZED (
    SELECT l.batch_id FROM flow.lane_batch l WHERE l.batch_id = ANY(@ids::uuid[]) AND l.call_id IS NOT NULL
)
UPDATE flow.batch_count b SET status = CASE WHEN b.status = 'queued' THEN 'running' ELSE b.status END,
    started = CASE WHEN b.one_slice AND b.batch_id IN (SELECT m.batch_id FROM claimed m) THEN b.started + b.queued
        ELSE b.started END,
    queued = CASE WHEN b.one_slice AND b.batch_id IN (SELECT m.batch_id FROM claimed m) THEN 0 ELSE b.queued END,
    paused_from = CASE WHEN b.status = 'paused' THEN 'running'::flow.batch_status END,
    started_at = @began::timestamptz, updated_at = @now::timestamptz
WHERE b.batch_id IN (
    SELECT q.batch_id FROM flow.batch_count q WHERE q.batch_id = ANY(@ids::uuid[]) AND coalesce(q.paused_from,
        q.status) = 'queued'
    FOR UPDATE SKIP LOCKED
);

-- name: BatchSteer :exec
UPDATE flow.batch_count SET priority = @priority, pacing = @pacing, pace_next_at = @pace_next_at,
    updated_at = @now::timestamptz WHERE batch_id = @batch_id;

-- name: BatchTick :exec
UPDATE flow.batch_count SET paced_at = @paced_at::timestamptz, pace_next_at = @pace_next_at::timestamptz
    WHERE batch_id = @batch_id;

-- name: BatchPacing :one
SELECT pacing, pace_next_at::timestamptz AS pace_next_at FROM flow.batch_count WHERE batch_id = @batch_id;

-- name: BatchGet :one
SELECT sqlc.embed(b), sqlc.embed(c) FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.id = @id
    AND b.org_id = @org_id;

-- name: BatchPause :exec
-- The trigger of the table remembers the status before.
UPDATE flow.batch_count SET status = 'paused', updated_at = @now::timestamptz WHERE batch_id = @batch_id;

-- name: BatchResume :one
UPDATE flow.batch_count SET status = paused_from, updated_at = @now::timestamptz WHERE batch_id = @batch_id
    AND (status = 'paused') IS TRUE RETURNING status;

-- name: BatchStop :exec
-- Nothing more of the batch is sent; it ends once nothing is open.
UPDATE flow.batch_count SET stopped_at = @now::timestamptz, cancel_reason = @reason::text,
    updated_at = @now::timestamptz WHERE batch_id = @batch_id;

-- name: BatchCancel :exec
UPDATE flow.batch_count SET unprocessed = unprocessed + staged + queued + pending, staged = 0, queued = 0, pending = 0,
    status = 'cancelled', cancel_reason = coalesce(sqlc.narg('reason')::text, cancel_reason),
    completed_at = @now::timestamptz, updated_at = @now::timestamptz
WHERE batch_id = @batch_id;
