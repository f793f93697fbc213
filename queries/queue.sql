-- name: QueueWaits :many
-- What waits in the queues of an account, whoever it belongs to: by task, budget, lane and what holds it. Paced batches stand
-- alone, with when they release more.
SELECT q.org_id, b.definition_id, b.version, q.step_no, q.task_no, q.bucket, q.lane, b.pacing, b.pace_next_at,
    coalesce(q.allowance, 0)::bigint AS allowance, q.lapses_at,
    coalesce(h.ends_at, '0001-01-01 00:00:00+00')::timestamptz AS held_until, coalesce(h.causes, '{}')::text[] AS causes,
    count(*) AS queues, sum(q.ready_parts)::bigint AS parts, sum(q.ready_records)::bigint AS records,
    sum(c.started + c.needs_reconcile)::bigint AS under_way
FROM flow.lane_batch q
JOIN flow.batch b ON b.id = q.batch_id
JOIN flow.batch_count c ON c.batch_id = q.batch_id
LEFT JOIN LATERAL (
    SELECT max(p.ends_at) AS ends_at, array_agg(DISTINCT p.cause ORDER BY p.cause) AS causes FROM flow.pause p
    WHERE p.status = 'active' AND p.ends_at > @now::timestamptz AND p.org_id = q.org_id
        AND (p.scope = 'global' OR (p.scope = 'batch' AND p.batch_id = q.batch_id) OR (p.scope = 'domain' AND p.domain = q.domain)
            OR (p.scope = 'lane' AND p.domain = q.domain AND p.lane = q.lane))
) h ON true
WHERE q.domain = @domain AND q.open AND q.ready_parts > 0 AND q.batch_id <> @except_batch
GROUP BY q.org_id, b.definition_id, b.version, q.step_no, q.task_no, q.bucket, q.lane, b.pacing, b.pace_next_at, q.allowance, q.lapses_at,
    h.ends_at, h.causes, CASE WHEN b.pacing IS NOT NULL THEN b.id END;

-- name: CallPace :many
-- How long the last calls of each budget of an account were under way.
SELECT b.bucket, b.max_in_flight, b.next_call_at, coalesce(extract(epoch FROM c.slow), 0)::float8 AS slow_seconds
FROM flow.budget b
LEFT JOIN LATERAL (
    SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY k.answered_at - k.claimed_at) AS slow FROM (
        SELECT l.answered_at, l.claimed_at FROM flow.call l
        WHERE l.domain = b.domain AND l.bucket = b.bucket AND l.state = 'settled' AND l.claimed_at > @since::timestamptz
        ORDER BY l.claimed_at DESC LIMIT 200
    ) k
) c ON true
WHERE b.domain = @domain;

-- name: Backoffs :many
-- The automatic backoffs of an account that go on.
SELECT bucket::text AS bucket, cause, expires_at::timestamptz AS until FROM flow.pause
WHERE domain = @domain::text AND scope = 'bucket' AND status = 'active' AND expires_at > @now::timestamptz;
