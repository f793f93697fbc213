-- name: WebhookAdd :exec
INSERT INTO flow.webhook (id, org_id, place, definition_id, description, mode, provider, input_template, dispatch_retry, rate_limit, enabled,
    secret_version, window_began_at, created_by, created_at, updated_at)
VALUES (@id, @org_id, @place, @definition_id, @description, @mode, @provider, sqlc.narg('input_template'), sqlc.narg('dispatch_retry'),
    sqlc.narg('rate_limit'), @enabled, @secret_version, @now, @created_by, @now, @now);

-- name: WebhookGet :one
SELECT * FROM flow.webhook WHERE org_id = @org_id AND id = @id AND deleted_at IS NULL;

-- name: WebhookList :many
-- In insertion order; `after` is the place of the last of the page before (all zeros for the first).
SELECT * FROM flow.webhook WHERE org_id = @org_id AND place > @after AND deleted_at IS NULL ORDER BY place LIMIT @max_rows;

-- name: WebhookCount :one
SELECT count(*) FROM flow.webhook WHERE org_id = @org_id AND deleted_at IS NULL;

-- name: WebhookLock :one
-- Locks a webhook of an organization. Deliveries to it wait.
SELECT * FROM flow.webhook WHERE org_id = @org_id AND id = @id AND deleted_at IS NULL FOR NO KEY UPDATE;

-- name: WebhookUpdate :exec
UPDATE flow.webhook SET definition_id = @definition_id, description = @description, input_template = sqlc.narg('input_template'),
    dispatch_retry = sqlc.narg('dispatch_retry'), rate_limit = sqlc.narg('rate_limit'), enabled = @enabled, updated_at = @now
WHERE org_id = @org_id AND id = @id;

-- name: WebhookRotate :exec
UPDATE flow.webhook SET secret_version = @secret_version, updated_at = @now WHERE org_id = @org_id AND id = @id;

-- name: WebhookDelete :exec
UPDATE flow.webhook SET enabled = false, updated_at = @now, deleted_at = @now WHERE org_id = @org_id AND id = @id;

-- name: WebhookNames :one
-- Whether a webhook names the definition.
SELECT EXISTS (SELECT FROM flow.webhook WHERE org_id = @org_id AND definition_id = @definition_id AND deleted_at IS NULL);
