-- name: Clock :one
SELECT flow.clock()::timestamptz;

-- name: BatchLock :many
-- Locks batches against every other change, in one order, and reads them. The clock is read once, when all locks were had:
-- beside FOR UPDATE it would be read before.
WITH locked AS MATERIALIZED (
    SELECT b.id, b.org_id, b.definition_id, b.version, c.status, b.page_set, b.metadata, b.created_at, b.record_count, c.stopped_at, c.change_no,
        (c.pacing IS NOT NULL)::boolean AS paced, b.event_depth, b.root_id, b.created_by, c.one_slice, ARRAY[c.staged, c.queued, c.pending, c.started,
            c.needs_reconcile, c.completed, c.failed, c.cancelled, c.accepted, c.rejected, c.unprocessed, c.unresolved]::bigint[] AS counts
    FROM flow.batch_count c JOIN flow.batch b ON b.id = c.batch_id
    WHERE c.batch_id = ANY(@ids::uuid[]) ORDER BY c.batch_id FOR UPDATE OF c
)
SELECT locked.*, (SELECT flow.clock() FROM (SELECT count(*) FROM locked) l)::timestamptz AS now FROM locked;

-- name: BatchHeads :many
SELECT id, org_id, definition_id, version, page_set, metadata, created_at, scheduled_at, root_id, record_count, retry_of FROM flow.batch WHERE id = ANY(@ids::uuid[]);

-- name: BatchesStart :exec
-- Batches that alike ones start, in one statement. Each has its records in one page and is all here, unless it is paged: then its records
-- have pages already, and its slices come later. A page whose set is the batch itself stands in its row. calls: the records are queued for the first step, as parts or in_queue, and then the slice is one_slice. One without records is over. The queues
-- of a paced batch have nothing to claim before the first tick.
WITH started AS MATERIALIZED (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@metadata::text[]) AS metadata,
        unnest(@page_sets::uuid[]) AS page_set, unnest(@rows::bigint[]) AS rows, unnest(@raw_bytes::int[]) AS raw_bytes, unnest(@bodies::bytea[]) AS body
), queue AS MATERIALIZED (
    SELECT unnest(@steps::smallint[]) AS step_no, unnest(@tasks::smallint[]) AS task_no, unnest(@domains::text[]) AS domain,
        unnest(@buckets::text[]) AS bucket, unnest(@lanes::text[])::flow.lane AS lane
), batch AS (
    INSERT INTO flow.batch (id, org_id, definition_id, version, trigger_type, trigger_source, metadata, record_count, page_set, lane,
        scheduled_at, created_by, created_at, event_depth, root_id, page_bytes, page)
    SELECT s.id, @org_id, @definition_id, @version, @trigger_type, @trigger_source, s.metadata, s.rows, s.page_set, @lane,
        @scheduled_at, @created_by, @now, @event_depth, sqlc.narg('root_id'), CASE WHEN s.page_set = s.id THEN s.raw_bytes END,
        CASE WHEN s.page_set = s.id THEN s.body END
    FROM started s
), count AS (
    INSERT INTO flow.batch_count (batch_id, org_id, schedule_id, status, started_at, completed_at, updated_at, priority, pacing, pace_next_at,
        record_count, staged, queued, one_slice)
    SELECT s.id, @org_id, sqlc.narg('schedule_id'), CASE WHEN s.rows = 0 THEN 'completed' ELSE 'queued' END::flow.batch_status,
        CASE WHEN s.rows = 0 THEN @now::timestamptz END, CASE WHEN s.rows = 0 THEN @now::timestamptz END, @now, @priority, @pacing, @pace_next_at,
        s.rows, CASE WHEN @staged::boolean THEN s.rows ELSE 0 END, CASE WHEN @staged::boolean THEN 0 ELSE s.rows END,
        @calls::boolean AND @in_queue::boolean AND s.rows > 0
    FROM started s
), page AS (
    INSERT INTO flow.page (set_id, first, rows, raw_bytes, body) SELECT s.page_set, 0, s.rows, s.raw_bytes, s.body FROM started s
    WHERE NOT @paged::boolean AND s.page_set <> s.id
), slice AS (
    INSERT INTO flow.slice (batch_id, no, first, records, state, remaining, queued)
    SELECT s.id, 0, 0, s.rows, @state, s.rows * @call_tasks::int, s.rows FROM started s
    WHERE NOT @paged::boolean AND NOT (@calls::boolean AND @in_queue::boolean)
), part AS (
    INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off)
    SELECT s.id, q.step_no, q.task_no, 0, 0, 0, s.rows FROM started s CROSS JOIN queue q WHERE @calls::boolean AND NOT @in_queue::boolean AND q.step_no = 0
)
INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, domain, bucket, lane, ready_parts, ready_records, high, definition_id, version,
    allowance, lapses_at, part_id)
