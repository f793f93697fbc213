-- name: CredentialAdd :exec
INSERT INTO flow.credential (id, org_id, name, platform_id, auth_method, tenancy_id, grant_type, token_url,
    authorize_url, scopes, audience,
    placement_header, placement_scheme, placement_query, placement_cookie, aws_region, aws_service, aws_default_bucket,
        aws_endpoint_url, allowed_origins, status,
    created_by)
VALUES (@id, @org_id, @name, @platform_id, @auth_method, @tenancy_id, @grant_type, @token_url, @authorize_url, @scopes,
    @audience,
    @placement_header, @placement_scheme, @placement_query, @placement_cookie, @aws_region, @aws_service,
        @aws_default_bucket, @aws_endpoint_url, @allowed_origins, @status,
    @created_by);

-- name: CredentialGet :one
SELECT sqlc.embed(c), coalesce(d.account_number, '')::text AS account_number, coalesce(d.account_name,
    '')::text AS account_name,
    coalesce(t.label, '')::text AS label, t.limits AS account_limits, (d.org_id IS NOT NULL)::boolean AS manual
FROM flow.credential c LEFT JOIN flow.domain d ON d.tenancy_id = c.tenancy_id
LEFT JOIN flow.tenant t ON t.org_id = c.org_id AND t.tenancy_id = c.tenancy_id
WHERE c.org_id = @org_id AND c.id = @id AND c.deleted_at IS NULL;

-- name: CredentialList :many
-- In order of creation, between two ids. name is a pattern.
SELECT sqlc.embed(c), coalesce(d.account_number, '')::text AS account_number, coalesce(d.account_name,
    '')::text AS account_name,
    coalesce(t.label, '')::text AS label, t.limits AS account_limits, (d.org_id IS NOT NULL)::boolean AS manual
FROM flow.credential c LEFT JOIN flow.domain d ON d.tenancy_id = c.tenancy_id
LEFT JOIN flow.tenant t ON t.org_id = c.org_id AND t.tenancy_id = c.tenancy_id
WHERE c.org_id = @org_id AND c.deleted_at IS NULL AND c.id BETWEEN @least AND @most AND (sqlc.narg(status)::text IS NULL
    OR c.status = sqlc.narg(status))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR c.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR c.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('name')::text IS NULL OR lower(c.name) LIKE lower(sqlc.narg('name')))
    AND (sqlc.narg('platform_id')::text IS NULL OR c.platform_id = sqlc.narg('platform_id'))
ORDER BY c.id LIMIT @max_rows OFFSET @skip;

-- name: CredentialListNewest :many
-- CredentialList from the newest on.
SELECT sqlc.embed(c), coalesce(d.account_number, '')::text AS account_number, coalesce(d.account_name,
    '')::text AS account_name,
    coalesce(t.label, '')::text AS label, t.limits AS account_limits, (d.org_id IS NOT NULL)::boolean AS manual
FROM flow.credential c LEFT JOIN flow.domain d ON d.tenancy_id = c.tenancy_id
LEFT JOIN flow.tenant t ON t.org_id = c.org_id AND t.tenancy_id = c.tenancy_id
WHERE c.org_id = @org_id AND c.deleted_at IS NULL AND c.id BETWEEN @least AND @most AND (sqlc.narg(status)::text IS NULL
    OR c.status = sqlc.narg(status))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR c.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR c.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('name')::text IS NULL OR lower(c.name) LIKE lower(sqlc.narg('name')))
    AND (sqlc.narg('platform_id')::text IS NULL OR c.platform_id = sqlc.narg('platform_id'))
ORDER BY c.id DESC LIMIT @max_rows OFFSET @skip;

-- name: CredentialCount :one
SELECT count(*) FROM flow.credential c
WHERE c.org_id = @org_id AND c.deleted_at IS NULL AND c.id BETWEEN @least AND @most AND (sqlc.narg(status)::text IS NULL
    OR c.status = sqlc.narg(status))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR c.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR c.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('name')::text IS NULL OR lower(c.name) LIKE lower(sqlc.narg('name')))
    AND (sqlc.narg('platform_id')::text IS NULL OR c.platform_id = sqlc.narg('platform_id'));

-- name: CredentialLock :one
-- The secret's version comes along, so that a change can tell whether the secret is still the one that it looked at.
SELECT sqlc.embed(c), s.version
FROM flow.credential c JOIN flow.secret s ON s.org_id = c.org_id AND s.id = c.id
WHERE c.org_id = @org_id AND c.id = @id AND c.deleted_at IS NULL FOR UPDATE;

