-- What an operator does from the command line, across organizations.

-- name: OrgList :many
SELECT o.*, (SELECT count(*) FROM flow.api_key k WHERE k.org_id = o.id AND flow.api_key_status(k.revoked_at, k.expires_at) = 'active') AS active_keys
FROM flow.organization o ORDER BY o.id;

-- name: OrgOldestByName :one
SELECT * FROM flow.organization WHERE name = @name ORDER BY id LIMIT 1;

-- name: OrgSetStatus :one
UPDATE flow.organization SET status = @status WHERE id = @id RETURNING *;

-- name: OrgSetBudget :one
UPDATE flow.organization SET start_budget = @start_budget WHERE id = @id RETURNING *;

-- name: OrgSetRequestLimits :one
-- Sets limits of operations, and takes away those that are null.
UPDATE flow.organization SET request_limits = jsonb_strip_nulls(request_limits || @request_limits)
WHERE id = @id RETURNING *;

-- name: OrgBatches :one
SELECT count(*) FROM flow.batch WHERE org_id = @org_id;

-- name: OrgLink :one
-- Sets the identity provider's name for an organization; null takes it away.
UPDATE flow.organization SET external_id = sqlc.narg('external_id') WHERE id = @id RETURNING *;

-- name: OrgGet :one
SELECT * FROM flow.organization WHERE id = @id;

-- name: OrgsOfHoldLock :exec
-- Waits for those who make organizations: each has seen what holds everything, or is seen by who reads organizations after this.
SELECT pg_advisory_xact_lock(hashtextextended('hold everything', 0));

-- name: OrgsOfHoldShare :exec
-- Keeps who holds or releases everything from reading organizations until who makes one has ended.
SELECT pg_advisory_xact_lock_shared(hashtextextended('hold everything', 0));

-- name: HoldOfEverything :one
-- Why every organization is held; no row where that is not so.
SELECT coalesce(reason, '')::text FROM flow.pause WHERE operator = @operator::text AND status = 'active' ORDER BY created_at DESC LIMIT 1;

-- name: OrgsOfHold :many
-- The organizations that a command of the operator holds, or that it does not hold yet.
SELECT o.id FROM flow.organization o
WHERE @held::boolean = EXISTS (SELECT FROM flow.pause p WHERE p.org_id = o.id AND p.operator = @operator::text AND p.status = 'active')
ORDER BY o.id;
