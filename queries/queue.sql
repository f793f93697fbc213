-- name: QueueWaits :many
-- What waits in the queues of an account, whoever it belongs to: by task, budget, lane and what holds it. The queues
-- are summed up before anything else is asked; those of paused and paced batches stand alone, and so do those in which
-- parts wait for their next attempt: the latest of these are counted, and where there are more, all of the queue is
-- taken to wait. Without the first OFFSET 0 the planner would expect as many sums as there are batches, without the
-- second one it would read all batches.
WITH waits AS MATERIALIZED (
    SELECT q.org_id, q.definition_id, q.version, q.step_no, q.task_no, q.bucket, q.lane, q.alone,
        (array_agg(q.batch_id))[1] AS one, max(q.allowance) AS allowance, max(q.lapses_at) AS lapses_at,
        max(q.delayed_until) AS delayed_until, count(*) AS queues, sum(q.ready_parts)::bigint AS parts,
        sum(q.ready_records)::bigint AS records
    FROM (
        SELECT l.*, CASE WHEN l.paused OR l.allowance IS NOT NULL OR l.delayed_until > @now::timestamptz
            THEN l.batch_id END AS alone FROM flow.lane_batch l
        WHERE l.domain = @domain AND l.open AND l.listed AND l.ready_parts > 0 AND l.batch_id <> @except_batch OFFSET 0
    ) q
    GROUP BY q.org_id, q.definition_id, q.version, q.step_no, q.task_no, q.bucket, q.lane, q.alone
)
SELECT w.org_id, w.definition_id, w.version, w.step_no, w.task_no, w.bucket, w.lane, w.one::uuid AS one_batch,
    b.pacing, b.pace_next_at, coalesce(w.allowance, 0)::bigint AS allowance, coalesce(w.lapses_at,
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

-- name: QueueEmptyExists :one
-- Whether an account has queues of batches under way in which nothing waits, other than those of one batch.
SELECT EXISTS (SELECT FROM flow.lane_batch l WHERE l.domain = @domain AND l.open AND NOT l.listed
    AND l.batch_id <> @except_batch);

-- name: QueueArrivals :many
-- Records of batches under way that will come to queues of an account, and are neither in these yet nor in queues of
-- earlier steps there: they are in calls, wait, are worked on, or stand at another account. from_at is when the first
-- of them may come, if that is known: for those of a batch that is scheduled, and of slices that all wait for a time.
-- beside are those that stand at the step of the queue itself, in a call of it or before it. Queues in which something
-- waits (listed) are asked about only for the tasks to which more may come there. So many of each kind are read
-- at most; unlisted is how many others there are. Of the records that are detached nothing is read where a batch has
-- very many: then all that are not over may come.
WITH queues AS MATERIALIZED (
    SELECT u.batch_id, u.org_id, u.definition_id, u.version, u.step_no, u.task_no, u.bucket, u.lane,
        u.paused, u.allowance, u.listed FROM (
        SELECT l.* FROM flow.lane_batch l
        WHERE l.domain = @domain AND l.open AND NOT l.listed AND l.batch_id <> @except_batch
        ORDER BY l.batch_id LIMIT @most_queues::int
    ) u
    UNION ALL
    SELECT v.batch_id, v.org_id, v.definition_id, v.version, v.step_no, v.task_no, v.bucket, v.lane,
        v.paused, v.allowance, v.listed FROM (
        SELECT l.* FROM flow.lane_batch l
        WHERE l.domain = @domain AND l.open AND l.listed AND l.batch_id <> @except_batch
            AND (l.definition_id, l.version, l.step_no, l.task_no) IN (SELECT unnest(@definition_ids::uuid[]),
                unnest(@versions::int[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]))
        LIMIT @most_queues
    ) v
), arrivals AS MATERIALIZED (
    SELECT q.org_id, q.definition_id, q.version, q.step_no, q.task_no, q.bucket, q.lane, k.from_at,
        CASE WHEN q.paused OR q.allowance IS NOT NULL THEN q.batch_id END AS alone,
        (array_agg(q.batch_id))[1] AS one, sum(k.beside) AS beside,
        sum(k.records) AS records, q.listed
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT c.staged + c.queued + c.pending + c.started + c.needs_reconcile AS records FROM flow.batch_count c
        WHERE c.batch_id = q.batch_id OFFSET 0
    ) o
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(z.records), 0) AS records, coalesce(sum(z.records) FILTER (WHERE z.comes
            AND z.state NOT IN ('staged', 'waiting')), 0) AS moving,
            coalesce(sum(z.records) FILTER (WHERE z.comes AND z.state = 'waiting'), 0) AS waiting,
            coalesce(sum(z.records) FILTER (WHERE z.comes AND z.state = 'staged'), 0) AS staged
        FROM (
            SELECT y.records - y.detached AS records, y.state,
                y.step_no < q.step_no OR y.step_no = q.step_no AND y.state <> 'calling' AS comes
            FROM flow.all_slices y WHERE y.batch_id = q.batch_id AND y.state <> 'done'
        ) z
    ) s
    CROSS JOIN LATERAL (
        SELECT CASE WHEN count(*) = @most_jobs::int THEN o.records - s.records
            ELSE count(*) FILTER (WHERE j.live AND (j.step_no < q.step_no OR j.step_no = q.step_no AND j.ready)) END
                AS records,
            CASE WHEN count(*) < @most_jobs::int THEN count(*) FILTER (WHERE j.live AND j.step_no = q.step_no
                AND NOT j.ready) ELSE 0 END AS beside
        FROM (
            SELECT i.step_no, i.ready,
                i.status IN ('staged', 'queued', 'pending', 'started', 'needs_reconcile') AS live
            FROM flow.job i WHERE o.records > s.records AND i.batch_id = q.batch_id LIMIT @most_jobs
        ) j
    ) d
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(f.records), 0) AS records FROM (
            SELECT max(a.ready_records) AS records FROM flow.lane_batch a
            WHERE a.batch_id = q.batch_id AND a.domain = @domain AND a.open AND a.step_no < q.step_no
            GROUP BY a.step_no
        ) f
    ) e
    CROSS JOIN LATERAL (
        SELECT unnest(ARRAY[greatest(s.moving + d.records - e.records, 0), s.waiting, s.staged]) AS records,
        unnest(ARRAY[d.beside, 0, 0]) AS beside, unnest(ARRAY[NULL, CASE WHEN s.waiting > 0 THEN (
            SELECT CASE WHEN NOT bool_or(w.early) THEN date_trunc('hour', min(w.ends_at)) END FROM (
                SELECT v.ends_at, v.event_kind IS NOT NULL OR v.child IS NOT NULL AS early
                FROM flow.wait v WHERE v.batch_id = q.batch_id ORDER BY v.ends_at, v.no LIMIT @most_jobs
            ) w
        ) END, CASE WHEN s.staged > 0 THEN (
            SELECT date_trunc('hour', b.scheduled_at) FROM flow.batch b WHERE b.id = q.batch_id
        ) END]::timestamptz[]) AS from_at
    ) k
    WHERE k.records + k.beside > 0
    GROUP BY q.org_id, q.definition_id, q.version, q.step_no, q.task_no, q.bucket, q.lane, q.listed, k.from_at, alone
)
SELECT a.org_id, a.definition_id, a.version, a.step_no, a.task_no, a.bucket, a.lane, a.one::uuid AS one_batch,
    b.pacing, b.pace_next_at, a.records::bigint AS records, a.beside::bigint AS beside, a.listed,
    CASE WHEN a.listed THEN 0 ELSE (SELECT count(*) FROM flow.lane_batch l WHERE l.domain = @domain AND l.open
        AND NOT l.listed) END::bigint AS unlisted,
    coalesce(a.from_at, '0001-01-01 00:00:00+00')::timestamptz AS from_at,
    coalesce(h.ends_at, '0001-01-01 00:00:00+00')::timestamptz AS held_until
