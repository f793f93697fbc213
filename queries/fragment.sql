-- What tasks did: outputs, attempts and errors.

-- name: FragmentInsert :exec
INSERT INTO flow.fragment (batch_id, slice_no, step_no, task_no, skipped, body)
SELECT unnest(@batch_ids::uuid[]), unnest(@slice_nos::int[]), unnest(@step_nos::smallint[]),
    unnest(@task_nos::smallint[]),
    unnest(@skipped::int[]), unnest(@bodies::bytea[]);

-- name: FragmentBody :one
SELECT body FROM flow.fragment WHERE batch_id = @batch_id AND slice_no = @slice_no AND step_no = @step_no
    AND task_no = @task_no AND seq = @seq;

-- name: FragmentsMany :many
-- Tasks of a step whose slices hold more fragments than they should keep, unless those are large.
SELECT f.batch_id, f.slice_no, f.step_no, f.task_no, sum(f.skipped)::int AS skipped,
    array_agg(f.seq ORDER BY f.seq)::bigint[] AS seqs, array_agg(f.body ORDER BY f.seq)::bytea[] AS bodies
FROM flow.fragment f
JOIN (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS slice_no,
    unnest(@step_nos::smallint[]) AS step_no) d
    ON f.batch_id = d.batch_id AND f.slice_no = d.slice_no AND f.step_no = d.step_no
GROUP BY f.batch_id, f.slice_no, f.step_no, f.task_no HAVING count(*) > @keep::int
    AND sum(octet_length(f.body)) <= @most::bigint;

-- name: FragmentDelete :exec
DELETE FROM flow.fragment WHERE batch_id = @batch_id AND slice_no = @slice_no AND step_no = @step_no
    AND task_no = @task_no AND seq = ANY(@seqs::bigint[]);

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
SELECT unnest(@batch_ids::uuid[]), unnest(@positions::bigint[]), unnest(@step_nos::smallint[]),
    unnest(@task_nos::smallint[]),
    unnest(@elements::int[]), unnest(@outputs::text[]);

-- name: ElementBytes :many
-- How many bytes the outputs of the elements of records have.
SELECT e.batch_id, e.position, e.step_no, e.task_no, sum(octet_length(e.output))::bigint AS bytes
FROM flow.element e
JOIN (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position,
    unnest(@step_nos::smallint[]) AS step_no,
        unnest(@task_nos::smallint[]) AS task_no) d
    ON e.batch_id = d.batch_id AND e.position = d.position AND e.step_no = d.step_no AND e.task_no = d.task_no
GROUP BY e.batch_id, e.position, e.step_no, e.task_no;

-- name: ElementsTake :many
-- Takes the outputs of the elements of records out.
DELETE FROM flow.element e
USING (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@positions::bigint[]) AS position,
    unnest(@step_nos::smallint[]) AS step_no,
        unnest(@task_nos::smallint[]) AS task_no) d
WHERE e.batch_id = d.batch_id AND e.position = d.position AND e.step_no = d.step_no AND e.task_no = d.task_no
RETURNING e.batch_id, e.position, e.step_no, e.task_no, e.element, e.output;