SELECT s.id, q.step_no, q.task_no, @org_id, q.domain, q.bucket, q.lane, CASE WHEN @calls::boolean AND q.step_no = 0 THEN 1 ELSE 0 END,
    CASE WHEN @calls::boolean AND q.step_no = 0 THEN s.rows ELSE 0 END, @high, @definition_id, @version,
    CASE WHEN @paced::boolean THEN 0 END, CASE WHEN @paced::boolean THEN @now::timestamptz END,
    CASE WHEN @calls::boolean AND @in_queue::boolean AND q.step_no = 0 THEN nextval('flow.part_id_seq') END
FROM started s CROSS JOIN queue q WHERE s.rows > 0;

-- name: SliceInsert :exec
-- One slice for each page of the set.
INSERT INTO flow.slice (batch_id, no, first, records, state, remaining, staged, queued)
SELECT @batch_id, row_number() OVER (ORDER BY p.first) - 1, p.first, p.rows, @state, p.rows * @call_tasks::int,
    CASE WHEN @staged::boolean THEN p.rows ELSE 0 END, CASE WHEN @staged::boolean THEN 0 ELSE p.rows END
FROM flow.page p WHERE p.set_id = @page_set;

-- name: SlicesQueue :exec
-- Queues the records of a batch that begins, where their slices enter calls: for each task one part of all slices that follow each
-- other and lack the same tasks.
WITH run AS (
    SELECT s.step_no, s.tasks_done, min(s.no) AS slice_no, max(s.no) AS last_no, sum(s.records) AS records
    FROM (SELECT x.step_no, x.tasks_done, x.no, x.records, x.no - row_number() OVER (PARTITION BY x.step_no, x.tasks_done ORDER BY x.no) AS before
        FROM flow.slice x WHERE x.batch_id = @batch_id AND x.state = 'calling') s
    GROUP BY s.step_no, s.tasks_done, s.before
), queued AS MATERIALIZED (
    SELECT l.batch_id, l.step_no, l.task_no, r.slice_no, r.last_no, r.records,
        (SELECT e.records FROM flow.slice e WHERE e.batch_id = @batch_id AND e.no = r.last_no) AS to_off
    FROM run r JOIN flow.lane_batch l ON l.batch_id = @batch_id AND l.step_no = r.step_no AND r.tasks_done >> l.task_no & 1 = 0
), part AS (
    INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off)
    SELECT q.batch_id, q.step_no, q.task_no, q.slice_no, q.last_no, 0, q.to_off FROM queued q ORDER BY q.slice_no, q.task_no
)
UPDATE flow.lane_batch l SET ready_parts = q.parts, ready_records = q.records
FROM (SELECT step_no, task_no, count(*) AS parts, sum(records) AS records FROM queued GROUP BY step_no, task_no) q
WHERE l.batch_id = @batch_id AND l.step_no = q.step_no AND l.task_no = q.task_no;

-- name: SliceRelease :execrows
UPDATE flow.slice SET state = @state, queued = staged, staged = 0 WHERE batch_id = @batch_id AND state = 'staged';

-- name: BatchCountRelease :exec
UPDATE flow.batch_count SET queued = queued + staged, staged = 0 WHERE batch_id = @batch_id;

-- name: SliceMove :many
-- Counts what happened to slices. One whose last step is over is done at once; others are moved on by SliceAdvance.
UPDATE flow.slice s SET
    state = CASE WHEN s.state = 'calling' AND s.remaining + d.remaining = 0 AND s.step_no = d.last_step THEN 'done' ELSE s.state END,
    remaining = s.remaining + d.remaining,
    apart = s.apart + d.apart,
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
        unnest(@apart::int[]) AS apart, unnest(@last_steps::smallint[]) AS last_step, generate_series(0, cardinality(@nos::int[]) - 1) AS i) d
WHERE s.batch_id = d.batch_id AND s.no = d.no
RETURNING s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.apart, s.page_off, s.first_step, s.tasks_done;

-- name: SliceClaim :exec
-- Counts records that went from their queue into calls, and nothing else.
UPDATE flow.slice s SET queued = s.queued - d.records, started = s.started + d.records
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@nos::int[]) AS no, unnest(@records::int[]) AS records) d
WHERE s.batch_id = d.batch_id AND s.no = d.no;

-- name: SliceAdvance :exec
UPDATE flow.slice s SET step_no = d.step_no, state = d.state, remaining = d.remaining
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@nos::int[]) AS no, unnest(@step_nos::smallint[]) AS step_no,
        unnest(@states::text[]) AS state, unnest(@remaining::int[]) AS remaining) d
WHERE s.batch_id = d.batch_id AND s.no = d.no;

