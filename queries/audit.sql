-- name: AuditInsert :exec
-- An account, a key or a resource of zeros stands for none, and so does a name that is empty.
INSERT INTO flow.audit_log (id, org_id, created_at, account_id, api_key_id, resource_id, action, resource_type,
    resource_name, outcome, request_id)
SELECT unnest(@ids::uuid[]), unnest(@org_ids::uuid[]), (SELECT flow.clock()), nullif(unnest(@account_ids::uuid[]),
    '00000000-0000-0000-0000-000000000000'),
    nullif(unnest(@key_ids::uuid[]), '00000000-0000-0000-0000-000000000000'),
    nullif(unnest(@resource_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@actions::text[]),
    @resource_type::text, nullif(unnest(@resource_names::text[]), ''), 'succeeded', unnest(@request_ids::text[]);

-- name: AuditDenied :exec
-- One row a minute for each account, key and operation, so that nobody fills the log by knocking.
INSERT INTO flow.audit_log (id, org_id, created_at, account_id, api_key_id, action, outcome, request_id)
SELECT @id, @org_id, flow.clock(), @account_id, sqlc.narg('api_key_id'), @action, 'denied', @request_id
WHERE NOT EXISTS (
    SELECT 1 FROM flow.audit_log l
    WHERE l.org_id = @org_id AND l.account_id = @account_id AND l.action = @action AND l.outcome = 'denied'
        AND l.api_key_id IS NOT DISTINCT FROM sqlc.narg('api_key_id')
        AND l.created_at > (SELECT flow.clock()) - interval '1 minute');

-- name: AuditRefused :exec
INSERT INTO flow.audit_log (id, org_id, created_at, account_id, api_key_id, action, outcome, reason, address,
    request_id)
VALUES (@id, @org_id, flow.clock(), sqlc.narg('account_id'), sqlc.narg('api_key_id'), @action, 'refused', @reason::text,
    @address::text, @request_id);

-- name: AuditExport :many
-- Oldest first, from behind a place on.
SELECT sqlc.embed(l), a.name AS account_name, k.name AS key_name, k.prefix AS key_prefix, k.last_four AS key_last_four
FROM flow.audit_log l LEFT JOIN flow.account a ON a.org_id = l.org_id AND a.id = l.account_id
LEFT JOIN flow.api_key k ON k.org_id = l.org_id AND k.id = l.api_key_id
WHERE l.org_id = @org_id AND l.created_at >= @from_time AND (l.created_at, l.id) > (@after_time::timestamptz,
    @after_id::uuid) AND l.created_at < @to_time
ORDER BY l.created_at, l.id LIMIT @max_rows;

-- name: AuditList :many
-- Newest first, from before a place on. A place is (time, id): many rows may have one time.
SELECT sqlc.embed(l), a.name AS account_name, k.name AS key_name, k.prefix AS key_prefix, k.last_four AS key_last_four
FROM flow.audit_log l LEFT JOIN flow.account a ON a.org_id = l.org_id AND a.id = l.account_id
LEFT JOIN flow.api_key k ON k.org_id = l.org_id AND k.id = l.api_key_id
WHERE l.org_id = @org_id AND l.created_at >= @from_time AND (l.created_at, l.id) < (@before_time::timestamptz,
    @before_id::uuid)
    AND (sqlc.narg('account_id')::uuid IS NULL OR l.account_id = sqlc.narg('account_id'))
    AND (sqlc.narg('action')::text IS NULL OR l.action = sqlc.narg('action'))
    AND (sqlc.narg('outcome')::text IS NULL OR l.outcome = sqlc.narg('outcome'))
    AND (sqlc.narg('resource_type')::text IS NULL OR l.resource_type = sqlc.narg('resource_type'))
    AND (sqlc.narg('resource_id')::uuid IS NULL OR l.resource_id = sqlc.narg('resource_id'))
    AND (sqlc.narg('resource_name')::text IS NULL OR l.resource_name = sqlc.narg('resource_name'))
ORDER BY l.created_at DESC, l.id DESC LIMIT @max_rows;

-- name: AuditListOldest :many
-- Oldest first, from behind a place on.
SELECT sqlc.embed(l), a.name AS account_name, k.name AS key_name, k.prefix AS key_prefix, k.last_four AS key_last_four
FROM flow.audit_log l LEFT JOIN flow.account a ON a.org_id = l.org_id AND a.id = l.account_id
LEFT JOIN flow.api_key k ON k.org_id = l.org_id AND k.id = l.api_key_id
WHERE l.org_id = @org_id AND l.created_at >= @from_time AND (l.created_at, l.id) > (@after_time::timestamptz,
    @after_id::uuid) AND l.created_at < @to_time
    AND (sqlc.narg('account_id')::uuid IS NULL OR l.account_id = sqlc.narg('account_id'))
    AND (sqlc.narg('action')::text IS NULL OR l.action = sqlc.narg('action'))
    AND (sqlc.narg('outcome')::text IS NULL OR l.outcome = sqlc.narg('outcome'))
    AND (sqlc.narg('resource_type')::text IS NULL OR l.resource_type = sqlc.narg('resource_type'))
    AND (sqlc.narg('resource_id')::uuid IS NULL OR l.resource_id = sqlc.narg('resource_id'))
    AND (sqlc.narg('resource_name')::text IS NULL OR l.resource_name = sqlc.narg('resource_name'))
ORDER BY l.created_at, l.id LIMIT @max_rows;

-- name: AuditCount :one
SELECT count(*) FROM flow.audit_log l
WHERE l.org_id = @org_id AND l.created_at >= @from_time AND l.created_at < @to_time
    AND (sqlc.narg('account_id')::uuid IS NULL OR l.account_id = sqlc.narg('account_id'))
    AND (sqlc.narg('action')::text IS NULL OR l.action = sqlc.narg('action'))
    AND (sqlc.narg('outcome')::text IS NULL OR l.outcome = sqlc.narg('outcome'))
    AND (sqlc.narg('resource_type')::text IS NULL OR l.resource_type = sqlc.narg('resource_type'))
    AND (sqlc.narg('resource_id')::uuid IS NULL OR l.resource_id = sqlc.narg('resource_id'))
    AND (sqlc.narg('resource_name')::text IS NULL OR l.resource_name = sqlc.narg('resource_name'));
