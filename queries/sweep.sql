-- What is ready and has no due row, so that nobody would ever look at it: a fault, of which the sweep takes the effect
-- away. Each statement goes over what is open, by the index of it: from one key to the next, so that it costs two or
-- three index entries for each budget or batch that has something open, however much that is, and nothing for all
-- others. It stops after so many keys (the last one comes back whether it is lost or not), and begins behind where the
-- one before it stopped. What has come from another cell and is not opened has its due rows in flow.move; that holds
-- calls anyway.

-- name: SweepQueues :many
-- Budgets in which calls may go. Whether there are any is looked at only where there is no due row: of a queue that a
-- pause covered until just now, or whose parts became ready just now, whoever is to wake it may not have come to it.
WITH RECURSIVE b AS (
    (SELECT f.domain, f.bucket, 1 AS n FROM flow.lane_batch f WHERE f.open AND f.listed AND f.ready_parts > 0
        AND (f.domain, f.bucket) > (@after_domain::text, @after_bucket::text) ORDER BY f.domain, f.bucket LIMIT 1)
    UNION ALL
    SELECT x.domain, x.bucket, b.n + 1 FROM b CROSS JOIN LATERAL (
        SELECT f.domain, f.bucket FROM flow.lane_batch f WHERE f.open AND f.listed AND f.ready_parts > 0
            AND (f.domain, f.bucket) > (b.domain, b.bucket) ORDER BY f.domain, f.bucket LIMIT 1
    ) x WHERE b.n < @most::int
), seen AS MATERIALIZED (
    SELECT b.domain, b.bucket, b.n, NOT EXISTS (SELECT FROM flow.due d WHERE d.kind = 'dispatch'
        AND d.key = b.domain || E'\n' || b.bucket) AS alone FROM b
), judged AS MATERIALIZED (
    SELECT s.domain, s.bucket, s.n, CASE WHEN s.alone THEN EXISTS (
        SELECT FROM flow.lane_batch q
        WHERE q.domain = s.domain AND q.bucket = s.bucket AND q.open AND q.listed AND NOT q.paused AND q.ready_parts > 0
            AND (q.allowance IS NULL OR q.allowance > 0) AND (q.lapses_at IS NULL
                OR q.lapses_at > (SELECT flow.clock()))
            AND (q.part_id IS NOT NULL AND q.call_id IS NULL
                    AND (SELECT b.created_at <= (SELECT flow.clock()) - interval '10 seconds' FROM flow.batch b
                        WHERE b.id = q.batch_id)
                OR EXISTS (SELECT FROM flow.part p WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no
                    AND p.task_no = q.task_no
                    AND p.call_id IS NULL AND p.ready_at <= (SELECT flow.clock()) - interval '10 seconds'))
            AND NOT EXISTS (SELECT FROM flow.pause h WHERE h.org_id = q.org_id AND h.status = 'active'
                AND h.scope IN ('global', 'domain', 'lane')
                AND h.ends_at > (SELECT flow.clock()) - interval '10 seconds'
                AND (h.domain IS NULL OR h.domain = q.domain) AND (h.lane IS NULL OR h.lane = q.lane))
    ) ELSE false END AS lost FROM seen s
)
SELECT domain::text AS domain, bucket::text AS bucket, lost::boolean AS lost FROM judged WHERE lost OR n = @most::int
    ORDER BY n;