-- name: BatchCountMove :exec
-- Counts what happened to the jobs of batches. One that ended as something is over; what was over so soon that nobody marked it as running
-- began when its work did.
UPDATE flow.batch_count c SET
    status = CASE WHEN d.ended_as <> '' THEN d.ended_as::flow.batch_status ELSE c.status END,
    started_at = CASE WHEN d.ended_as <> '' THEN coalesce(c.started_at, d.began) ELSE c.started_at END,
    completed_at = CASE WHEN d.ended_as <> '' THEN @now::timestamptz ELSE c.completed_at END,
    updated_at = CASE WHEN d.ended_as <> '' THEN @now ELSE c.updated_at END,
    change_no = c.change_no + 1,
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
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@ended_as::text[]) AS ended_as, unnest(@began::timestamptz[]) AS began,
        generate_series(0, cardinality(@batch_ids::uuid[]) - 1) AS i) d
WHERE c.batch_id = d.batch_id;

-- name: BatchStart :exec
-- Marks as running what is queued, or was when it was paused; paused_from is null unless it is paused. A batch that somebody works on just now is left to them.
UPDATE flow.batch_count b SET status = CASE WHEN b.status = 'queued' THEN 'running' ELSE b.status END, paused_from = CASE WHEN b.status = 'paused' THEN 'running'::flow.batch_status END,
    started_at = @began::timestamptz, updated_at = @now::timestamptz
WHERE b.batch_id IN (
    SELECT q.batch_id FROM flow.batch_count q WHERE q.batch_id = ANY(@ids::uuid[]) AND coalesce(q.paused_from, q.status) = 'queued'
    FOR UPDATE SKIP LOCKED
);

-- name: LaneBatchMove :exec
UPDATE flow.lane_batch l SET ready_parts = l.ready_parts + d.parts, ready_records = l.ready_records + d.records, allowance = l.allowance - d.claimed,
    delayed_until = greatest(l.delayed_until, nullif(d.delayed_until, '0001-01-01 00:00:00+00')),
    call_id = coalesce(nullif(d.call_id, '00000000-0000-0000-0000-000000000000'), l.call_id)
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@step_nos::smallint[]) AS step_no, unnest(@task_nos::smallint[]) AS task_no,
        unnest(@parts::int[]) AS parts, unnest(@records::bigint[]) AS records, unnest(@claimed::bigint[]) AS claimed, unnest(@delayed_untils::timestamptz[]) AS delayed_until, unnest(@call_ids::uuid[]) AS call_id) d
WHERE l.batch_id = d.batch_id AND l.step_no = d.step_no AND l.task_no = d.task_no;

-- name: LaneBatchInsert :exec
-- The queues of a new batch. Those of a paced one have nothing to claim before the first tick.
INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, domain, bucket, lane, high, definition_id, version, allowance, lapses_at)
SELECT b.id, q.step_no, q.task_no, b.org_id, q.domain, q.bucket, q.lane::flow.lane, coalesce(c.priority = 'high', false), b.definition_id, b.version,
    CASE WHEN c.pacing IS NOT NULL THEN 0 END, CASE WHEN c.pacing IS NOT NULL THEN b.created_at END
FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id CROSS JOIN (SELECT unnest(@step_nos::smallint[]) AS step_no, unnest(@task_nos::smallint[]) AS task_no,
    unnest(@domains::text[]) AS domain, unnest(@buckets::text[]) AS bucket, unnest(@lanes::text[]) AS lane) q
WHERE b.id = @batch_id;

-- name: LaneAllowances :many
-- What the queues of paced batches may still claim, and until when.
SELECT batch_id, step_no, task_no, allowance::bigint AS allowance, lapses_at::timestamptz AS lapses_at
FROM flow.lane_batch WHERE batch_id = ANY(@batch_ids::uuid[]) AND allowance IS NOT NULL;

-- name: LaneBatchRelease :exec
-- A tick: what was not used lapses.
UPDATE flow.lane_batch SET allowance = @allowance::bigint, lapses_at = @lapses_at::timestamptz WHERE batch_id = @batch_id;

-- name: LaneBatchPace :exec
-- Puts queues under another policy until its first tick: what was released and not used stays, as far as both policies
-- allow it. was is how many records the old policy releases per tick, gives how many the new one does.
UPDATE flow.lane_batch l SET allowance = greatest(0, least(coalesce(l.allowance, 0), d.gives - (d.was - coalesce(l.allowance, 0)))),
    lapses_at = least(l.lapses_at, d.until)
FROM (SELECT @was::bigint AS was, @gives::bigint AS gives, @until::timestamptz AS until) d
WHERE l.batch_id = @batch_id;

-- name: LaneBatchUnpace :exec
UPDATE flow.lane_batch SET allowance = NULL, lapses_at = NULL WHERE batch_id = @batch_id;

