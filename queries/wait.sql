-- name: WaitInsert :exec
-- Rows of records, or of whole slices where the position is -1.
INSERT INTO flow.wait (org_id, batch_id, slice_no, position, step_no, task_no, began_at, ends_at)
SELECT unnest(@org_ids::uuid[]), unnest(@batch_ids::uuid[]), unnest(@slice_nos::int[]), nullif(unnest(@positions::bigint[]), -1),
    unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]), @now::timestamptz, unnest(@ends_ats::timestamptz[]);

-- name: WaitsOver :many
-- The waits of a batch that are over, the longest over first.
SELECT no, slice_no, coalesce(position, -1)::bigint AS position, step_no, task_no, began_at, ends_at FROM flow.wait
WHERE batch_id = @batch_id AND ends_at <= @now::timestamptz ORDER BY ends_at, no LIMIT @max_rows;

-- name: WaitNext :one
-- When the next wait of a batch is over.
SELECT ends_at FROM flow.wait WHERE batch_id = @batch_id ORDER BY ends_at LIMIT 1;

-- name: WaitDelete :execrows
DELETE FROM flow.wait WHERE no = ANY(@nos::bigint[]);

-- name: WaitClear :execrows
-- Waits of a batch of which nothing goes on.
DELETE FROM flow.wait WHERE no IN (SELECT w.no FROM flow.wait w WHERE w.batch_id = @batch_id ORDER BY w.no LIMIT @max_rows);
