-- name: QueueWaits :many
-- What waits in the queues of an account, whoever it belongs to: by task, budget, lane and what holds it. The queues
-- are summed up before anything else is asked; those of paused and paced batches stand alone, and so do those in which
-- parts wait for their next attempt: the latest of these are counted, and where there are more, all of the queue is
-- taken to wait. Without the first OFFSET 0 the planner would expect as many sums as there are batches, without the
-- second one it would read all batches.
WITH waits AS MATERIALIZED (
    SELECT q.org_id, q.definition_id, q.version, q.step_no, q.task_no, q.bucket, q.lane, q.alone,
        max(q.allowance) AS allowance, max(q.lapses_at) AS lapses_at, max(q.delayed_until) AS delayed_until,
        count(*) AS queues, sum(q.ready_parts)::bigint AS parts, sum(q.ready_records)::bigint AS records
    FROM (
        SELECT l.*, CASE WHEN l.paused OR l.allowance IS NOT NULL OR l.delayed_until > @now::timestamptz
            THEN l.batch_id END AS alone FROM flow.lane_batch l
        WHERE l.domain = @domain AND l.open AND l.listed AND l.ready_parts > 0 AND l.batch_id <> @except_batch OFFSET 0
    ) q
    GROUP BY q.org_id, q.definition_id, q.version, q.step_no, q.task_no, q.bucket, q.lane, q.alone
)
SELECT w.org_id, w.definition_id, w.version, w.step_no, w.task_no, w.bucket, w.lane, b.pacing, b.pace_next_at,
    coalesce(w.allowance, 0)::bigint AS allowance, coalesce(w.lapses_at,
        '0001-01-01 00:00:00+00')::timestamptz AS lapses_at,
    coalesce(h.ends_at, '0001-01-01 00:00:00+00')::timestamptz AS held_until,
        coalesce(h.causes, '{}')::text[] AS causes, w.queues, w.parts, w.records,
    CASE WHEN y.parts = @most_delayed::int THEN w.records ELSE least(coalesce(y.records, 0),
        w.records) END::bigint AS delayed_records,
    coalesce(y.ready_at, '0001-01-01 00:00:00+00')::timestamptz AS delayed_until
FROM waits w
LEFT JOIN LATERAL (SELECT * FROM flow.batch_count a WHERE a.batch_id = w.alone OFFSET 0) b ON true
LEFT JOIN LATERAL (
    SELECT max(p.ends_at) AS ends_at, array_agg(DISTINCT p.cause ORDER BY p.cause) AS causes FROM (
        SELECT o.ends_at, o.cause FROM flow.pauses_over(w.org_id, @domain, w.lane) o
        UNION ALL
        SELECT o.ends_at, o.cause FROM flow.pause o WHERE o.batch_id = w.alone AND o.scope = 'batch'
            AND o.status = 'active' AND o.ends_at > @now::timestamptz
    ) p
) h ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS parts, max(o.ready_at) AS ready_at,
        sum(o.to_off - o.from_off + CASE WHEN o.last_no > o.slice_no THEN
            (SELECT z.first FROM flow.slice z WHERE z.batch_id = w.alone AND z.no = o.last_no)
            - (SELECT z.first FROM flow.slice z WHERE z.batch_id = w.alone AND z.no = o.slice_no) ELSE 0 END) AS records
    FROM (
        SELECT p.* FROM flow.part p
        WHERE p.batch_id = w.alone AND p.step_no = w.step_no AND p.task_no = w.task_no AND p.call_id IS NULL
            AND p.ready_at > @now::timestamptz AND w.delayed_until > @now::timestamptz
        ORDER BY p.ready_at DESC LIMIT @most_delayed::int
    ) o
) y ON true;

-- name: QueueUnderWay :many
-- The records in calls to an account that are not over, by step: they may come to later ones. A call over batches of
-- several versions counts for each.
SELECT u.org_id, u.definition_id, u.version, u.step_no, sum(u.records)::bigint AS records
FROM (
    SELECT DISTINCT c.id, c.records, b.org_id, b.definition_id, b.version, p.step_no
    FROM flow.call c
    CROSS JOIN LATERAL (
        SELECT o.batch_id, o.step_no FROM flow.part o WHERE o.call_id = c.id
        UNION ALL SELECT q.batch_id, q.step_no FROM flow.lane_batch q WHERE q.batch_id = c.batch_id AND q.call_id = c.id
    ) p
    JOIN flow.batch b ON b.id = p.batch_id
    WHERE c.domain = @domain AND c.state IN ('intent', 'unknown', 'awaiting')
) u
GROUP BY u.org_id, u.definition_id, u.version, u.step_no;

-- name: CallPace :many
-- How long the last calls of each budget of an account were under way: in what time four of five were answered, or had
-- their results where they are under way until then. What became of another call that was not answered in time is found
-- out later, and says nothing of that. recent are those, up to
-- 1,000, that went so lately that a reading of the provider's counters may count them twice: within some seconds, and
-- the time that a call takes. under_way may have no answer yet.
SELECT b.bucket, b.max_in_flight, coalesce(c.calls, 0)::bigint AS calls, coalesce(extract(epoch FROM c.slow),
    0)::float8 AS slow_seconds,
    (SELECT count(*) FROM (
        SELECT FROM flow.call r WHERE r.domain = b.domain AND r.bucket = b.bucket AND r.counts_in <> '{}'
            AND r.claimed_at > sqlc.arg('recent_since')::timestamptz - coalesce(c.slow, '2 s') LIMIT 1000
    ) n)::int AS recent,
    (SELECT count(*) FROM flow.call u WHERE u.domain = b.domain AND u.bucket = b.bucket
        AND (u.state = 'intent' OR u.state = 'awaiting' AND u.bucket = ANY(@until_result::text[])))::int AS under_way
FROM flow.budget b
LEFT JOIN LATERAL (
    SELECT count(*) AS calls, percentile_disc(0.8) WITHIN GROUP (ORDER BY k.answered_at - k.claimed_at) AS slow FROM (
        SELECT l.answered_at, l.claimed_at FROM flow.call l
        WHERE l.domain = b.domain AND l.bucket = b.bucket AND l.state = 'settled'
            AND (l.answered_at <= l.send_before OR l.bucket = ANY(@until_result)) AND l.claimed_at > @since::timestamptz
        ORDER BY l.claimed_at DESC LIMIT 200
    ) k
) c ON true
WHERE b.domain = @domain;
