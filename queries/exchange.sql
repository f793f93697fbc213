-- What calls sent and were answered.

-- name: ExchangeInsert :exec
INSERT INTO flow.exchange (org_id, id, domain, action_id, credential_id, lane, attempt, records, batch_id, step_no,
    task_no, positions,
    more_batches, outcome, status, code, provider_code, queued_at, claimed_at, sent_at, answered_at, detail)
SELECT unnest(@org_ids::uuid[]), unnest(@ids::uuid[]), unnest(@domains::text[]), unnest(@action_ids::text[]),
    nullif(unnest(@credential_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@lanes::text[])::flow.lane,
    unnest(@attempts::int[]), unnest(@records::int[]), unnest(@batch_ids::uuid[]), unnest(@step_nos::smallint[]),
        unnest(@task_nos::smallint[]),
    nullif(unnest(@positions::text[])::int8multirange, '{[0,1)}'), nullif(unnest(@more_batches::text[]), '{}')::uuid[],
        unnest(@outcomes::text[]),
    nullif(unnest(@statuses::smallint[]), 0), nullif(unnest(@codes::text[]), ''),
        nullif(unnest(@provider_codes::text[]), ''),
    nullif(unnest(@queued_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@claimed_ats::timestamptz[]),
        nullif(unnest(@sent_ats::timestamptz[]), '0001-01-01 00:00:00+00'),
    nullif(unnest(@answered_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@details::bytea[]);

-- name: ExchangeAsk :exec
-- Keeps a question about a call that is kept, for the same records, and deletes older ones: beside it, so many others
-- are kept.
WITH call AS (
    SELECT k.org_id, k.id, k.domain, k.lane, k.attempt, k.batch_id, k.step_no, k.task_no, k.positions, k.more_batches
    FROM flow.exchange k WHERE k.org_id = @org_id AND k.id = @about
), old AS (
    DELETE FROM flow.exchange e USING (
        SELECT o.org_id, o.id FROM flow.exchange o WHERE o.org_id = @org_id AND o.about = @about
            ORDER BY o.id DESC OFFSET @others::int
    ) x
    WHERE e.org_id = x.org_id AND e.id = x.id
    RETURNING e.id, e.more_batches
), unlinked AS (
    DELETE FROM flow.exchange_batch b USING (SELECT id, unnest(more_batches) AS batch_id FROM old) o
    WHERE b.batch_id = o.batch_id AND b.call_id = o.id
), linked AS (
    INSERT INTO flow.exchange_batch (batch_id, call_id, step_no, task_no, positions, failed)
    SELECT b.batch_id, @id, b.step_no, b.task_no, b.positions, @failed
    FROM (SELECT unnest(more_batches) AS batch_id FROM call) m
    CROSS JOIN LATERAL (SELECT x.* FROM flow.exchange_batch x WHERE x.batch_id = m.batch_id
        AND x.call_id = @about OFFSET 0) b
)
INSERT INTO flow.exchange (org_id, id, about, purpose, domain, action_id, credential_id, lane, attempt, records,
    batch_id, step_no, task_no, positions,
    more_batches, outcome, status, code, provider_code, queued_at, claimed_at, sent_at, answered_at, detail)
SELECT c.org_id, @id, c.id, @purpose::text, c.domain, @action_id, nullif(@credential_id::uuid,
    '00000000-0000-0000-0000-000000000000'), c.lane, c.attempt, 0,
    c.batch_id, c.step_no, c.task_no, c.positions, c.more_batches, @outcome, nullif(@status::smallint, 0),
        nullif(@code::text, ''),
    nullif(@provider_code::text, ''), sqlc.narg('queued_at'), @claimed_at, @sent_at::timestamptz,
        @answered_at::timestamptz, @detail
FROM call c;

-- name: ExchangeBatchInsert :exec
INSERT INTO flow.exchange_batch (batch_id, call_id, step_no, task_no, positions, failed)
SELECT unnest(@batch_ids::uuid[]), unnest(@call_ids::uuid[]), unnest(@step_nos::smallint[]),
    unnest(@task_nos::smallint[]),
    unnest(@positions::text[])::int8multirange, unnest(@failed::boolean[]);

-- name: ExchangeList :many
-- Those of an organization, the newest first.
SELECT sqlc.embed(e), coalesce(c.state, CASE e.outcome WHEN 'success' THEN 'settled' ELSE '' END)::text AS state
    FROM flow.exchange e LEFT JOIN flow.call c ON c.id = e.id
WHERE e.org_id = @org_id AND e.id < @before AND (NOT @failed::boolean OR e.failed) AND (NOT @asked::boolean
    OR e.about IS NOT NULL)
    AND (sqlc.narg(domain)::text IS NULL OR e.domain = sqlc.narg(domain))
    AND (sqlc.narg(action_id)::text IS NULL OR e.action_id = sqlc.narg(action_id))
    AND (sqlc.narg(purpose)::text IS NULL OR coalesce(e.purpose, 'call') = sqlc.narg(purpose))
    AND (sqlc.narg(credential_id)::uuid IS NULL OR e.credential_id = sqlc.narg(credential_id))
    AND (sqlc.narg(outcome)::text IS NULL OR e.outcome = sqlc.narg(outcome))
    AND (sqlc.narg(status)::smallint IS NULL OR e.status = sqlc.narg(status))
    AND (sqlc.narg(code)::text IS NULL OR sqlc.narg(code) IN (e.code, e.provider_code))
ORDER BY e.id DESC LIMIT @max_rows;

-- name: ExchangeListOfBatch :many
-- Those of a batch, or of one record of it, the newest first.
SELECT sqlc.embed(e), coalesce(c.state, CASE e.outcome WHEN 'success' THEN 'settled' ELSE '' END)::text AS state
FROM (
    SELECT f.id FROM flow.exchange f WHERE f.batch_id = @batch_id AND f.id < @before AND (NOT @failed::boolean
        OR f.failed)
        AND (sqlc.narg(position)::bigint IS NULL OR coalesce(f.positions, '{[0,1)}') @> sqlc.narg(position)::bigint)
    UNION ALL
    SELECT b.call_id FROM flow.exchange_batch b WHERE b.batch_id = @batch_id AND b.call_id < @before
        AND (NOT @failed::boolean OR b.failed)
        AND (sqlc.narg(position)::bigint IS NULL OR b.positions @> sqlc.narg(position)::bigint)
) k
JOIN flow.exchange e ON e.org_id = @org_id AND e.id = k.id
LEFT JOIN flow.call c ON c.id = e.id
WHERE (sqlc.narg(domain)::text IS NULL OR e.domain = sqlc.narg(domain))
    AND (sqlc.narg(action_id)::text IS NULL OR e.action_id = sqlc.narg(action_id))
    AND (sqlc.narg(purpose)::text IS NULL OR coalesce(e.purpose, 'call') = sqlc.narg(purpose))
    AND (sqlc.narg(credential_id)::uuid IS NULL OR e.credential_id = sqlc.narg(credential_id))
    AND (sqlc.narg(outcome)::text IS NULL OR e.outcome = sqlc.narg(outcome))
    AND (sqlc.narg(status)::smallint IS NULL OR e.status = sqlc.narg(status))
    AND (sqlc.narg(code)::text IS NULL OR sqlc.narg(code) IN (e.code, e.provider_code))
ORDER BY k.id DESC LIMIT @max_rows;

-- name: ExchangeGet :one
SELECT sqlc.embed(e), coalesce(c.state, CASE e.outcome WHEN 'success' THEN 'settled' ELSE '' END)::text AS state
    FROM flow.exchange e LEFT JOIN flow.call c ON c.id = e.id
WHERE e.org_id = @org_id AND e.id = @id;

-- name: ExchangeBatches :many
-- The batches of exchanges of an organization, and the tasks there that called, with when their records were first
-- queued; of each those that are said to be further ones.
SELECT x.call_id::uuid AS call_id, x.batch_id, x.step_no, x.task_no,
    greatest(b.created_at, b.scheduled_at)::timestamptz AS began_at
FROM (
    SELECT e.id AS call_id, e.batch_id, e.step_no, e.task_no FROM flow.exchange e WHERE e.org_id = @org_id
        AND e.id = ANY(@ids::uuid[])
    UNION ALL
    SELECT m.call_id, m.batch_id, m.step_no, m.task_no
    FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@call_ids::uuid[]) AS call_id) k
    JOIN flow.exchange_batch m ON m.batch_id = k.batch_id AND m.call_id = k.call_id
) x
JOIN flow.batch b ON b.id = x.batch_id AND b.org_id = @org_id
ORDER BY x.call_id, x.batch_id;

-- name: BatchTimeline :many
-- What the newest calls of a batch carried, by intervals of the least width of which 90 reach over them all, the oldest
-- first.
WITH key AS (
    SELECT x.call_id, x.positions FROM (
        SELECT f.id AS call_id, CASE WHEN f.more_batches IS NOT NULL THEN coalesce(f.positions,
            '{[0,1)}') END AS positions
        FROM flow.exchange f WHERE f.batch_id = @batch_id
        UNION ALL
        SELECT b.call_id, b.positions FROM flow.exchange_batch b WHERE b.batch_id = @batch_id
    ) x ORDER BY x.call_id DESC LIMIT @most
), newest AS MATERIALIZED (
    SELECT coalesce(e.sent_at, e.claimed_at) AS at, e.failed,
        coalesce((SELECT sum(upper(r) - lower(r)) FROM unnest(key.positions) r), e.records)::bigint AS records
    FROM key JOIN flow.exchange e ON e.org_id = @org_id AND e.id = key.call_id AND e.about IS NULL
), span AS (
    SELECT (SELECT count(*) FROM key) AS calls,
        coalesce((SELECT min(s) FROM unnest(ARRAY[1, 5, 15, 60, 300, 900, 3600, 21600]) s
        WHERE 90 * s >= extract(epoch FROM max(n.at) - min(n.at))), 86400)::bigint AS seconds
    FROM newest n
)
SELECT date_bin(make_interval(secs => span.seconds), n.at, '2000-01-01 00:00:00+00')::timestamptz AS starts_at,
    span.seconds, span.calls AS counted,
    count(*) AS calls, sum(n.records)::bigint AS records, coalesce(sum(n.records) FILTER (WHERE n.failed),
        0)::bigint AS failed
FROM newest n, span GROUP BY 1, 2, 3 ORDER BY 1;