FROM arrivals a
LEFT JOIN LATERAL (SELECT * FROM flow.batch_count c WHERE c.batch_id = a.alone OFFSET 0) b ON true
LEFT JOIN LATERAL (
    SELECT max(p.ends_at) AS ends_at FROM (
        SELECT o.ends_at FROM flow.pauses_over(a.org_id, @domain, a.lane) o
        UNION ALL
        SELECT o.ends_at FROM flow.pause o WHERE o.batch_id = a.alone AND o.scope = 'batch'
            AND o.status = 'active' AND o.ends_at > @now::timestamptz
    ) p
) h ON true;

-- name: BatchRecordBytes :many
-- How large the records of batches are on average, by the first pages of each; zero where it has none.
SELECT b.id AS batch_id, coalesce(p.bytes, CASE WHEN h.page_bytes > 0 THEN h.page_bytes::float8
    / greatest(h.record_count, 1) END, 0)::float8 AS bytes
FROM flow.batch b
JOIN flow.batch h ON h.id = coalesce((SELECT o.id FROM flow.batch o WHERE o.id = b.page_set), b.id)
CROSS JOIN LATERAL (
    SELECT sum(f.raw_bytes)::float8 / sum(f.rows) AS bytes FROM (
        SELECT g.raw_bytes, g.rows FROM flow.page g WHERE g.set_id = coalesce(b.page_set, b.id)
        ORDER BY g.first LIMIT 20
    ) f
) p
WHERE b.id = ANY(@batch_ids::uuid[]);

