-- What a claim chooses: the queues and parts that may go next, and what holds them.

-- name: QueueChoose :many
-- The batches that may go next: of each lane the boosted ones first, then the oldest, with where the lane is in fair
-- queueing; the clocks are the latest starts of its competitors. Queues to skip ("batch.step.task"), and those of paced
-- batches that must wait for a tick, do not take the places of others. Of a lane no more are read than calls may be
-- under way, and least, from which one bulk call may take. part_id is the part that stands in the queue and is all that
-- is ready in it; 0 for none. Batches before since, which may be zero, are passed over by the index alone. Queues to
-- skip are an array of texts because Postgres then keeps one plan: with sets of keys it plans anew for each call, which
-- takes longer than to run it. The order names the lane, which is one, because for whom a policy binds Postgres does
-- not see that of an enum, and would sort all queues.
WITH RECURSIVE org AS (
    (SELECT f.org_id FROM flow.lane_batch f WHERE f.domain = @domain::text AND f.bucket = @bucket::text AND f.open
        AND f.listed AND f.ready_parts > 0
            AND f.batch_id >= @since::uuid
        ORDER BY f.org_id LIMIT 1)
    UNION ALL
    SELECT n.org_id FROM org CROSS JOIN LATERAL (
        SELECT f.org_id FROM flow.lane_batch f WHERE f.domain = @domain::text AND f.bucket = @bucket::text AND f.open
            AND f.listed AND f.ready_parts > 0
            AND f.batch_id >= @since::uuid
            AND f.org_id > org.org_id ORDER BY f.org_id LIMIT 1
    ) n
)
SELECT l.lane, l.batch_id, l.step_no, l.task_no, l.org_id, l.ready_records, l.allowance, l.part_id,
    coalesce(s.max_concurrent_calls, 0)::int AS max_calls,
    coalesce(s.weight, 0)::int AS weight, coalesce(o.vtime, 0)::bigint AS org_vtime,
        coalesce(t.vtime, 0)::bigint AS vtime,
    (SELECT coalesce(max(c.vstart), 0) FROM flow.budget_org c WHERE c.domain = @domain::text
        AND c.bucket = @bucket::text)::bigint AS org_clock,
    (SELECT coalesce(max(c.vstart), 0) FROM flow.budget_org_lane c
        WHERE c.domain = @domain::text AND c.bucket = @bucket::text AND c.org_id = l.org_id)::bigint AS clock
FROM org
CROSS JOIN (SELECT unnest(enum_range(NULL::flow.lane)) AS lane) k
CROSS JOIN LATERAL (
    SELECT q.batch_id, q.step_no, q.task_no, q.org_id, q.lane, q.high, q.ready_records, q.allowance,
        coalesce(CASE WHEN q.call_id IS NULL THEN q.part_id END, 0)::bigint AS part_id
    FROM flow.lane_batch q
    WHERE q.domain = @domain::text AND q.bucket = @bucket::text AND q.org_id = org.org_id AND q.lane = k.lane AND q.open
        AND q.listed AND NOT q.paused AND q.ready_parts > 0
        AND q.batch_id >= @since::uuid
        AND (q.allowance IS NULL OR q.allowance > 0) AND (q.lapses_at IS NULL OR q.lapses_at > (SELECT flow.clock()))
        AND (q.part_id IS NOT NULL AND q.call_id IS NULL
            OR EXISTS (SELECT FROM flow.part p WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no
                AND p.task_no = q.task_no
                AND p.call_id IS NULL AND p.ready_at <= (SELECT flow.clock())))
        -- Of the lane, and so asked once, not for each of its queues.
        AND (SELECT NOT EXISTS (SELECT FROM flow.pauses_over(org.org_id, @domain::text, k.lane)))
        AND NOT concat_ws('.', q.batch_id, q.step_no, q.task_no) = ANY(@skip::text[])
    ORDER BY q.lane, q.high DESC, q.batch_id
    LIMIT (SELECT greatest(b.max_in_flight, @least::int) FROM flow.budget b WHERE b.domain = @domain::text
        AND b.bucket = @bucket::text)
) l
LEFT JOIN flow.budget_org o ON o.domain = @domain::text AND o.bucket = @bucket::text AND o.org_id = l.org_id
LEFT JOIN flow.budget_org_lane t ON t.domain = @domain::text AND t.bucket = @bucket::text AND t.org_id = l.org_id
    AND t.lane = l.lane
LEFT JOIN flow.domain_lane s ON s.org_id = l.org_id AND s.tenancy_id = @domain::text AND s.lane = l.lane
ORDER BY l.org_id, l.lane, l.high DESC, l.batch_id;

