-- name: DueWake :one
-- Makes (kind, key) due at due_at (now where it is null), keeping the earlier of two times. Where the row is due and
-- nobody works on it, it is leased: the caller starts the work in this transaction under the number of the lease, which
-- is else 0.
SELECT w.no::bigint AS lease_no, w.failed::int AS failures FROM flow.wake_lease(@kind::text, @key::text,
    sqlc.narg('due_at')::timestamptz, @lease_seconds::float8, @rechecks::boolean, @again::boolean) w;

-- name: DueLease :one
-- Hands a row, whose lock the caller has, to a new worker.
UPDATE flow.due
SET lease_no = nextval('flow.due_lease'), leased = true, due_at = flow.clock() + make_interval(secs => lease_seconds)
WHERE kind = @kind AND key = @key
RETURNING lease_no, failures;

-- name: DueTake :many
-- Leases up to max_rows rows of these kinds that are due.
WITH picked AS (
    SELECT d.kind, d.key FROM flow.due d
    WHERE d.due_at <= (SELECT flow.clock()) AND d.kind = ANY(@kinds::text[]) AND NOT d.leased
    ORDER BY d.due_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
)
UPDATE flow.due u
SET lease_no = nextval('flow.due_lease'), leased = true, due_at = flow.clock() + make_interval(secs => u.lease_seconds)
FROM picked p WHERE u.kind = p.kind AND u.key = p.key
RETURNING u.kind, u.key, u.lease_no, u.failures;

-- name: DueRetake :many
-- Leases up to max_rows rows anew whose lease has ended and which no job waits for: their number is below the floor of
-- their kind.
WITH picked AS (
    SELECT d.kind, d.key FROM flow.due d
    JOIN (SELECT unnest(@kinds::text[]) AS kind, unnest(@floors::bigint[]) AS no) f ON f.kind = d.kind
    WHERE d.due_at <= (SELECT flow.clock()) AND d.leased AND d.lease_no < f.no
    ORDER BY d.due_at LIMIT @max_rows FOR UPDATE OF d SKIP LOCKED
)
UPDATE flow.due u
SET lease_no = nextval('flow.due_lease'), leased = true, due_at = flow.clock() + make_interval(secs => u.lease_seconds)
FROM picked p WHERE u.kind = p.kind AND u.key = p.key
RETURNING u.kind, u.key, u.lease_no;

-- name: DueBegin :one
-- Begins leased work; no row means that the lease was lost. The work sees whatever happened before, so wake-ups until
-- now are served by it; those for later stay. Returns how often in a row the work has failed.
UPDATE flow.due
SET due_at = flow.clock() + make_interval(secs => lease_seconds),
    woken_at = CASE WHEN woken_at > flow.clock() THEN woken_at END
WHERE kind = @kind AND key = @key AND lease_no = @lease_no AND leased
RETURNING failures;

-- name: DueExtend :execrows
-- Goes on with leased work; no row means that the lease was lost, or given back.
UPDATE flow.due SET due_at = flow.clock() + make_interval(secs => lease_seconds)
WHERE kind = @kind AND key = @key AND lease_no = @lease_no AND leased;

-- name: DueFinish :one
-- Gives leased work back, due again at next_at (null: never) or at the earliest wake-up since it began. Returns whether
-- that is now; no row means that the lease was lost.
UPDATE flow.due
SET due_at = least(sqlc.narg('next_at')::timestamptz, woken_at), leased = false, woken_at = NULL, failures = 0
WHERE kind = @kind AND key = @key AND lease_no = @lease_no AND leased
RETURNING (due_at <= flow.clock())::boolean AS again;

-- name: DueDone :execrows
-- Ends leased work for good; no row means that a wake-up arrived since it began, or that the lease was lost.
DELETE FROM flow.due WHERE kind = @kind AND key = @key AND lease_no = @lease_no AND leased AND woken_at IS NULL;

-- name: DueFail :execrows
-- Gives leased work back after a failure, due after a delay or at the earliest wake-up since it began.
UPDATE flow.due
SET due_at = least(woken_at, flow.clock() + make_interval(secs => @delay_seconds)), leased = false, woken_at = NULL,
    failures = failures + 1
WHERE kind = @kind AND key = @key AND lease_no = @lease_no AND leased;

-- name: DueExtendMany :many
-- Keeps leases that were not begun yet; returns the numbers of those that were not lost.
UPDATE flow.due d SET due_at = flow.clock() + make_interval(secs => d.lease_seconds)
FROM (SELECT unnest(@keys::text[]) AS key, unnest(@lease_nos::bigint[]) AS no) k
WHERE d.kind = @kind AND d.key = k.key AND d.lease_no = k.no AND d.leased
RETURNING d.lease_no;

-- name: DueLook :one
-- In how many seconds the next row of these kinds falls due that nobody works on (3600 where there is none), and the
-- kinds of which a lease has ended.
SELECT coalesce((SELECT greatest(0, extract(epoch FROM d.due_at - flow.clock())) FROM flow.due d
    WHERE NOT d.leased AND d.kind = ANY(@kinds::text[]) ORDER BY d.due_at LIMIT 1), 3600)::float8 AS seconds,
    ARRAY(SELECT DISTINCT l.kind FROM flow.due l WHERE l.due_at <= (SELECT flow.clock())
        AND l.kind = ANY(@kinds::text[]) AND l.leased)::text[] AS lapsed;

-- name: DueGate :exec
-- Waits for the transactions that wake a row of a kind whose handlers look again, and keeps others from it until this
-- one ends.
SELECT pg_advisory_xact_lock(flow.due_gate(@kind::text, @key::text));

-- name: DueStepped :exec
-- After a step of the clock: no lease lasts for longer than one that begins now.
UPDATE flow.due d SET due_at = flow.clock() + make_interval(secs => d.lease_seconds)
FROM (
    SELECT w.kind, w.key FROM flow.due w
    WHERE w.leased AND w.due_at > (SELECT flow.clock()) + make_interval(secs => w.lease_seconds)
    ORDER BY w.kind, w.key FOR UPDATE
) far WHERE d.kind = far.kind AND d.key = far.key;

-- name: DueWakeKind :exec
-- Makes every row of a kind due now, or again when who works on it has finished.
UPDATE flow.due d SET due_at = CASE WHEN d.leased THEN d.due_at ELSE flow.clock() END,
    woken_at = CASE WHEN d.leased THEN flow.clock() END
FROM (SELECT w.kind, w.key FROM flow.due w WHERE w.kind = @kind::text ORDER BY w.key FOR UPDATE) kin
WHERE d.kind = kin.kind AND d.key = kin.key;

-- name: ClockCompare :one
-- The clock, and by how much of it tests let time pass, in seconds.
SELECT flow.clock()::timestamptz AS now, (SELECT extract(epoch FROM ahead - stepped)
    FROM flow.clock_offset)::float8 AS passed;

-- name: ClockWatched :one
SELECT steady_since, watched_at FROM flow.clock_watch;

-- name: ClockWatch :exec
-- Notes that the clock went steadily between two times. Where nobody has watched it until the first of them, nobody
-- knows about before.
INSERT INTO flow.clock_watch AS w (steady_since, watched_at) VALUES (@since::timestamptz, @now::timestamptz)
ON CONFLICT (only_row) DO UPDATE SET watched_at = excluded.watched_at,
    steady_since = CASE WHEN w.watched_at >= excluded.steady_since AND w.watched_at <= (SELECT flow.clock())
        AND excluded.steady_since < excluded.watched_at THEN w.steady_since ELSE excluded.steady_since END;
