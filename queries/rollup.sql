-- Sums over batches by the hour of their start (flow.rollup).

-- name: RollupUntil :one
-- Up to where batches can be rolled up now.
SELECT u::timestamptz AS until FROM flow.rollup_until() u WHERE u IS NOT NULL;

-- name: RollupOrgs :many
-- Organizations after one that have something to roll up: batches that were started before a time, or some that have
-- ended since. One that has come from another cell and is not opened is left as it was there.
SELECT o.id FROM flow.organization o
WHERE o.id > @after AND NOT EXISTS (SELECT FROM flow.move m WHERE m.org_id = o.id AND m.copied_at IS NOT NULL) AND (
    EXISTS (SELECT FROM flow.batch b WHERE b.org_id = o.id AND b.created_at >= o.rolled_up_to AND b.created_at < @until)
    OR EXISTS (SELECT FROM flow.rollup_open u WHERE u.org_id = o.id
        AND (SELECT c.completed_at IS NOT NULL FROM flow.batch_count c WHERE c.batch_id = u.batch_id)))
ORDER BY o.id LIMIT @max_rows;

-- name: RollupTryLock :one
SELECT pg_try_advisory_xact_lock(flow.rollup_key(@org_id)) AS locked;

-- name: RollupHour :one
-- Rolls up the next hour in which an organization started batches before a time, or as much of it as has max_rows, and
-- says how many there were.
WITH first AS MATERIALIZED (
    SELECT o.rolled_up_to AS begins, b.created_at AS at
    FROM flow.organization o JOIN flow.batch b ON b.org_id = o.id AND b.created_at >= o.rolled_up_to
    WHERE o.id = @org_id AND b.created_at < @until
    ORDER BY b.created_at LIMIT 1
), next AS MATERIALIZED (
    SELECT f.begins, least(flow.hour_of(f.at) + interval '1 hour', (
        SELECT max(s.created_at) + interval '1 microsecond' FROM (
            SELECT b.created_at FROM flow.batch b WHERE b.org_id = @org_id AND b.created_at >= f.at
            ORDER BY b.created_at LIMIT @max_rows
        ) s)) AS ends
    FROM first f
), found AS MATERIALIZED (
    SELECT f.batch_id, f.at, f.over FROM next n JOIN flow.batch_figures f ON f.org_id = @org_id AND f.at >= n.begins
        AND f.at < n.ends
), moved AS (
    UPDATE flow.organization o SET rolled_up_to = n.ends FROM next n WHERE o.id = @org_id
), opened AS (
    INSERT INTO flow.rollup_open (org_id, started_at, batch_id) SELECT @org_id, f.at, f.batch_id FROM found f
        WHERE NOT f.over
)
SELECT s.batches::bigint AS batches FROM (
    SELECT count(*) AS batches, array_agg(f.batch_id) FILTER (WHERE f.over) AS ids FROM found f
) s CROSS JOIN LATERAL flow.roll_up(@org_id, s.ids);

-- name: RollupEnded :one
-- Rolls up batches that were left out and have ended, and says how many there were.
WITH ended AS (
    DELETE FROM flow.rollup_open u WHERE u.ctid = ANY(ARRAY(
        SELECT p.ctid FROM flow.rollup_open p
        WHERE p.org_id = @org_id AND (SELECT c.completed_at IS NOT NULL FROM flow.batch_count c
            WHERE c.batch_id = p.batch_id)
        LIMIT @max_rows))
    RETURNING u.batch_id
)
SELECT s.batches::bigint AS batches FROM (SELECT count(*) AS batches, array_agg(e.batch_id) AS ids FROM ended e) s
CROSS JOIN LATERAL flow.roll_up(@org_id, s.ids);

-- name: RollupOrgsAhead :many
-- Organizations that are rolled up to a time that is not here yet: the clock was set back by more than an hour.
SELECT o.id FROM flow.organization o
WHERE o.rolled_up_to > (SELECT flow.clock())
    AND NOT EXISTS (SELECT FROM flow.move m WHERE m.org_id = o.id AND m.copied_at IS NOT NULL)
ORDER BY o.id LIMIT @max_rows;

-- name: RollupBack :exec
-- Takes back the sums of the hours from now on: batches are started in them once more.
WITH back AS MATERIALIZED (
    SELECT flow.hour_of(flow.clock()) AS at
), sums AS (
    DELETE FROM flow.rollup r USING back b WHERE r.org_id = @org_id AND r.hour >= b.at
), open AS (
    DELETE FROM flow.rollup_open u USING back b WHERE u.org_id = @org_id AND u.started_at >= b.at
)
UPDATE flow.organization o SET rolled_up_to = least(o.rolled_up_to, b.at) FROM back b WHERE o.id = @org_id;

-- name: RollupShareLock :exec
SELECT pg_advisory_xact_lock_shared(flow.rollup_key(@org_id));

-- name: RollupFamily :exec
-- Rolls up a batch that is about to be deleted and those that retried its records, as far as they are not. The lock is
-- shared.
WITH kept AS MATERIALIZED (
    SELECT b.id, b.created_at FROM flow.batch b
    WHERE b.org_id = @org_id AND (b.id = @id OR b.retry_root = @id) AND NOT flow.is_rolled_up(b)
), closed AS (
    DELETE FROM flow.rollup_open u USING kept k WHERE u.org_id = @org_id AND u.started_at = k.created_at
        AND u.batch_id = k.id
)
SELECT FROM (SELECT array_agg(k.id) AS ids FROM kept k) s CROSS JOIN LATERAL flow.roll_up(@org_id, s.ids);

-- name: HousekeepRollup :execrows
DELETE FROM flow.rollup r WHERE r.ctid = ANY(ARRAY(
    SELECT o.ctid FROM flow.organization g
    CROSS JOIN LATERAL (SELECT flow.kept_since(g.id, 'usage', @keep_seconds) AS since OFFSET 0) k
    CROSS JOIN LATERAL (
        SELECT p.ctid FROM flow.rollup p WHERE p.org_id = g.id AND p.hour < k.since LIMIT @max_rows
    ) o
    LIMIT @max_rows
));