-- name: LaneBatchRank :exec
UPDATE flow.lane_batch SET high = @high WHERE batch_id = @batch_id AND high <> @high;

-- name: BatchSteer :exec
UPDATE flow.batch_count SET priority = @priority, pacing = @pacing, pace_next_at = @pace_next_at, updated_at = @now::timestamptz WHERE batch_id = @batch_id;

-- name: BatchTick :exec
UPDATE flow.batch_count SET paced_at = @paced_at::timestamptz, pace_next_at = @pace_next_at::timestamptz WHERE batch_id = @batch_id;

-- name: BatchPacing :one
SELECT pacing, pace_next_at::timestamptz AS pace_next_at FROM flow.batch_count WHERE batch_id = @batch_id;

-- name: LaneBatchOfBatches :many
SELECT batch_id, step_no, task_no, domain, bucket, (open AND ready_parts > 0)::boolean AS ready FROM flow.lane_batch WHERE batch_id = ANY(@batch_ids::uuid[]);

-- name: LaneBatchClose :exec
UPDATE flow.lane_batch SET open = false WHERE batch_id = @batch_id;

-- name: LaneBatchesEnd :exec
-- Batches that came to their end have no queues any more.
DELETE FROM flow.lane_batch WHERE batch_id = ANY(@batch_ids::uuid[]);

-- name: PartInsert :exec
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, apart, attempt, element, ready_at, queued_at)
SELECT unnest(@batch_ids::uuid[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]), unnest(@slice_nos::int[]),
    unnest(@slice_nos::int[]), unnest(@froms::int[]), unnest(@tos::int[]), unnest(@aparts::boolean[]), unnest(@attempts::int[]), unnest(@elements::int[]),
    unnest(@ready_ats::timestamptz[]), greatest(@now::timestamptz, unnest(@ready_ats::timestamptz[]));

-- name: PartDelete :execrows
DELETE FROM flow.part p
USING (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS slice_no, unnest(@ids::bigint[]) AS id) k
WHERE p.batch_id = k.batch_id AND p.slice_no = k.slice_no AND p.id = k.id;

-- name: PartDeleteOfCalls :one
-- Deletes the parts of calls. Those that stand in queues stay, but are counted: of batches that a call has all records of.
WITH gone AS (
    DELETE FROM flow.part WHERE call_id = ANY(@call_ids::uuid[]) RETURNING 1
)
SELECT ((SELECT count(*) FROM gone) + (SELECT count(*) FROM flow.lane_batch WHERE batch_id = ANY(@batch_ids::uuid[]) AND call_id = ANY(@call_ids::uuid[])))::bigint AS parts;

-- name: LaneBatchTaken :exec
-- Queues of batches that go on, whose part was settled.
UPDATE flow.lane_batch SET part_id = NULL, call_id = NULL WHERE batch_id = ANY(@batch_ids::uuid[]) AND call_id = ANY(@call_ids::uuid[]);

-- name: SlicesWriteOut :exec
-- Writes the slices of batches that stand in their counters, unless they are done.
WITH old AS (
    UPDATE flow.batch_count SET one_slice = false WHERE batch_id = ANY(@batch_ids::uuid[]) AND one_slice AND completed_at IS NULL
    RETURNING *
)
INSERT INTO flow.slice (batch_id, no, first, records, state, remaining, staged, queued, pending, started, needs_reconcile, completed, failed,
    cancelled, accepted, rejected, unprocessed, unresolved)
SELECT o.batch_id, 0, 0, o.record_count, 'calling', o.record_count, o.staged, o.queued, o.pending, o.started, o.needs_reconcile, o.completed,
    o.failed, o.cancelled, o.accepted, o.rejected, o.unprocessed, o.unresolved
FROM old o;

-- name: PartsWriteOut :exec
-- Writes the parts of batches that stand in their queues.
WITH old AS MATERIALIZED (
    SELECT l.batch_id, l.step_no, l.task_no, l.part_id, l.call_id FROM flow.lane_batch l
    WHERE l.batch_id = ANY(@batch_ids::uuid[]) AND l.part_id IS NOT NULL FOR NO KEY UPDATE
), emptied AS (
    UPDATE flow.lane_batch l SET part_id = NULL, call_id = NULL FROM old o WHERE l.batch_id = o.batch_id AND l.step_no = o.step_no AND l.task_no = o.task_no
)
INSERT INTO flow.part (id, batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, call_id, call_seq) OVERRIDING SYSTEM VALUE
SELECT o.part_id, o.batch_id, o.step_no, o.task_no, 0, 0, 0, c.record_count, o.call_id, CASE WHEN o.call_id IS NOT NULL THEN 0 END
FROM old o JOIN flow.batch_count c ON c.batch_id = o.batch_id;