-- name: CredentialReplace :exec
UPDATE flow.credential
SET name = @name, auth_method = @auth_method, tenancy_id = @tenancy_id, grant_type = @grant_type,
    token_url = @token_url, authorize_url = @authorize_url, scopes = @scopes,
    audience = @audience, placement_header = @placement_header, placement_scheme = @placement_scheme,
        placement_query = @placement_query, placement_cookie = @placement_cookie,
    aws_region = @aws_region, aws_service = @aws_service, aws_default_bucket = @aws_default_bucket,
        aws_endpoint_url = @aws_endpoint_url,
    allowed_origins = @allowed_origins, status = @status,
    last_verified = CASE WHEN @rotated::boolean THEN NULL ELSE last_verified END, updated_at = flow.clock()
WHERE org_id = @org_id AND id = @id;

-- name: CredentialVerify :exec
-- A test that succeeded. A test that began earlier does not overwrite a later one.
UPDATE flow.credential
SET last_verified = greatest(last_verified, @verified_at::timestamptz), tenancy_id = coalesce(tenancy_id,
    sqlc.narg(tenancy_id)), updated_at = flow.clock()
WHERE org_id = @org_id AND id = @id;

-- name: CredentialForUse :one
SELECT sqlc.embed(c), s.version
FROM flow.credential c JOIN flow.secret s ON s.org_id = c.org_id AND s.id = c.id
WHERE c.org_id = @org_id AND c.id = @id AND c.deleted_at IS NULL;

-- name: CredentialUses :many
SELECT * FROM flow.credential_use WHERE org_id = @org_id AND credential_id = ANY(@ids::uuid[]);

-- name: CredentialStamp :exec
-- Later times win, whatever the order in which uses are reported. A credential that is gone gets no record.
INSERT INTO flow.credential_use AS u (org_id, credential_id, service_id, last_used_at, last_stamped_at,
    last_succeeded_at, last_failed_at, last_failure_class)
SELECT c.org_id, c.id, @service_id, @used_at::timestamptz, flow.clock(),
    CASE WHEN sqlc.narg(failure_class)::text IS NULL THEN @used_at END,
    CASE WHEN sqlc.narg(failure_class)::text IS NOT NULL THEN @used_at END, sqlc.narg(failure_class)
FROM flow.credential c WHERE c.org_id = @org_id AND c.id = @id AND c.deleted_at IS NULL
ON CONFLICT (credential_id, service_id) DO UPDATE
SET last_used_at = greatest(u.last_used_at, excluded.last_used_at), last_stamped_at = excluded.last_stamped_at,
    last_succeeded_at = greatest(u.last_succeeded_at, excluded.last_succeeded_at),
    last_failure_class = CASE WHEN u.last_failed_at IS NULL OR excluded.last_failed_at >= u.last_failed_at
        THEN excluded.last_failure_class ELSE u.last_failure_class END,
    last_failed_at = greatest(u.last_failed_at, excluded.last_failed_at);

-- name: CredentialLimit :exec
UPDATE flow.credential SET limits = sqlc.narg('limits')::jsonb, updated_at = flow.clock() WHERE org_id = @org_id
    AND id = @id;

-- name: CredentialsLimited :many
-- Those of these credentials whose owner limits them, or their account.
SELECT c.id FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@ids::uuid[]) AS id) k
JOIN flow.credential c ON c.org_id = k.org_id AND c.id = k.id
LEFT JOIN flow.tenant t ON t.org_id = c.org_id AND t.tenancy_id = c.tenancy_id
WHERE c.limits IS NOT NULL OR t.limits IS NOT NULL;

-- name: BudgetsLimit :exec
-- The budgets of a credential, or of an account. The caller holds the credential, or the tenant.
UPDATE flow.budget SET limits = sqlc.narg('limits')::jsonb WHERE domain = @domain;

-- name: CredentialUser :one
-- An active definition that names the credential. The caller holds the credential, so that no other can begin to.
SELECT d.id, d.name FROM flow.definition d JOIN flow.definition_version v ON v.definition_id = d.id
    AND v.version = d.version
WHERE d.org_id = @org_id AND d.status = 'active' AND d.deleted_at IS NULL AND EXISTS (
    SELECT FROM json_array_elements(v.doc -> 'steps') step, json_array_elements(step -> 'tasks') task
    WHERE task ->> 'credential_id' = @credential_id::text
)
ORDER BY d.id LIMIT 1;

-- name: CredentialDelete :exec
UPDATE flow.credential SET deleted_at = flow.clock(), updated_at = flow.clock() WHERE org_id = @org_id AND id = @id;

