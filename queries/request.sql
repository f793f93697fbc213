-- name: IdempotencyAnswer :one
SELECT body_hash, status, answer FROM flow.idempotency_key
WHERE org_id = @org_id AND key_hash = @key_hash AND created_at > flow.clock() - interval '24 hours';

-- name: IdempotencyKeep :execrows
-- Waits for a transaction that is keeping an answer under the same key. No row means that there is one already; an answer
-- that is over its time makes room.
INSERT INTO flow.idempotency_key AS k (org_id, key_hash, body_hash, operation, status, answer)
VALUES (@org_id, @key_hash, @body_hash, @operation, @status, @answer)
ON CONFLICT (org_id, key_hash) DO UPDATE
SET body_hash = excluded.body_hash, operation = excluded.operation, status = excluded.status, answer = excluded.answer, created_at = excluded.created_at
WHERE k.created_at <= flow.clock() - interval '24 hours';
