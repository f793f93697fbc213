-- name: IdempotencyAnswer :one
SELECT body_hash, status, answer FROM flow.idempotency_key
WHERE org_id = @org_id AND key_hash = @key_hash AND created_at > flow.clock() - interval '24 hours';

-- name: IdempotencyAnswers :many
-- IdempotencyAnswer for several requests, each of its organization.
SELECT k.org_id, k.key_hash, k.body_hash, k.status, k.answer
FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@key_hashes::bytea[]) AS key_hash) d
CROSS JOIN LATERAL (
    SELECT * FROM flow.idempotency_key i WHERE i.org_id = d.org_id AND i.key_hash = d.key_hash
        AND i.created_at > flow.clock() - interval '24 hours' OFFSET 0
) k;

-- name: IdempotencyKeep :many
-- Keeps answers, and returns their keys. Waits for a transaction that is keeping an answer under one of the keys, in
-- the order of all, so that no two wait for each other. No row means that there is one already; an answer that is over
-- its time makes room.
INSERT INTO flow.idempotency_key AS k (org_id, key_hash, body_hash, operation, status, answer)
SELECT org_id, key_hash, body_hash, operation, status, answer
FROM (
    SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@key_hashes::bytea[]) AS key_hash,
        unnest(@body_hashes::bytea[]) AS body_hash, unnest(@operations::text[]) AS operation,
        unnest(@statuses::smallint[]) AS status, unnest(@answers::bytea[]) AS answer
) n
ORDER BY org_id, key_hash
ON CONFLICT (org_id, key_hash) DO UPDATE
SET body_hash = excluded.body_hash, operation = excluded.operation, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
WHERE k.created_at <= flow.clock() - interval '24 hours'
RETURNING org_id, key_hash;

-- name: RequestCount :one
-- Counts requests, in a window that begins with the first report after the one before has ended. No row means that
-- the window was full, more used than the limit allows that not all of them had room. The time is of before the row
-- is waited for, so that a window may begin a little after it; only one that begins in the far future, because the
-- clock was set back, is taken for ended.
WITH t AS MATERIALIZED (SELECT flow.clock() AS now)
INSERT INTO flow.request_count AS c (org_id, operation, began_at, used)
SELECT @org_id, @operation, t.now, @requests::bigint FROM t
ON CONFLICT (org_id, operation) DO UPDATE SET
    used = excluded.used
        + CASE WHEN abs(extract(epoch FROM excluded.began_at - c.began_at)) < @period_seconds::float8
            THEN c.used ELSE 0 END,
    began_at = CASE WHEN abs(extract(epoch FROM excluded.began_at - c.began_at)) < @period_seconds THEN c.began_at
        ELSE excluded.began_at END
WHERE c.used < @max_used::bigint OR abs(extract(epoch FROM excluded.began_at - c.began_at)) >= @period_seconds
RETURNING used, began_at,
    (extract(epoch FROM began_at - (SELECT now FROM t)) + @period_seconds)::float8 AS ends_in_seconds;

-- name: RequestWindow :one
SELECT began_at, (extract(epoch FROM began_at - flow.clock()) + @period_seconds::float8)::float8 AS ends_in_seconds
FROM flow.request_count WHERE org_id = @org_id AND operation = @operation;
