-- Budgets: what calls spend that go to one account of a provider, host or organization.

-- name: BudgetEnsure :exec
-- Whoever sets the limits of its credential, or of its account, has this wait, or finds the budget.
INSERT INTO flow.budget (domain, bucket, service_id, metered, time_zone, max_in_flight, limits)
VALUES (@domain, @bucket, @service_id, @metered, @time_zone, @max_in_flight,
    coalesce((SELECT c.limits FROM flow.credential c WHERE c.id = sqlc.narg('credential_id')::uuid FOR SHARE),
        (SELECT t.limits FROM flow.tenant t WHERE t.org_id = sqlc.narg('org_id')::uuid AND t.tenancy_id = @domain
            FOR SHARE)))
ON CONFLICT (domain, bucket) DO NOTHING;

-- name: BudgetRead :one
SELECT * FROM flow.budget WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetLock :many
-- Locks budgets of an account in the order of their names against other claims, but not against starts that refer to
-- them. The clock is read after each lock was had.
WITH locked AS MATERIALIZED (
    SELECT * FROM flow.budget WHERE domain = @domain AND bucket = ANY(@buckets::text[]) ORDER BY bucket
        FOR NO KEY UPDATE
)
SELECT locked.*, flow.clock()::timestamptz AS now FROM locked;

-- name: BudgetSpace :exec
UPDATE flow.budget SET next_call_at = @next_call_at WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetRefusals :exec
-- Notes how often in a row the receiver of a budget without windows has refused calls for their rate, and when it did
-- last.
UPDATE flow.budget SET refusals = @refusals, refused_at = @refused_at WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetLanes :many
-- The lanes of organizations in a budget, those that want calls now among them: where they stand, and what was set for
-- them (0: nothing). Also when the automatic backoff of the budget ends, and the last one of other budgets that the
-- calls spend too.
SELECT k.org_id::uuid AS org_id, k.lane, coalesce(l.vtime, 0)::bigint AS vtime, coalesce(l.vstart, 0)::bigint AS vstart,
    coalesce(o.vtime, 0)::bigint AS org_vtime, coalesce(o.vstart, 0)::bigint AS org_vstart,
        coalesce(s.weight, 0)::int AS weight, coalesce(s.max_concurrent_calls, 0)::int AS max_calls,
    (SELECT coalesce(max(h.expires_at), '0001-01-01 00:00:00+00') FROM flow.pause h
        WHERE h.domain = @domain::text AND h.bucket = @bucket::text AND h.scope = 'bucket' AND h.status = 'active'
            AND h.expires_at > (SELECT flow.clock()))::timestamptz AS backoff_until,
    (SELECT coalesce(max(h.expires_at), '0001-01-01 00:00:00+00') FROM flow.pause h
        WHERE h.domain = @domain::text AND h.bucket = ANY(@also::text[]) AND h.scope = 'bucket' AND h.status = 'active'
            AND h.expires_at > (SELECT flow.clock()))::timestamptz AS also_until
FROM (
    SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@lanes::text[])::flow.lane AS lane
    UNION SELECT x.org_id, x.lane FROM flow.budget_org_lane x WHERE x.domain = @domain::text
        AND x.bucket = @bucket::text
) k
LEFT JOIN flow.budget_org_lane l ON l.domain = @domain::text AND l.bucket = @bucket::text AND l.org_id = k.org_id
    AND l.lane = k.lane
LEFT JOIN flow.budget_org o ON o.domain = @domain::text AND o.bucket = @bucket::text AND o.org_id = k.org_id
LEFT JOIN flow.domain_lane s ON s.org_id = k.org_id AND s.tenancy_id = @domain::text AND s.lane = k.lane;

-- name: BudgetZone :exec
UPDATE flow.budget SET time_zone = @time_zone WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetsUnaligned :many
-- The budgets of an account that do not go by its time zone yet.
SELECT b.bucket FROM flow.domain d JOIN flow.budget b ON b.domain = d.tenancy_id
WHERE d.tenancy_id = @domain AND b.metered AND b.time_zone <> d.time_zone ORDER BY b.bucket;

-- name: BudgetsLock :many
-- Locks every budget of an account against claims.
SELECT bucket FROM flow.budget WHERE domain = @domain ORDER BY bucket FOR NO KEY UPDATE;

-- name: BudgetsWaiting :many
-- The budgets of an account for which work waits.
SELECT DISTINCT bucket FROM flow.lane_batch WHERE domain = @domain AND open AND listed AND ready_parts > 0
    ORDER BY bucket;

-- name: BudgetWaits :many
-- Those of these budgets of an account for which work waits.
SELECT b.bucket::text FROM unnest(@buckets::text[]) AS b (bucket)
WHERE EXISTS (SELECT FROM flow.lane_batch q WHERE q.domain = @domain AND q.bucket = b.bucket AND q.open AND q.listed
    AND q.ready_parts > 0)
ORDER BY b.bucket;

-- name: BudgetCommitted :one
-- Whether the budget was there before this transaction.
SELECT EXISTS (SELECT FROM flow.budget WHERE domain = @domain AND bucket = @bucket
    AND xmin::text::bigint <> txid_current() % 4294967296);
