-- name: SessionCreate :one
INSERT INTO flow.session (id, org_id, account_id, api_key_id, role, hash, opened, expires_at)
VALUES (@id, @org_id, @account_id, sqlc.narg('api_key_id'), @role, @hash, @opened,
    flow.clock() + make_interval(secs => @life_seconds::float8))
RETURNING expires_at;

-- name: SessionOpen :one
-- Follows a link, which works once: from now on the session has another text.
UPDATE flow.session SET hash = @hash, opened = true, last_used_at = flow.clock(),
    expires_at = flow.clock() + make_interval(secs => @life_seconds::float8)
WHERE org_id = @org_id AND id = @id AND NOT opened AND expires_at > flow.clock()
RETURNING expires_at;

-- name: SessionAuth :one
-- Finds the session under any of the hashes (one per hash key in use) and says whether it may be used now.
SELECT s.id, s.org_id, s.account_id, s.api_key_id, s.hash, s.opened, coalesce(k.role, s.role)::text AS role, k.scopes,
    o.request_limits,
    (o.status = 'active' AND s.expires_at > flow.clock()
        AND s.last_used_at > flow.clock() - make_interval(secs => @idle_seconds::float8)
        AND (s.api_key_id IS NULL OR flow.api_key_status(k.revoked_at, k.expires_at) = 'active'))::boolean AS usable,
    (s.last_used_at < flow.clock() - interval '1 minute')::boolean AS stale_use
FROM flow.session s
JOIN flow.organization o ON o.id = s.org_id
LEFT JOIN flow.api_key k ON k.org_id = s.org_id AND k.id = s.api_key_id
WHERE s.hash = ANY (@hashes::bytea[])
LIMIT 1;

-- name: SessionTouch :exec
-- At most one write per session and minute, however many replicas see it in use.
UPDATE flow.session SET last_used_at = flow.clock()
WHERE org_id = @org_id AND id = @id AND last_used_at < flow.clock() - interval '1 minute';

-- name: SessionEnd :many
-- Ends one session, or with everywhere all of its owner: of the same key, or of the same person.
DELETE FROM flow.session s USING flow.session own
WHERE own.org_id = @org_id AND own.id = @id AND s.org_id = @org_id
    AND (s.id = own.id OR @everywhere::boolean AND s.account_id = own.account_id AND s.api_key_id IS NOT DISTINCT
        FROM own.api_key_id)
RETURNING s.id;

-- name: HousekeepSessions :execrows
DELETE FROM flow.session WHERE id IN (
    SELECT s.id FROM flow.session s WHERE s.expires_at < (SELECT flow.clock()) ORDER BY s.expires_at LIMIT @max_rows
);