-- name: SweepSlices :many
-- Live batches with in-process work.
WITH RECURSIVE b AS (
    (SELECT f.batch_id, 1 AS n FROM (
        (SELECT s.batch_id FROM flow.slice s WHERE s.ready AND s.batch_id > @after::uuid ORDER BY s.batch_id LIMIT 1)
        UNION ALL (SELECT j.batch_id FROM flow.job j WHERE j.ready AND j.batch_id > @after::uuid ORDER BY j.batch_id
            LIMIT 1)
    ) f ORDER BY f.batch_id LIMIT 1)
    UNION ALL
    SELECT x.batch_id, b.n + 1 FROM b CROSS JOIN LATERAL (
        SELECT f.batch_id FROM (
            (SELECT s.batch_id FROM flow.slice s WHERE s.ready AND s.batch_id > b.batch_id ORDER BY s.batch_id LIMIT 1)
            UNION ALL (SELECT j.batch_id FROM flow.job j WHERE j.ready AND j.batch_id > b.batch_id ORDER BY j.batch_id
                LIMIT 1)
        ) f ORDER BY f.batch_id LIMIT 1
    ) x WHERE b.n < @most::int
), judged AS MATERIALIZED (
    SELECT b.batch_id, b.n, coalesce(NOT EXISTS (SELECT FROM flow.due d WHERE d.kind = 'slices'
        AND d.key = b.batch_id::text)
        AND (SELECT l.status IN ('queued', 'running') AND l.stopped_at IS NULL
                AND NOT EXISTS (SELECT FROM flow.move m WHERE m.org_id = l.org_id AND m.copied_at IS NOT NULL)
            FROM flow.batch_count l WHERE l.batch_id = b.batch_id), false) AS lost FROM b
)
SELECT batch_id::uuid AS batch_id, lost::boolean AS lost FROM judged WHERE lost OR n = @most::int ORDER BY n;

-- name: SweepWaits :many
-- Live batches of which something waits.
WITH RECURSIVE b AS (
    (SELECT w.batch_id, 1 AS n FROM flow.wait w WHERE w.batch_id > @after::uuid ORDER BY w.batch_id LIMIT 1)
    UNION ALL
    SELECT x.batch_id, b.n + 1 FROM b CROSS JOIN LATERAL (
        SELECT w.batch_id FROM flow.wait w WHERE w.batch_id > b.batch_id ORDER BY w.batch_id LIMIT 1
    ) x WHERE b.n < @most::int
), judged AS MATERIALIZED (
    SELECT b.batch_id, b.n, coalesce(NOT EXISTS (SELECT FROM flow.due d WHERE d.kind = 'wait'
        AND d.key = b.batch_id::text)
        AND (SELECT l.status IN ('queued', 'running') AND l.stopped_at IS NULL
                AND NOT EXISTS (SELECT FROM flow.move m WHERE m.org_id = l.org_id AND m.copied_at IS NOT NULL)
            FROM flow.batch_count l WHERE l.batch_id = b.batch_id), false) AS lost FROM b
)
SELECT batch_id::uuid AS batch_id, lost::boolean AS lost FROM judged WHERE lost OR n = @most::int ORDER BY n;

-- name: SweepCalls :many
-- Budgets with calls whose outcome is to be found out. Nobody asks about those that have no time for it.
WITH RECURSIVE b AS (
    (SELECT c.domain, c.bucket, 1 AS n FROM flow.call c WHERE c.state IN ('intent', 'unknown', 'awaiting')
        AND (c.domain, c.bucket) > (@after_domain::text, @after_bucket::text) ORDER BY c.domain, c.bucket LIMIT 1)
    UNION ALL
    SELECT x.domain, x.bucket, b.n + 1 FROM b CROSS JOIN LATERAL (
        SELECT c.domain, c.bucket FROM flow.call c WHERE c.state IN ('intent', 'unknown', 'awaiting')
            AND (c.domain, c.bucket) > (b.domain, b.bucket) ORDER BY c.domain, c.bucket LIMIT 1
    ) x WHERE b.n < @most::int
), judged AS MATERIALIZED (
    SELECT b.domain, b.bucket, b.n, NOT EXISTS (SELECT FROM flow.due d WHERE d.kind = 'reconcile'
        AND d.key = b.domain || E'\n' || b.bucket)
        AND EXISTS (SELECT FROM flow.call c WHERE c.domain = b.domain AND c.bucket = b.bucket AND c.state IN ('intent',
            'unknown', 'awaiting')
            AND (c.state = 'intent' OR c.next_check_at IS NOT NULL)) AS lost FROM b
)
SELECT domain::text AS domain, bucket::text AS bucket, lost::boolean AS lost FROM judged WHERE lost OR n = @most::int
    ORDER BY n;