-- name: PartRequeue :execrows
UPDATE flow.part p SET call_id = NULL, call_seq = NULL, claim_no = NULL, left_out = NULL, ready_at = @ready_at,
    queued_at = greatest(@now::timestamptz, @ready_at), attempt = p.attempt + @attempts::int
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS slice_no, unnest(@ids::bigint[]) AS id) k
WHERE p.batch_id = k.batch_id AND p.slice_no = k.slice_no AND p.id = k.id AND p.call_id IS NOT NULL;

-- name: PartsOfSlices :many
-- The parts of slices, each cut to its slice.
SELECT p.id, p.batch_id, p.step_no, p.task_no, s.no AS slice_no, p.slice_no AS begins,
    (CASE WHEN s.no = p.slice_no THEN p.from_off ELSE 0 END)::int AS from_off,
    (CASE WHEN s.no = p.last_no THEN coalesce(p.to_off, s.records) ELSE s.records END)::int AS to_off,
    p.apart, p.attempt, p.element, p.left_out, p.call_id, coalesce(p.claim_no, 0)::bigint AS claim_no, c.state AS call_state, c.claimed_at,
    coalesce(c.failure, '')::text AS failure, coalesce(c.asked, '')::text AS asked
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS no) d
JOIN flow.all_slices s ON s.batch_id = d.batch_id AND s.no = d.no
CROSS JOIN LATERAL (
    SELECT b.id, b.batch_id, b.step_no, b.task_no, b.slice_no, b.from_off, b.last_no, b.to_off, b.apart, b.attempt, b.element, b.left_out, b.call_id, b.claim_no
    FROM flow.part b WHERE b.batch_id = s.batch_id AND b.slice_no = s.no
    UNION ALL
    SELECT a.id, a.batch_id, a.step_no, a.task_no, a.slice_no, a.from_off, a.last_no, a.to_off, a.apart, a.attempt, a.element, a.left_out, a.call_id, a.claim_no
    FROM flow.part a WHERE a.batch_id = s.batch_id AND a.last_no > a.slice_no AND a.slice_no < s.no AND a.last_no >= s.no
    UNION ALL
    SELECT q.part_id, q.batch_id, q.step_no, q.task_no, 0, 0, 0, NULL, false, 1, 0, NULL, q.call_id, NULL
    FROM flow.lane_batch q WHERE s.no = 0 AND q.batch_id = s.batch_id AND q.part_id IS NOT NULL
) p
LEFT JOIN flow.call c ON c.id = p.call_id
ORDER BY p.id, s.no;

-- name: JobsAt :many
SELECT j.* FROM flow.job j
JOIN (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position) d ON j.batch_id = d.batch_id AND j.position = d.position;

-- name: JobInsert :copyfrom
INSERT INTO flow.job (batch_id, position, slice_no, apart_step, step_no, remaining, status, ready, doomed, attempts, error, started_at, updated_at)
VALUES (@batch_id, @position, @slice_no, @apart_step, @step_no, @remaining, @status, @ready, @doomed, @attempts, @error, @started_at, @updated_at);

-- name: JobUpdate :exec
UPDATE flow.job j SET step_no = d.step_no, remaining = d.remaining, status = d.status::flow.job_status, ready = d.ready,
    doomed = nullif(d.doomed, '')::flow.job_status, attempts = d.attempts, error = nullif(d.error, ''), started_at = coalesce(j.started_at, @now::timestamptz), updated_at = @now::timestamptz
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position, unnest(@step_nos::smallint[]) AS step_no,
        unnest(@remaining::smallint[]) AS remaining, unnest(@statuses::text[]) AS status, unnest(@readies::boolean[]) AS ready,
        unnest(@doomed::text[]) AS doomed, unnest(@attempts::int[]) AS attempts, unnest(@errors::text[]) AS error) d
WHERE j.batch_id = d.batch_id AND j.position = d.position;

-- name: FragmentInsert :exec
INSERT INTO flow.fragment (batch_id, slice_no, step_no, task_no, skipped, body)
SELECT unnest(@batch_ids::uuid[]), unnest(@slice_nos::int[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]),
    unnest(@skipped::int[]), unnest(@bodies::bytea[]);

-- name: FragmentBody :one
SELECT body FROM flow.fragment WHERE batch_id = @batch_id AND slice_no = @slice_no AND step_no = @step_no AND task_no = @task_no AND seq = @seq;

-- name: FragmentsMany :many
-- Tasks of a step whose slices hold more fragments than they should keep, unless those are large.
SELECT f.batch_id, f.slice_no, f.step_no, f.task_no, sum(f.skipped)::int AS skipped,
    array_agg(f.seq ORDER BY f.seq)::bigint[] AS seqs, array_agg(f.body ORDER BY f.seq)::bytea[] AS bodies