-- name: CallPace :many
-- How long the last calls of each budget of an account were under way, by action: in what time four of five were
-- answered, or had their results where they are under way until then, or how long they took on average where that is
-- longer, and how long the slowest took. What became of another call that was not answered in time is found out later,
-- and says nothing of that. recent are those, up to 1,000, that went so lately that a reading of the provider's
-- counters may count them twice: within some seconds, and the time that a call takes. under_way may have no answer yet.
SELECT b.bucket, b.max_in_flight, coalesce(c.actions, '{}')::text[] AS actions,
    coalesce(c.calls, '{}')::bigint[] AS calls, coalesce(c.slow_seconds, '{}')::float8[] AS slow_seconds,
    coalesce(c.longest_seconds, '{}')::float8[] AS longest_seconds,
    (SELECT count(*) FROM (
        SELECT FROM flow.call r WHERE r.domain = b.domain AND r.bucket = b.bucket AND r.counts_in <> '{}'
            AND r.claimed_at > sqlc.arg('recent_since')::timestamptz - coalesce(c.slow, '2 s') LIMIT 1000
    ) n)::int AS recent,
    (SELECT count(*) FROM flow.call u WHERE u.domain = b.domain AND u.bucket = b.bucket
        AND (u.state = 'intent' OR u.state = 'awaiting' AND u.bucket = ANY(@until_result::text[])))::int AS under_way
FROM flow.budget b
LEFT JOIN LATERAL (
    SELECT array_agg(a.action_id) AS actions, array_agg(a.calls) AS calls, array_agg(extract(epoch FROM a.slow))
        AS slow_seconds, array_agg(extract(epoch FROM a.longest)) AS longest_seconds, max(a.slow) AS slow FROM (
        SELECT k.action_id, count(*) AS calls, max(k.took) AS longest,
            greatest(percentile_disc(0.8) WITHIN GROUP (ORDER BY k.took), avg(k.took)) AS slow
        FROM (
            SELECT l.action_id, l.answered_at - l.claimed_at AS took FROM flow.call l
            WHERE l.domain = b.domain AND l.bucket = b.bucket AND l.state = 'settled'
                AND (l.answered_at <= l.send_before OR l.bucket = ANY(@until_result))
                AND l.claimed_at > @since::timestamptz
            ORDER BY l.claimed_at DESC LIMIT 200
        ) k GROUP BY k.action_id
    ) a
) c ON true
WHERE b.domain = @domain;