-- name: BudgetReady :one
-- Whether anything may be ready in a budget that a pass could choose. What people hold by its lane counts as ready.
SELECT EXISTS (SELECT FROM flow.lane_batch q WHERE q.domain = @domain::text AND q.bucket = @bucket::text AND q.open
    AND q.listed AND NOT q.paused AND q.ready_parts > 0
    AND (q.part_id IS NOT NULL AND q.call_id IS NULL
        OR EXISTS (SELECT FROM flow.part p WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no
            AND p.task_no = q.task_no AND p.call_id IS NULL AND p.ready_at <= (SELECT flow.clock()))))::boolean
    AS ready;

-- name: QueuesDead :one
-- How many versions of queues Postgres has yet to clear, as its statistics have it.
SELECT pg_stat_get_dead_tuples('flow.lane_batch'::regclass)::bigint AS dead;

-- name: PartChoose :many
-- What is ready in queues, slice by slice, in the order in which it goes; of each so many parts at most. Each queue is
-- looked up for itself: else the planner takes reading all parts for cheap.
SELECT (k.no - 1)::int AS queue_no, p.id, k.batch_id::uuid AS batch_id, k.step_no::smallint AS step_no,
    k.task_no::smallint AS task_no, p.slice_no,
    p.part_slice AS begins, p.from_off, p.to_off, p.detached, p.attempt, p.element, p.first, p.size,
    coalesce(p.keyed_since, '0001-01-01 00:00:00+00')::timestamptz AS keyed_since,
    coalesce(p.queued_at, '0001-01-01 00:00:00+00')::timestamptz AS queued_at, greatest(p.ready_at,
        '0001-01-01 00:00:00+00')::timestamptz AS ready_at
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@step_nos::smallint[]) AS step_no,
    unnest(@task_nos::smallint[]) AS task_no,
        unnest(@max_parts::int[]) AS most, generate_series(1, cardinality(@batch_ids::uuid[])) AS no) k
CROSS JOIN LATERAL (
    SELECT r.id, s.no AS slice_no, (CASE WHEN s.no = r.slice_no THEN r.from_off ELSE 0 END)::int AS from_off,
        (CASE WHEN s.no = r.last_no THEN coalesce(r.to_off, s.records) ELSE s.records END)::int AS to_off,
        r.detached, r.attempt, r.element, s.first, s.records AS size, r.ready_at, r.queued_at, r.slice_no AS part_slice,
            r.from_off AS part_from, r.keyed_since
    FROM (
        SELECT q.id, q.slice_no, q.from_off, q.last_no, q.to_off, q.detached, q.attempt, q.element, q.ready_at,
            q.queued_at, q.keyed_since
            FROM flow.part q
        WHERE q.batch_id = k.batch_id AND q.step_no = k.step_no AND q.task_no = k.task_no AND q.call_id IS NULL
            AND q.ready_at <= (SELECT flow.clock())
        ORDER BY q.ready_at, q.slice_no, q.from_off LIMIT k.most
    ) r
    CROSS JOIN LATERAL (
        SELECT z.no, z.first, z.records FROM flow.slice z
        WHERE z.batch_id = k.batch_id AND z.no BETWEEN r.slice_no AND r.last_no ORDER BY z.no LIMIT k.most
    ) s
    ORDER BY r.ready_at, r.slice_no, r.from_off, s.no LIMIT k.most
) p
ORDER BY k.no, p.ready_at, p.part_slice, p.part_from, p.slice_no;

-- name: QueueNextReady :one
-- When the next part of a budget may be claimed that could not be at the time of the last choice.
SELECT coalesce(min(n.ready_at), '0001-01-01 00:00:00+00')::timestamptz AS at FROM flow.lane_batch q
CROSS JOIN LATERAL (
    SELECT p.ready_at FROM flow.part p
    WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no AND p.task_no = q.task_no AND p.call_id IS NULL
        AND p.ready_at > @chosen_at::timestamptz
    ORDER BY p.ready_at LIMIT 1
) n
WHERE q.domain = @domain AND q.bucket = @bucket AND q.open AND q.listed AND q.ready_parts > 0;

-- name: CallsTogether :one
-- How many calls of these actions, or of any, may be under way in any process, whichever of these queues they waited
-- in. With jobs, also those whose result is not known. With a scope, only those that name it beside their costs. As in
-- CallsOfOthers, no clock ends them.
SELECT count(*) FROM flow.call WHERE domain = @domain AND bucket = ANY(@lines::text[])
    AND (state = 'intent' OR @jobs::boolean AND state IN ('intent', 'unknown', 'awaiting'))
    AND (action_id = ANY(@spends::text[]) OR cardinality(@spends::text[]) = 0)
    AND (@scope::text = '' OR (costs->>(@scope::text)) IS NOT NULL);