FROM flow.fragment f
JOIN (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS slice_no, unnest(@step_nos::smallint[]) AS step_no) d
    ON f.batch_id = d.batch_id AND f.slice_no = d.slice_no AND f.step_no = d.step_no
GROUP BY f.batch_id, f.slice_no, f.step_no, f.task_no HAVING count(*) > @keep::int AND sum(octet_length(f.body)) <= @most::bigint;

-- name: FragmentDelete :exec
DELETE FROM flow.fragment WHERE batch_id = @batch_id AND slice_no = @slice_no AND step_no = @step_no AND task_no = @task_no AND seq = ANY(@seqs::bigint[]);

-- name: SlicesReady :many
-- Slices with in-process work, for one worker. IS TRUE keeps the status out of the choice of an index, which leaves most batches out.
SELECT s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.apart, s.page_off, s.first_step, s.tasks_done FROM flow.slice s
WHERE s.batch_id = @batch_id AND s.ready
    AND EXISTS (SELECT FROM flow.batch_count b WHERE b.batch_id = @batch_id AND (b.status IN ('queued', 'running')) IS TRUE AND b.stopped_at IS NULL)
ORDER BY s.no LIMIT @max_slices;

-- name: JobsReady :many
SELECT j.* FROM flow.job j WHERE j.batch_id = @batch_id AND j.ready
    AND EXISTS (SELECT FROM flow.batch_count b WHERE b.batch_id = @batch_id AND (b.status IN ('queued', 'running')) IS TRUE AND b.stopped_at IS NULL)
ORDER BY j.position LIMIT @max_jobs;

-- name: BatchGet :one
SELECT sqlc.embed(b), sqlc.embed(c) FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.id = @id AND b.org_id = @org_id;

-- name: BatchPause :exec
-- The trigger of the table remembers the status before.
UPDATE flow.batch_count SET status = 'paused', updated_at = @now::timestamptz WHERE batch_id = @batch_id;

-- name: BatchResume :one
UPDATE flow.batch_count SET status = paused_from, updated_at = @now::timestamptz WHERE batch_id = @batch_id AND (status = 'paused') IS TRUE RETURNING status;

-- name: LaneBatchPause :exec
UPDATE flow.lane_batch SET paused = true WHERE batch_id = @batch_id;

-- name: LaneBatchResume :exec
UPDATE flow.lane_batch SET paused = false WHERE batch_id = @batch_id;

-- name: BatchStop :exec
-- Nothing more of the batch is sent; it ends once nothing is open.
UPDATE flow.batch_count SET stopped_at = @now::timestamptz, cancel_reason = @reason::text, updated_at = @now::timestamptz WHERE batch_id = @batch_id;

-- name: BatchCancel :exec
UPDATE flow.batch_count SET unprocessed = unprocessed + staged + queued + pending, staged = 0, queued = 0, pending = 0, status = 'cancelled', cancel_reason = coalesce(sqlc.narg('reason')::text, cancel_reason), completed_at = @now::timestamptz, updated_at = @now::timestamptz
WHERE batch_id = @batch_id;

-- name: BudgetEnsure :exec
-- Whoever sets the limits of its credential, or of its account, has this wait, or finds the budget.
INSERT INTO flow.budget (domain, bucket, service_id, metered, time_zone, max_in_flight, limits)
VALUES (@domain, @bucket, @service_id, @metered, @time_zone, @max_in_flight,
    coalesce((SELECT c.limits FROM flow.credential c WHERE c.id = sqlc.narg('credential_id')::uuid FOR SHARE),
        (SELECT t.limits FROM flow.tenant t WHERE t.org_id = sqlc.narg('org_id')::uuid AND t.tenancy_id = @domain FOR SHARE)))
ON CONFLICT (domain, bucket) DO NOTHING;

-- name: PartsQueued :many
-- Parts that began in a slice when they were chosen, and begin in another now, at the most, because calls have taken what was before.
-- The condition is not one that part_ready has, so that each part is looked up by its key, and that index is not read whole.
WITH k AS MATERIALIZED (
    SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@begins::int[]) AS begins, unnest(@slice_nos::int[]) AS slice_no,
        unnest(@ids::bigint[]) AS id
)
SELECT p.id, p.slice_no, p.last_no, p.from_off, p.to_off, false AS in_queue
FROM k JOIN flow.part p ON p.batch_id = k.batch_id AND p.slice_no BETWEEN k.begins AND k.slice_no AND p.id = k.id
WHERE coalesce(p.call_id, '00000000-0000-0000-0000-000000000000') = '00000000-0000-0000-0000-000000000000'
UNION ALL
SELECT q.part_id::bigint, 0, 0, 0, c.record_count, true
FROM k JOIN flow.lane_batch q ON q.batch_id = k.batch_id AND q.part_id = k.id AND q.call_id IS NULL
    JOIN flow.batch_count c ON c.batch_id = q.batch_id;

