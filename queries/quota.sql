-- What an organization may have at once, and what it has: quotas, by their names.

-- name: QuotaLock :one
-- Locks the organization, so that two creations cannot both be the last that is allowed.
SELECT id FROM flow.organization WHERE id = @org_id FOR NO KEY UPDATE;

-- name: QuotaLimit :one
SELECT coalesce((SELECT q.most FROM flow.organization_quota q WHERE q.org_id = @org_id AND q.name = @name),
    @by_default::bigint)::bigint AS most;

-- name: QuotaRead :one
-- A quota, and what is used of it; what is counted one by one is counted no further than to one more than the quota.
SELECT l.most::bigint AS most, flow.quota_used(@org_id, @name, l.most + 1)::bigint AS used
FROM (SELECT coalesce((SELECT q.most FROM flow.organization_quota q WHERE q.org_id = @org_id AND q.name = @name),
    @by_default::bigint) AS most) l;

-- name: QuotaList :many
SELECT d.name::text AS name, coalesce(q.most, d.most)::bigint AS most, flow.quota_used(@org_id, d.name,
    NULL)::bigint AS used
FROM (SELECT unnest(@names::text[]) AS name, unnest(@defaults::bigint[]) AS most, generate_subscripts(@names::text[],
    1) AS place) d
    LEFT JOIN flow.organization_quota q ON q.org_id = @org_id AND q.name = d.name
ORDER BY d.place;

-- name: QuotaSet :exec
INSERT INTO flow.organization_quota (org_id, name, most) VALUES (@org_id, @name, @most)
ON CONFLICT (org_id, name) DO UPDATE SET most = excluded.most;

-- name: QuotaReset :exec
DELETE FROM flow.organization_quota WHERE org_id = @org_id AND name = @name;

-- name: QuotasOf :many
-- The quotas that the operator has set, of one organization, or of all where it is null.
SELECT * FROM flow.organization_quota q WHERE q.org_id = sqlc.narg('org_id')::uuid OR sqlc.narg('org_id')::uuid IS NULL
    ORDER BY q.org_id, q.name;
