-- name: OrgCreate :one
INSERT INTO flow.organization (id, name) VALUES (@id, @name) RETURNING *;

-- name: AccountCreate :one
INSERT INTO flow.account (id, org_id, name, kind) VALUES (@id, @org_id, @name, @kind) RETURNING *;

-- name: AccountService :one
-- The account as which the API keys of an organization act.
SELECT * FROM flow.account WHERE org_id = @org_id AND kind = 'service';

-- name: AccountMe :one
SELECT a.id, a.name, a.kind, o.id AS org_id, o.name AS org_name
FROM flow.account a JOIN flow.organization o ON o.id = a.org_id
WHERE a.org_id = @org_id AND a.id = @id;

-- name: ApiKeyCreate :one
INSERT INTO flow.api_key (id, org_id, account_id, name, prefix, last_four, hash, role, scopes, created_by,
    created_by_key_id, expires_at)
VALUES (@id, @org_id, @account_id, @name, @prefix, @last_four, @hash, @role, @scopes, @created_by,
    sqlc.narg('created_by_key_id'),
    sqlc.narg('expires_at'))
RETURNING *;

-- name: ApiKeyMaker :one
-- What a key may do that makes another one. It cannot be revoked before the other one is there to be found.
SELECT k.role, k.scopes, k.expires_at, (flow.api_key_status(k.revoked_at, k.expires_at) = 'active')::boolean AS usable
FROM flow.api_key k WHERE k.org_id = @org_id AND k.id = @id
FOR SHARE;

-- name: ApiKeyAuth :one
-- Finds the key under any of the hashes (one per hash key in use) and says whether it may be used now, and why not.
SELECT k.id, k.org_id, k.account_id, k.hash, k.role, k.scopes, o.request_limits,
    (flow.api_key_status(k.revoked_at, k.expires_at) = 'active' AND o.status = 'active')::boolean AS usable,
    (CASE WHEN o.status <> 'active' THEN 'suspended' ELSE flow.api_key_status(k.revoked_at,
        k.expires_at) END)::text AS state,
    (k.last_used_at IS NULL OR k.last_used_at < flow.clock() - interval '1 minute')::boolean AS stale_use
FROM flow.api_key k JOIN flow.organization o ON o.id = k.org_id
WHERE k.hash = ANY (@hashes::bytea[])
LIMIT 1;

-- name: ApiKeyTouch :exec
-- At most one write per key and minute, however many replicas see it in use.
UPDATE flow.api_key SET last_used_at = flow.clock(), last_used_address = sqlc.narg('address')
WHERE org_id = @org_id AND id = @id AND (last_used_at IS NULL OR last_used_at < flow.clock() - interval '1 minute');

-- name: ApiKeyList :many
SELECT sqlc.embed(k), flow.api_key_status(k.revoked_at, k.expires_at)::text AS status
FROM flow.api_key k
WHERE k.org_id = @org_id AND k.id > @after
    AND (sqlc.narg('status')::text IS NULL OR flow.api_key_status(k.revoked_at, k.expires_at) = sqlc.narg('status'))
ORDER BY k.id OFFSET @skip LIMIT @max_rows;

-- name: ApiKeyCount :one
SELECT count(*) FROM flow.api_key k
WHERE k.org_id = @org_id
    AND (sqlc.narg('status')::text IS NULL OR flow.api_key_status(k.revoked_at, k.expires_at) = sqlc.narg('status'));

-- name: ApiKeyRevoke :execrows
-- Keeps the first time of revocation.
UPDATE flow.api_key SET revoked_at = coalesce(revoked_at, flow.clock()) WHERE org_id = @org_id AND id = @id;

-- name: ApiKeyRevokeMade :many
-- Revokes what these keys made, and says of each whether it was not revoked before. These must be revoked already, by
-- an earlier statement of the transaction: what they make then is there or refused.
WITH made AS (
    SELECT k.id, k.revoked_at IS NULL AS fresh FROM flow.api_key k
    WHERE k.org_id = @org_id AND k.created_by_key_id = ANY (@makers::uuid[])
    FOR UPDATE
), ended AS (
    UPDATE flow.api_key k SET revoked_at = flow.clock() FROM made WHERE k.org_id = @org_id AND k.id = made.id
        AND made.fresh
)
SELECT made.id, made.fresh::boolean AS fresh FROM made;

-- name: ApiKeyMade :many
-- What a key made, and what these made, oldest first.
WITH RECURSIVE made AS (
    SELECT k.id FROM flow.api_key k WHERE k.org_id = @org_id AND k.created_by_key_id = @id::uuid
    UNION ALL
    SELECT k.id FROM flow.api_key k JOIN made m ON k.created_by_key_id = m.id WHERE k.org_id = @org_id
)
SELECT sqlc.embed(k), flow.api_key_status(k.revoked_at, k.expires_at)::text AS status, count(*) OVER () AS total
FROM flow.api_key k JOIN made m ON m.id = k.id
WHERE k.org_id = @org_id
ORDER BY k.id LIMIT @max_rows;

-- name: ClockNow :one
SELECT flow.clock()::timestamptz AS now;

-- name: TokenAuth :one
-- The organization that a token names, by the identity provider's name for it or else by our id, and the account of its
-- subject there, if it was here before.
SELECT o.id AS org_id, o.request_limits,
    (o.status = 'active')::boolean AS usable, a.id AS account_id, a.name AS account_name
FROM flow.organization o
LEFT JOIN flow.account a ON a.org_id = o.id AND a.issuer = @issuer AND a.subject = @subject
WHERE o.external_id = @organization OR o.id = sqlc.narg('organization_id')
ORDER BY (o.external_id IS NOT DISTINCT FROM @organization) DESC LIMIT 1;

-- name: AccountOfSubject :one
-- Makes the account of a subject, or takes over its new name.
INSERT INTO flow.account (id, org_id, name, kind, issuer, subject) VALUES (@id, @org_id, @name, 'user', @issuer,
    @subject)
ON CONFLICT (org_id, issuer, subject) DO UPDATE SET name = excluded.name
RETURNING id;

-- name: StreamTokenAuth :one
-- Whether whoever asked for a stream token may still come in, what its key may read, and what time it is.
SELECT flow.clock()::timestamptz AS now, o.request_limits, k.scopes,
    (o.status = 'active' AND (sqlc.narg('key_id')::uuid IS NULL
        OR (k.id IS NOT NULL AND flow.api_key_status(k.revoked_at, k.expires_at) = 'active')))::boolean AS usable
FROM flow.organization o
JOIN flow.account a ON a.org_id = o.id AND a.id = @account_id
LEFT JOIN flow.api_key k ON k.org_id = o.id AND k.id = sqlc.narg('key_id')
WHERE o.id = @org_id;

-- name: MoveFind :one
-- Whether what any of these names is of has moved, and where to, or is on its way.
SELECT m.to_url, (m.moved_at IS NOT NULL)::boolean AS moved FROM flow.move_name n JOIN flow.move m USING (org_id)
WHERE n.name = ANY(@names::bytea[]) LIMIT 1;
