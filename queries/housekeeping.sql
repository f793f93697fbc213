-- What is only kept for a while. Each statement deletes a bounded number of rows; nothing else reads them any more.

-- name: HousekeepLedger :execrows
DELETE FROM flow.ledger l USING (
    SELECT o.domain, o.bucket, o.window_seconds, o.starts_at FROM flow.ledger o
    WHERE o.ends_at < (SELECT flow.retention_now()) - interval '31 days'
    ORDER BY o.ends_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
) old
WHERE l.domain = old.domain AND l.bucket = old.bucket AND l.window_seconds = old.window_seconds
    AND l.starts_at = old.starts_at;

-- name: HousekeepRolling :execrows
DELETE FROM flow.rolling r USING (
    SELECT o.domain, o.bucket, o.window_seconds, o.cell FROM flow.rolling o
    WHERE o.ends_at < (SELECT flow.retention_now()) - interval '1 hour'
    ORDER BY o.ends_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
) old
WHERE r.domain = old.domain AND r.bucket = old.bucket AND r.window_seconds = old.window_seconds AND r.cell = old.cell;

-- name: HousekeepCalls :execrows
-- Calls that are over. Unresolved ones stay: a person has to look at them.
DELETE FROM flow.call c USING (
    SELECT o.id FROM flow.budget b
    CROSS JOIN LATERAL (
        SELECT k.id FROM flow.call k
        WHERE k.domain = b.domain AND k.bucket = b.bucket
            AND k.claimed_at < (SELECT flow.retention_now()) - interval '7 days'
            AND k.state IN ('settled', 'refused')
        ORDER BY k.claimed_at LIMIT @max_rows
    ) o
    LIMIT @max_rows
) old
WHERE c.id = old.id AND c.state IN ('settled', 'refused');

-- name: HousekeepExchanges :execrows
WITH old AS (
    DELETE FROM flow.exchange e USING (
        SELECT o.org_id, o.id FROM flow.organization g
        CROSS JOIN LATERAL (
            SELECT k.org_id, k.id FROM flow.exchange k
            WHERE k.org_id = g.id AND k.id < flow.first_id(flow.kept_since(g.id, 'calls', @keep_seconds)) ORDER BY k.id
                LIMIT @max_rows
        ) o
        LIMIT @max_rows
    ) x
    WHERE e.org_id = x.org_id AND e.id = x.id
    RETURNING e.id, e.more_batches
), links AS (
    DELETE FROM flow.exchange_batch b USING (SELECT id, unnest(more_batches) AS batch_id FROM old) o
    WHERE b.batch_id = o.batch_id AND b.call_id = o.id
)
SELECT 1 FROM old;

-- name: HousekeepPauses :execrows
-- Pauses of people that ended: they go as the batches of their organization do, and those of a batch after it.
DELETE FROM flow.pause p USING (
    SELECT o.id FROM flow.organization g
    CROSS JOIN LATERAL (SELECT flow.kept_since(g.id, 'batches', @keep_seconds) AS since OFFSET 0) k
    CROSS JOIN LATERAL (
        SELECT h.id FROM flow.pause h
        WHERE h.org_id = g.id AND h.created_at < k.since AND h.status = 'released' AND h.released_at < k.since
            AND NOT EXISTS (SELECT FROM flow.batch b WHERE b.id = h.batch_id)
        ORDER BY h.created_at, h.id LIMIT @max_rows
    ) o
    LIMIT @max_rows
) old
WHERE p.id = old.id;

-- name: HousekeepBackoffs :execrows
DELETE FROM flow.pause p USING (
    SELECT o.id FROM flow.pause o
    WHERE o.scope = 'bucket' AND o.status = 'released'
        AND o.released_at < (SELECT flow.retention_now()) - interval '30 days'
    LIMIT @max_rows
) old
WHERE p.id = old.id;

-- name: HousekeepIdempotencyKeys :execrows
DELETE FROM flow.idempotency_key k USING (
    SELECT o.org_id, o.key_hash FROM flow.idempotency_key o
    WHERE o.created_at <= (SELECT flow.retention_now()) - interval '24 hours'
    ORDER BY o.created_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
) old
WHERE k.org_id = old.org_id AND k.key_hash = old.key_hash;

-- name: DueBacklog :many
-- How many due rows of each kind wait for their time, are overdue, and for how long the oldest has been, or are being
-- worked on, and how many have failed several times in a row.
SELECT kind,
    count(*) FILTER (WHERE NOT leased AND due_at > clock.now) AS waiting,
    count(*) FILTER (WHERE NOT leased AND due_at <= clock.now) AS overdue,
    coalesce(max(extract(epoch FROM clock.now - due_at)) FILTER (WHERE NOT leased AND due_at <= clock.now), 0)
        ::float8 AS overdue_seconds,
    count(*) FILTER (WHERE leased) AS leased,
    count(*) FILTER (WHERE failures > 3) AS failing
FROM (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset) clock CROSS JOIN flow.due
GROUP BY kind ORDER BY kind;

-- name: CallsOpen :many
SELECT state, count(*) AS calls FROM flow.call WHERE state IN ('intent', 'unknown', 'awaiting') GROUP BY state
    ORDER BY state;

-- name: HousekeepUsage :execrows
DELETE FROM flow.usage u USING (
    SELECT o.org_id, o.day, o.definition_id, o.credential_id, o.action_id FROM flow.organization g
    CROSS JOIN LATERAL (
        SELECT k.* FROM flow.usage k
        WHERE k.org_id = g.id AND k.day < (flow.kept_since(g.id, 'usage', @keep_seconds) AT TIME ZONE 'UTC')::date
            LIMIT @max_rows
    ) o
    LIMIT @max_rows
) old
WHERE u.org_id = old.org_id AND u.day = old.day AND u.definition_id = old.definition_id
    AND u.credential_id = old.credential_id AND u.action_id = old.action_id;

-- name: HousekeepAudit :execrows
DELETE FROM flow.audit_log l USING (
    SELECT o.org_id, o.created_at, o.id FROM flow.organization g
    CROSS JOIN LATERAL (
        SELECT k.org_id, k.created_at, k.id FROM flow.audit_log k
        WHERE k.org_id = g.id AND k.created_at < flow.kept_since(g.id, 'audit_log', @keep_seconds)
        ORDER BY k.created_at LIMIT @max_rows
    ) o
    LIMIT @max_rows
) old
WHERE l.org_id = old.org_id AND l.created_at = old.created_at AND l.id = old.id;
