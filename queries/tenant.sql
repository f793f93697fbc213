-- name: TenantDomainKeep :execrows
-- What the provider said about an account, newest wins. No row means that the id belongs to another account.
INSERT INTO flow.domain AS d (tenancy_id, platform_id, account_number, account_name, time_zone, identified_at,
    answers_in)
VALUES (@tenancy_id, @platform_id, @account_number, @account_name, @time_zone, flow.clock(), @answered_in::float8)
ON CONFLICT (tenancy_id) DO UPDATE
SET account_name = excluded.account_name, time_zone = excluded.time_zone, identified_at = excluded.identified_at,
    answers_in = greatest(excluded.answers_in, 0.9 * d.answers_in)
WHERE d.platform_id = excluded.platform_id AND d.account_number = excluded.account_number AND d.org_id IS NULL;

-- name: TenantDomainName :exec
-- The account that an organization named itself; one that was deleted keeps its row, and its ledger.
INSERT INTO flow.domain (tenancy_id, platform_id, account_number, time_zone, org_id)
VALUES (@tenancy_id, @platform_id, @account_number, @time_zone, @org_id) ON CONFLICT (tenancy_id) DO NOTHING;

-- name: TenantDomainIdentify :execrows
-- What the provider said about an account that an organization named. No row means that it is another account.
UPDATE flow.domain
SET account_number = @account_number::text, account_name = @account_name, time_zone = @time_zone,
    identified_at = flow.clock(),
    answers_in = greatest(@answered_in::float8, 0.9 * answers_in)
WHERE tenancy_id = @tenancy_id AND org_id = @org_id AND (account_number IS NULL
    OR account_number = @account_number::text);

-- name: TenantKnow :exec
-- Makes an account known to an organization, and keeps it so until the transaction ends.
INSERT INTO flow.tenant AS t (org_id, tenancy_id) VALUES (@org_id, @tenancy_id)
ON CONFLICT (org_id, tenancy_id) DO UPDATE SET tenancy_id = excluded.tenancy_id;

-- name: TenantAdd :execrows
INSERT INTO flow.tenant (org_id, tenancy_id, label) VALUES (@org_id, @tenancy_id, @label) ON CONFLICT (org_id,
    tenancy_id) DO NOTHING;

-- name: TenantGet :one
SELECT sqlc.embed(t), sqlc.embed(d) FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id
WHERE t.org_id = @org_id AND t.tenancy_id = @tenancy_id AND d.credential_id IS NULL;

-- name: TenantShare :one
-- Keeps a tenant from being deleted until the transaction ends.
SELECT sqlc.embed(t), sqlc.embed(d) FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id
WHERE t.org_id = @org_id AND t.tenancy_id = @tenancy_id AND d.credential_id IS NULL FOR SHARE OF t;

-- name: DomainKnown :one
-- A Domain that an organization knows, with the limits that it has set.
SELECT sqlc.embed(d), coalesce(t.limits, (SELECT k.limits FROM flow.credential k
    WHERE k.id = d.credential_id)) AS limits
FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id
WHERE t.org_id = @org_id AND t.tenancy_id = @tenancy_id;

-- name: DomainShare :one
-- Has an organization go on knowing a Domain until the transaction ends.
SELECT tenancy_id FROM flow.tenant WHERE org_id = @org_id AND tenancy_id = @tenancy_id FOR SHARE;

-- name: DomainOfCredential :exec
-- The Domain that a credential is whose owner limits it, with the ledger that it had before.
WITH kept AS (
    INSERT INTO flow.domain (tenancy_id, org_id, platform_id, credential_id, time_zone) VALUES (@tenancy_id, @org_id,
        @platform_id, @credential_id, 'UTC')
    ON CONFLICT (tenancy_id) DO NOTHING
)
INSERT INTO flow.tenant (org_id, tenancy_id) VALUES (@org_id, @tenancy_id) ON CONFLICT (org_id, tenancy_id) DO NOTHING;

-- name: TenantLock :one
-- An account; what a limited credential is goes with its limits.
SELECT t.tenancy_id FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id
WHERE t.org_id = @org_id AND t.tenancy_id = @tenancy_id AND d.credential_id IS NULL FOR UPDATE OF t;

-- name: TenantList :many
-- In insertion order, from one tenant on.
SELECT sqlc.embed(t), sqlc.embed(d) FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id
WHERE t.org_id = @org_id AND d.credential_id IS NULL AND (t.created_at, t.tenancy_id) > (@after_created_at::timestamptz,
    @after_id::text)
ORDER BY t.created_at, t.tenancy_id LIMIT @max_rows OFFSET @skip_rows;

-- name: TenantCount :one
SELECT count(*) FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id WHERE t.org_id = @org_id
    AND d.credential_id IS NULL;

-- name: TenantRename :exec
UPDATE flow.tenant SET label = @label WHERE org_id = @org_id AND tenancy_id = @tenancy_id;

-- name: TenantLimit :exec
UPDATE flow.tenant SET limits = sqlc.narg('limits')::jsonb WHERE org_id = @org_id AND tenancy_id = @tenancy_id;

-- name: TenantBusy :one
-- Why a tenant cannot go: credentials that are bound to it, and batches that are not over with calls for it.
SELECT EXISTS (SELECT FROM flow.credential c WHERE c.org_id = @org_id AND c.tenancy_id = @tenancy_id::text
    AND c.deleted_at IS NULL) AS bound,
    EXISTS (SELECT FROM flow.batch_count b WHERE b.org_id = @org_id AND b.status IN ('queued', 'running', 'paused')
        AND EXISTS (SELECT FROM flow.lane_batch q WHERE q.batch_id = b.batch_id
            AND q.domain = @tenancy_id::text)) AS working;

-- name: TenantDelete :exec
DELETE FROM flow.tenant WHERE org_id = @org_id AND tenancy_id = @tenancy_id;