-- name: PartClaim :exec
UPDATE flow.part p SET call_id = d.call_id, call_seq = d.seq, claim_no = nullif(d.claim_no, 0), left_out = nullif(d.left_out, '')::int[],
    element = d.element, elements = d.elements
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@begins::int[]) AS slice_no, unnest(@ids::bigint[]) AS id,
        unnest(@call_ids::uuid[]) AS call_id, unnest(@seqs::int[]) AS seq, unnest(@claim_nos::bigint[]) AS claim_no,
        unnest(@left_out::text[]) AS left_out, unnest(@element::int[]) AS element, unnest(@elements::int[]) AS elements) d
WHERE p.batch_id = d.batch_id AND p.slice_no = d.slice_no AND p.id = d.id;

-- name: PartShrink :exec
UPDATE flow.part p SET slice_no = d.slice_no, from_off = d.from_off
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@begins::int[]) AS begins, unnest(@ids::bigint[]) AS id,
        unnest(@slice_nos::int[]) AS slice_no, unnest(@froms::int[]) AS from_off) d
WHERE p.batch_id = d.batch_id AND p.slice_no = d.begins AND p.id = d.id;

-- name: PartInsertClaimed :exec
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, apart, attempt, element, elements, call_id, call_seq, claim_no, left_out,
    queued_at)
SELECT unnest(@batch_ids::uuid[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]), unnest(@slice_nos::int[]),
    unnest(@last_nos::int[]), unnest(@froms::int[]), unnest(@tos::int[]), unnest(@aparts::boolean[]), unnest(@attempts::int[]), unnest(@element::int[]),
    unnest(@elements::int[]), unnest(@call_ids::uuid[]),
    unnest(@seqs::int[]), nullif(unnest(@claim_nos::bigint[]), 0), nullif(unnest(@left_out::text[]), '')::int[],
    nullif(unnest(@queued_ats::timestamptz[]), '0001-01-01 00:00:00+00');

-- name: PartsOfCall :many
-- The parts of calls, slice by slice, in the order in which their records were sent.
SELECT p.id, p.batch_id, p.step_no, p.task_no, s.no AS slice_no, p.slice_no AS begins,
    (CASE WHEN s.no = p.slice_no THEN p.from_off ELSE 0 END)::int AS from_off,
    (CASE WHEN s.no = p.last_no THEN coalesce(p.to_off, s.records) ELSE s.records END)::int AS to_off,
    p.apart, p.attempt, p.element, p.elements, p.left_out, p.call_id, coalesce(p.claim_no, 0)::bigint AS claim_no, s.first, s.records AS size,
    coalesce(p.queued_at, '0001-01-01 00:00:00+00')::timestamptz AS queued_at
FROM (
    SELECT o.id, o.batch_id, o.step_no, o.task_no, o.slice_no, o.from_off, o.last_no, o.to_off, o.apart, o.attempt, o.element, o.elements, o.left_out,
        o.call_id, o.call_seq, o.claim_no, o.queued_at
    FROM flow.part o WHERE o.call_id = ANY(@call_ids::uuid[])
    UNION ALL
    SELECT q.part_id, q.batch_id, q.step_no, q.task_no, 0, 0, 0, NULL, false, 1, 0, 0, NULL, q.call_id, 0, NULL, NULL
    FROM flow.call c JOIN flow.lane_batch q ON q.batch_id = c.batch_id AND q.call_id = c.id WHERE c.id = ANY(@call_ids::uuid[])
) p
JOIN flow.all_slices s ON s.batch_id = p.batch_id AND s.no BETWEEN p.slice_no AND p.last_no
ORDER BY p.call_id, p.call_seq, p.slice_no, p.from_off, s.no;

-- name: SliceRows :many
SELECT s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.apart, s.page_off, s.first_step, s.tasks_done
FROM (SELECT DISTINCT unnest(@nos::int[]) AS no) n
CROSS JOIN LATERAL (SELECT * FROM flow.all_slices x WHERE x.batch_id = @batch_id AND x.no = n.no OFFSET 0) s ORDER BY s.no;

-- name: SliceOf :one
-- The slice that holds a position.
SELECT s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.apart, s.page_off, s.first_step, s.tasks_done
FROM flow.all_slices s
WHERE s.batch_id = @batch_id AND s.no = (SELECT flow.slice_at(@batch_id, @position::bigint)) AND @position >= s.first AND @position < s.first + s.records;

