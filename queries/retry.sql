-- name: RetryLineage :many
-- The batches that retry records of one another, from the first on.
SELECT id, retry_no FROM flow.batch WHERE org_id = @org_id AND (id = @root::uuid OR retry_root = @root::uuid)
    ORDER BY retry_no;

-- name: RetryBatchInsert :exec
-- A batch over records of another one.
INSERT INTO flow.batch (id, org_id, definition_id, version, trigger_type, trigger_source, metadata, record_count,
    page_set, lane, created_by,
    created_at, retry_of, retry_root, retry_no, event_depth, root_id, trace)
SELECT @id, b.org_id, b.definition_id, b.version, 'retry', b.id::text, flow.batch_metadata(b), @record_count,
    coalesce(b.page_set, b.id), b.lane,
    @created_by, @now,
    b.id, @root::uuid, @retry_no, b.event_depth, b.root_id, nullif(@trace::bytea, '')
FROM flow.batch b WHERE b.id = @retry_of AND b.org_id = @org_id;

-- name: RetryCountInsert :exec
INSERT INTO flow.batch_count (batch_id, org_id, record_count, queued, priority, pacing, paced_at, pace_next_at,
    updated_at)
SELECT @batch_id, c.org_id, @record_count::bigint, @record_count::bigint, c.priority, c.pacing, c.paced_at,
    @pace_next_at, @now
FROM flow.batch_count c WHERE c.batch_id = @retry_of;

-- name: RetryVarsCopy :exec
INSERT INTO flow.batch_vars (batch_id, vars) SELECT @batch_id, v.vars FROM flow.batch_vars v
    WHERE v.batch_id = @retry_of;

-- name: RetrySliceInsert :copyfrom
INSERT INTO flow.slice (batch_id, no, first, records, state, step_no, remaining, queued, page_off, first_step,
    tasks_done)
VALUES (@batch_id, @no, @first, @records, @state, @step_no, @remaining, @queued, @page_off, @first_step, @tasks_done);

-- name: InheritedInsert :copyfrom
INSERT INTO flow.inherited (batch_id, slice_no, depth, from_batch, from_slice, off, step_no, tasks_done)
VALUES (@batch_id, @slice_no, @depth, @from_batch, @from_slice, @off, @step_no, @tasks_done);

-- name: InheritedDeepen :exec
-- What the slices that a batch inherits from had inherited themselves.
INSERT INTO flow.inherited (batch_id, slice_no, depth, from_batch, from_slice, off, step_no, tasks_done)
SELECT n.batch_id, n.slice_no, i.depth + 1, i.from_batch, i.from_slice, i.off + n.off, i.step_no, i.tasks_done
FROM flow.inherited n JOIN flow.inherited i ON i.batch_id = n.from_batch AND i.slice_no = n.from_slice
WHERE n.batch_id = @batch_id AND n.depth = 0;

-- name: InheritedRead :many
-- What slices of retries had before they began, of each from a step on, the oldest first: the last one counts.
SELECT i.batch_id, i.slice_no, i.off, f.step_no, f.task_no, f.body
FROM (SELECT DISTINCT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS no,
    unnest(@from_steps::smallint[]) AS from_step) n
CROSS JOIN LATERAL (SELECT * FROM flow.inherited x WHERE x.batch_id = n.batch_id AND x.slice_no = n.no OFFSET 0) i
CROSS JOIN LATERAL (SELECT * FROM flow.all_fragments x WHERE x.batch_id = i.from_batch AND x.slice_no = i.from_slice
    AND x.step_no >= n.from_step OFFSET 0) f
WHERE (f.step_no < i.step_no OR f.step_no = i.step_no AND i.tasks_done >> f.task_no & 1 = 1)
ORDER BY i.batch_id, i.slice_no, f.step_no, f.task_no, i.depth DESC, f.seq;

-- name: JobsFirstStep :one
-- The first step at which a record that left one of these slices stands.
SELECT coalesce(min(j.step_no), 32767)::smallint AS step_no
FROM (SELECT DISTINCT unnest(@slice_nos::int[]) AS no) n
CROSS JOIN LATERAL (SELECT * FROM flow.job x WHERE x.batch_id = @batch_id AND x.slice_no = n.no OFFSET 0) j;

-- name: KeptKeysInsert :exec
-- Tasks of a retry's slices that keep the idempotency keys of the slices which they retry.
INSERT INTO flow.kept_key (batch_id, slice_no, step_no, task_no, key_batch)
SELECT @batch_id, n.slice_no, n.step_no, n.task_no, coalesce(k.key_batch, n.from_batch)
FROM (SELECT unnest(@slice_nos::int[]) AS slice_no, unnest(@step_nos::smallint[]) AS step_no,
    unnest(@task_nos::smallint[]) AS task_no,
    unnest(@from_batches::uuid[]) AS from_batch, unnest(@from_slices::int[]) AS from_slice) n
LEFT JOIN flow.kept_key k ON k.batch_id = n.from_batch AND k.slice_no = n.from_slice AND k.step_no = n.step_no
    AND k.task_no = n.task_no;

-- name: KeptKeys :many
-- The tasks of these slices that keep keys at a step, or at any if that is negative.
SELECT slice_no, step_no, task_no, key_batch FROM flow.kept_key
WHERE batch_id = @batch_id AND slice_no = ANY(@slice_nos::int[]) AND (step_no = @step_no::smallint
    OR @step_no::smallint < 0);
