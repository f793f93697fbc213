-- name: WaitInsert :exec
-- Rows of records, or of whole slices where the position is -1.
INSERT INTO flow.wait (org_id, batch_id, slice_no, position, beside, step_no, task_no, began_at, ends_at, event_kind,
    match_key, child)
SELECT unnest(@org_ids::uuid[]), unnest(@batch_ids::uuid[]), unnest(@slice_nos::int[]),
    nullif(unnest(@positions::bigint[]), -1),
    unnest(@besides::boolean[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]), @now::timestamptz,
        unnest(@ends_ats::timestamptz[]), nullif(unnest(@event_kinds::text[]), ''),
    nullif(unnest(@match_keys::bytea[]), ''), nullif(unnest(@children::uuid[]), '00000000-0000-0000-0000-000000000000');

-- name: WaitsOver :many
-- The waits of a batch that are over, the longest over first, and locked. An event that came in time and was not looked
-- at yet is waited for.
SELECT w.no, w.slice_no, w.beside, coalesce(w.position, -1)::bigint AS position, w.step_no, w.task_no, w.began_at,
    w.ends_at, w.event_kind,
    w.event_no, w.child FROM flow.wait w
WHERE w.no IN (
    SELECT o.no FROM flow.wait o WHERE o.batch_id = @batch_id AND o.ends_at <= @now::timestamptz
        AND (o.event_kind IS NULL OR o.event_no IS NOT NULL OR NOT EXISTS (SELECT FROM flow.event_arrival a
            WHERE a.org_id = o.org_id AND NOT a.delivered
            AND a.event_kind = o.event_kind AND a.no > o.no AND a.done_upto < o.no AND a.occurred_at < o.ends_at))
    ORDER BY o.ends_at, o.no LIMIT @max_rows)
ORDER BY w.no FOR UPDATE;

-- name: WaitNext :one
-- When the next wait of a batch is over.
SELECT ends_at FROM flow.wait WHERE batch_id = @batch_id ORDER BY ends_at LIMIT 1;

-- name: WaitDelete :execrows
DELETE FROM flow.wait WHERE no = ANY(@nos::bigint[]);

-- name: WaitDrop :exec
-- What else records, or slices, waited for that failed. Whoever has such a wait locked ends it, and has the batch look
-- again: to wait for that one, out of the order of waits, could be for ever.
DELETE FROM flow.wait WHERE no IN (SELECT w.no FROM flow.wait w
    WHERE w.batch_id = @batch_id AND (w.position = ANY(@positions::bigint[]) OR w.position IS NULL
        AND w.slice_no = ANY(@slice_nos::int[]))
    FOR UPDATE SKIP LOCKED);

-- name: WaitDropBeside :many
-- What else records wait for that are about to fail, while calls of their step are made. Of what is locked whoever has
-- it makes the end.
DELETE FROM flow.wait WHERE no IN (SELECT w.no FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id,
    unnest(@positions::bigint[]) AS position) r
    JOIN flow.wait w ON w.batch_id = r.batch_id AND w.position = r.position AND w.beside
    FOR UPDATE OF w SKIP LOCKED)
RETURNING batch_id, position::bigint AS position;

-- name: WaitChildrenOver :many
-- Ends the waits for batches that are over in this transaction, unless their time was over before, and says whose they
-- are.
WITH locked AS MATERIALIZED (SELECT w.no FROM flow.wait w WHERE w.child = ANY(@children::uuid[]) ORDER BY w.no
    FOR UPDATE)
UPDATE flow.wait h SET ends_at = least(h.ends_at, @now::timestamptz) FROM locked WHERE h.no = locked.no
RETURNING h.batch_id;

-- name: WaitClear :execrows
-- Waits of a batch of which nothing goes on.
DELETE FROM flow.wait WHERE no IN (SELECT w.no FROM flow.wait w WHERE w.batch_id = @batch_id ORDER BY w.no
    LIMIT @max_rows FOR UPDATE);

-- name: EventGateTake :exec
-- Waits for transactions that cause events in an organization and may have looked for waits, and keeps others from
-- looking.
SELECT pg_advisory_xact_lock(hashtextextended('event ' || @org_id::uuid, 0));

-- name: WaitsUnkeyed :one
-- How many waits there are that every event of a kind has to be held against, up to a number.
SELECT count(*) FROM (SELECT FROM flow.wait WHERE org_id = @org_id AND event_kind = @event_kind::text
    AND event_no IS NULL AND match_key IS NULL LIMIT @most) w;

-- name: ArrivalNext :one
-- The oldest event of an organization for which not all that wait have been asked.
SELECT * FROM flow.event_arrival WHERE org_id = @org_id AND NOT delivered ORDER BY no LIMIT 1;

-- name: ArrivalsRead :many
SELECT * FROM flow.event_arrival WHERE no = ANY(@nos::bigint[]);

-- name: WaitCandidates :many
-- Waits that an event may end: begun before it, and not over when it happened.
SELECT w.no, w.batch_id, w.slice_no, coalesce(w.position, -1)::bigint AS position, w.step_no, w.task_no FROM (
    (SELECT u.* FROM flow.wait u WHERE u.org_id = @org_id AND u.event_kind = @event_kind::text AND u.event_no IS NULL
        AND u.match_key IS NULL
        AND u.no > @after AND u.no < @before AND u.ends_at > @occurred_at ORDER BY u.no LIMIT @max_rows)
    UNION ALL
    SELECT x.* FROM (SELECT DISTINCT unnest(@match_keys::bytea[]) AS k) m
    CROSS JOIN LATERAL (SELECT * FROM flow.wait y WHERE y.org_id = @org_id AND y.event_kind = @event_kind::text
        AND y.event_no IS NULL AND y.match_key = m.k
        AND y.no > @after AND y.no < @before AND y.ends_at > @occurred_at ORDER BY y.no LIMIT @max_rows) x
) w ORDER BY w.no LIMIT @max_rows;

-- name: ArrivalAdvance :execrows
UPDATE flow.event_arrival SET done_upto = @done_upto, delivered = @delivered
WHERE org_id = @org_id AND no = @no AND done_upto = @was AND NOT delivered;

-- name: WaitHand :many
-- Hands an event to waits that have none yet, which are over with that, and says whose they are.
WITH locked AS MATERIALIZED (SELECT w.no FROM flow.wait w WHERE w.no = ANY(@nos::bigint[]) ORDER BY w.no FOR UPDATE)
UPDATE flow.wait h SET event_no = @event_no::bigint, ends_at = (SELECT flow.clock()) FROM locked WHERE h.no = locked.no
    AND h.event_no IS NULL
RETURNING h.batch_id;

-- name: ArrivalLock :exec
-- Of two that end the last waits of an event, the second then sees what the first did.
SELECT no FROM flow.event_arrival WHERE no = ANY(@nos::bigint[]) AND delivered ORDER BY no FOR UPDATE;

-- name: ArrivalDelete :exec
-- Events for which all have been asked, and with which all have gone on.
DELETE FROM flow.event_arrival a WHERE a.no = ANY(@nos::bigint[]) AND a.delivered AND NOT EXISTS (SELECT
    FROM flow.wait w WHERE w.event_no = a.no);

-- name: HousekeepArrivals :execrows
DELETE FROM flow.event_arrival a WHERE a.no IN (
    SELECT o.no FROM flow.event_arrival o WHERE o.delivered AND NOT EXISTS (SELECT FROM flow.wait w
        WHERE w.event_no = o.no) LIMIT @max_rows);