-- name: JobPositionsApart :many
-- Records that left their slice before a step, and so are not part of its tasks' ranges.
SELECT j.slice_no, j.position
FROM (SELECT DISTINCT unnest(@slice_nos::int[]) AS no) n
CROSS JOIN LATERAL (SELECT * FROM flow.job x WHERE x.batch_id = @batch_id AND x.slice_no = n.no AND x.apart_step < @step_no OFFSET 0) j
ORDER BY j.slice_no, j.position;

-- name: PartCut :many
-- Puts one record of a part into a part of its own, in the same call. What comes before the record ends with the slice before where the
-- record is the first of its slice, what comes behind it begins with the next one where it is the last. All pieces are new rows: who
-- read the old one must see that it is gone. Only a part of one slice has records left out.
WITH old AS (
    DELETE FROM flow.part p WHERE p.batch_id = @batch_id AND p.slice_no = @begins AND p.id = @id
    RETURNING batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, apart, attempt, element, elements, call_id, call_seq, claim_no, left_out,
        queued_at
),
piece AS (
    SELECT (ARRAY[old.slice_no, s.no, coalesce(a.no, s.no)])[i]::int AS slice_no, (ARRAY[old.from_off, d.off, CASE WHEN a.no IS NULL THEN d.off + 1 ELSE 0 END])[i]::int AS from_off,
        (ARRAY[coalesce(b.no, s.no), s.no, old.last_no])[i]::int AS last_no, (ARRAY[coalesce(b.records, d.off), d.off + 1, old.to_off])[i]::int AS to_off
    FROM generate_series(1, 3) i CROSS JOIN (SELECT @slice_no::int AS no, @off::int AS off) d CROSS JOIN old
    CROSS JOIN LATERAL (SELECT w.* FROM flow.slice w WHERE w.batch_id = old.batch_id AND w.no = d.no OFFSET 0) s
    LEFT JOIN flow.slice b ON b.batch_id = s.batch_id AND b.no = s.no - 1 AND b.no >= old.slice_no AND d.off = 0
    LEFT JOIN flow.slice a ON a.batch_id = s.batch_id AND a.no = s.no + 1 AND a.no <= old.last_no AND d.off = s.records - 1
)
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, apart, attempt, element, elements, call_id, call_seq, claim_no, left_out,
    queued_at)
SELECT old.batch_id, old.step_no, old.task_no, n.slice_no, n.last_no, n.from_off, n.to_off, old.apart, old.attempt, old.element, old.elements,
    old.call_id, old.call_seq, old.claim_no, nullif(ARRAY(SELECT o FROM unnest(old.left_out) o WHERE o >= n.from_off AND o < n.to_off), '{}'), old.queued_at
FROM old CROSS JOIN piece n
WHERE n.slice_no < n.last_no OR n.slice_no = n.last_no
    AND n.to_off - n.from_off > (SELECT count(*) FROM unnest(old.left_out) o WHERE o >= n.from_off AND o < n.to_off)
RETURNING id, slice_no, from_off, elements, call_id;

-- name: EndedRunsInsert :exec
-- Ends the runs of jobs that go on in their next ones.
INSERT INTO flow.ended_run (org_id, batch_id, position, run, step_no, note, ended_at)
SELECT @org_id, @batch_id, p.position, r.last + 1, @step_no::smallint, sqlc.narg('note')::text, @ended_at::timestamptz
FROM unnest(@positions::bigint[]) AS p (position) CROSS JOIN LATERAL (
    SELECT coalesce(max(r.run), 0) AS last FROM flow.ended_run r
    WHERE r.org_id = @org_id AND r.batch_id = @batch_id AND r.position = p.position
) r;

-- name: ElementAdd :exec
INSERT INTO flow.element (batch_id, position, step_no, task_no, element, output)
SELECT unnest(@batch_ids::uuid[]), unnest(@positions::bigint[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]),
    unnest(@elements::int[]), unnest(@outputs::text[]);

-- name: ElementBytes :many
-- How many bytes the outputs of the elements of records have.
SELECT e.batch_id, e.position, e.step_no, e.task_no, sum(octet_length(e.output))::bigint AS bytes
FROM flow.element e
JOIN (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position, unnest(@step_nos::smallint[]) AS step_no,
        unnest(@task_nos::smallint[]) AS task_no) d
    ON e.batch_id = d.batch_id AND e.position = d.position AND e.step_no = d.step_no AND e.task_no = d.task_no
GROUP BY e.batch_id, e.position, e.step_no, e.task_no;

-- name: ElementsTake :many
-- Takes the outputs of the elements of records out.
DELETE FROM flow.element e
USING (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position, unnest(@step_nos::smallint[]) AS step_no,
        unnest(@task_nos::smallint[]) AS task_no) d
WHERE e.batch_id = d.batch_id AND e.position = d.position AND e.step_no = d.step_no AND e.task_no = d.task_no
RETURNING e.batch_id, e.position, e.step_no, e.task_no, e.element, e.output;
