-- name: DueWake :one
-- Keeps the earlier of two times. Returns whether the row is free and due, in which case the caller starts the work in this transaction.
INSERT INTO flow.due AS d (kind, key, due_at)
VALUES (@kind, @key, @due_at)
ON CONFLICT (kind, key) DO UPDATE SET due_at = least(d.due_at, excluded.due_at), seq = d.seq + 1
RETURNING (due_at <= flow.clock() AND (leased_until IS NULL OR leased_until <= flow.clock()))::boolean AS startable;

-- name: DueLease :one
-- Hands the row to a new worker.
UPDATE flow.due SET lease_no = lease_no + 1, leased_until = flow.clock() + make_interval(secs => @lease_seconds::float8)
WHERE kind = @kind AND key = @key
RETURNING lease_no;

-- name: DueTake :many
-- Leases up to max_rows rows that are due and that nobody works on.
WITH picked AS (
    SELECT d.kind, d.key FROM flow.due d
    WHERE d.due_at <= flow.clock() AND (d.leased_until IS NULL OR d.leased_until <= flow.clock())
    ORDER BY d.due_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
)
UPDATE flow.due u SET lease_no = u.lease_no + 1, leased_until = flow.clock() + make_interval(secs => @lease_seconds::float8)
FROM picked p WHERE u.kind = p.kind AND u.key = p.key
RETURNING u.kind, u.key, u.lease_no;

-- name: DueExtend :one
-- Begins or goes on with leased work; no row means that the lease was lost.
UPDATE flow.due SET leased_until = flow.clock() + make_interval(secs => @lease_seconds::float8)
WHERE kind = @kind AND key = @key AND lease_no = @lease_no
RETURNING seq;

-- name: DueFinish :one
-- Ends leased work. A wake-up that arrived since seq was read keeps the row due now; else it is due at next_at.
UPDATE flow.due
SET due_at = CASE WHEN seq <> @seq THEN least(due_at, flow.clock()) ELSE @next_at::timestamptz END, leased_until = NULL
WHERE kind = @kind AND key = @key AND lease_no = @lease_no
RETURNING (due_at <= flow.clock())::boolean AS again;

-- name: DueDone :execrows
-- Ends leased work for good, unless a wake-up arrived since seq was read.
DELETE FROM flow.due WHERE kind = @kind AND key = @key AND lease_no = @lease_no AND seq = @seq;