-- name: CredentialUsesDelete :exec
DELETE FROM flow.credential_use WHERE org_id = @org_id AND credential_id = @id;

-- name: TokenTurn :one
-- The row of a credential, locked; made where there is none. Tokens of an older secret are forgotten, but not their
-- count. The credential is locked first, as whoever replaces it does.
INSERT INTO flow.credential_token AS t (credential_id, org_id, of_version)
SELECT c.id, c.org_id, @of_version FROM flow.credential c WHERE c.org_id = @org_id AND c.id = @credential_id
    AND c.deleted_at IS NULL FOR KEY SHARE
ON CONFLICT (credential_id) DO UPDATE SET
    of_version = greatest(t.of_version, excluded.of_version),
    expires_at = CASE WHEN t.of_version >= excluded.of_version THEN t.expires_at END,
    asked_by = CASE WHEN t.of_version >= excluded.of_version THEN t.asked_by END,
    asked_until = CASE WHEN t.of_version >= excluded.of_version THEN t.asked_until END,
    failures = CASE WHEN t.of_version >= excluded.of_version THEN t.failures ELSE 0 END,
    retry_at = CASE WHEN t.of_version >= excluded.of_version THEN t.retry_at END,
    lost = t.of_version >= excluded.of_version AND t.lost,
    failure_class = CASE WHEN t.of_version >= excluded.of_version THEN t.failure_class END,
    failure = CASE WHEN t.of_version >= excluded.of_version THEN t.failure END
RETURNING sqlc.embed(t), greatest(coalesce(extract(epoch FROM t.expires_at - flow.clock()), 0),
    0)::double precision AS life,
    coalesce(t.asked_until > flow.clock(), false)::boolean AS asked, coalesce(t.retry_at > flow.clock(),
        false)::boolean AS resting;

-- name: TokenAsk :exec
UPDATE flow.credential_token SET asked_by = @asked_by::uuid, asked_until = flow.clock()
    + make_interval(secs => @lease::double precision)
WHERE org_id = @org_id AND credential_id = @credential_id;

-- name: TokenStored :exec
UPDATE flow.credential_token SET generation = generation + 1, expires_at = flow.clock()
    + make_interval(secs => @life::double precision),
    asked_by = NULL, asked_until = NULL, failures = 0, retry_at = NULL, lost = false, failure_class = NULL,
        failure = NULL
WHERE org_id = @org_id AND credential_id = @credential_id;

-- name: TokenFailed :exec
-- Twice as long a pause after each failure, a minute at most.
UPDATE flow.credential_token SET asked_by = NULL, asked_until = NULL, failures = failures + 1,
    retry_at = flow.clock() + make_interval(secs => least(power(2, least(failures, 6)), 60)),
    lost = @lost, failure_class = @failure_class::text, failure = @failure::text
WHERE org_id = @org_id AND credential_id = @credential_id AND asked_by = @asked_by::uuid;

-- name: CredentialTokens :many
-- Those of the credentials' present secrets.
SELECT sqlc.embed(t) FROM flow.credential_token t JOIN flow.secret s ON s.org_id = t.org_id AND s.id = t.credential_id
    AND s.version = t.of_version
WHERE t.org_id = @org_id AND t.credential_id = ANY(@ids::uuid[]);

-- name: CredentialTokenDelete :exec
DELETE FROM flow.credential_token WHERE org_id = @org_id AND credential_id = @credential_id;

-- name: AuthorizationAdd :one
-- Those that nobody came back with are cleared away by the next ones.
WITH gone AS (DELETE FROM flow.credential_authorization WHERE expires_at < flow.clock())
INSERT INTO flow.credential_authorization (state_hash, org_id, credential_id, of_version, account_id, api_key_id,
    redirect_uri, expires_at)
VALUES (@state_hash, @org_id, @credential_id, @of_version, @account_id, sqlc.narg('api_key_id'), @redirect_uri,
    flow.clock() + make_interval(secs => @life::double precision))
RETURNING expires_at;

-- name: AuthorizationTake :one
-- Found by the hash of its state alone: whoever brings the state back has no organization yet. What asked for it must
-- still be let in.
DELETE FROM flow.credential_authorization a WHERE a.state_hash = @state_hash
RETURNING *, (a.expires_at > flow.clock()
    AND EXISTS (SELECT FROM flow.organization o WHERE o.id = a.org_id AND o.status = 'active')
    AND NOT EXISTS (SELECT FROM flow.api_key k WHERE k.id = a.api_key_id AND (k.revoked_at IS NOT NULL
        OR k.expires_at <= flow.clock())))::boolean AS good;
