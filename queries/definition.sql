-- name: CreateDefinition :one
INSERT INTO flow.definition (id, org_id, name, description, status, version, variable_set_id, created_by)
VALUES (@id, @org_id, @name, @description, @status, 1, @variable_set_id, @created_by)
RETURNING *;

-- name: CreateDefinitionVersion :one
INSERT INTO flow.definition_version (definition_id, version, org_id, doc, actions, created_by)
VALUES (@definition_id, @version, @org_id, @doc, coalesce(sqlc.narg('actions')::json, '{}'), @created_by)
RETURNING *;

-- name: Definition :one
-- The current version of one definition.
SELECT sqlc.embed(d), v.doc
FROM flow.definition d
JOIN flow.definition_version v ON v.definition_id = d.id AND v.version = d.version
WHERE d.org_id = @org_id AND d.id = @id AND d.deleted_at IS NULL;

-- name: DefinitionForUpdate :one
SELECT * FROM flow.definition WHERE org_id = @org_id AND id = @id AND deleted_at IS NULL FOR UPDATE;

-- name: DefinitionRow :one
SELECT * FROM flow.definition WHERE org_id = @org_id AND id = @id AND deleted_at IS NULL;

-- name: DefinitionForStart :one
-- Holds off changes and the deletion until the start is over; starts do not wait for each other.
SELECT * FROM flow.definition WHERE org_id = @org_id AND id = @id AND deleted_at IS NULL FOR KEY SHARE;

-- name: DefinitionsForStart :many
-- Those that are active, and that nobody changes just now: it waits for nobody. Not of organizations that go to another
-- cell: a transaction for several of them is not one of pg.WithOrg, which would be refused.
SELECT d.org_id, d.id, d.version FROM flow.definition d
WHERE (d.org_id, d.id) IN (SELECT unnest(@org_ids::uuid[]), unnest(@ids::uuid[])) AND d.deleted_at IS NULL
    AND d.status = 'active'
    AND NOT EXISTS (SELECT FROM flow.move m WHERE m.org_id = d.org_id AND m.closed_at IS NOT NULL OFFSET 0)
FOR KEY SHARE SKIP LOCKED;

-- name: Definitions :many
-- In insertion order, between two ids. name is a pattern.
SELECT sqlc.embed(d), v.doc
FROM flow.definition d
JOIN flow.definition_version v ON v.definition_id = d.id AND v.version = d.version
WHERE d.org_id = @org_id AND d.deleted_at IS NULL AND d.id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR d.status = sqlc.narg('status'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR d.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR d.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('name')::text IS NULL OR lower(d.name) LIKE lower(sqlc.narg('name')))
ORDER BY d.id LIMIT @row_limit OFFSET @row_offset;

-- name: DefinitionsNewest :many
-- Definitions from the newest on.
SELECT sqlc.embed(d), v.doc
FROM flow.definition d
JOIN flow.definition_version v ON v.definition_id = d.id AND v.version = d.version
WHERE d.org_id = @org_id AND d.deleted_at IS NULL AND d.id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR d.status = sqlc.narg('status'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR d.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR d.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('name')::text IS NULL OR lower(d.name) LIKE lower(sqlc.narg('name')))
ORDER BY d.id DESC LIMIT @row_limit OFFSET @row_offset;

-- name: CountDefinitions :one
SELECT count(*) FROM flow.definition d
WHERE d.org_id = @org_id AND d.deleted_at IS NULL AND d.id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR d.status = sqlc.narg('status'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR d.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR d.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('name')::text IS NULL OR lower(d.name) LIKE lower(sqlc.narg('name')));

-- name: UpdateDefinition :one
UPDATE flow.definition
SET name = @name, description = @description, status = @status, updated_at = flow.clock()
WHERE org_id = @org_id AND id = @id
RETURNING *;

-- name: ReplaceDefinition :one
UPDATE flow.definition
SET name = @name, description = @description, status = @status, version = @version, variable_set_id = @variable_set_id,
    updated_at = flow.clock()
WHERE org_id = @org_id AND id = @id
RETURNING *;

-- name: DefinitionHasLiveBatch :one
SELECT EXISTS (
    SELECT FROM flow.batch_count c JOIN flow.batch b ON b.id = c.batch_id
    WHERE c.org_id = @org_id AND c.status IN ('queued', 'running', 'paused') AND b.definition_id = @definition_id
);

-- name: DeleteDefinition :exec
UPDATE flow.definition SET deleted_at = flow.clock(), updated_at = flow.clock(), variable_set_id = NULL
WHERE org_id = @org_id AND id = @id;

-- name: DefinitionVersion :one
-- Also of a deleted definition: its batches stay readable.
SELECT * FROM flow.definition_version WHERE org_id = @org_id AND definition_id = @definition_id AND version = @version;

-- name: DefinitionVersions :many
-- Oldest first; `after` is the last version of the page before (0 for the first).
SELECT * FROM flow.definition_version
WHERE org_id = @org_id AND definition_id = @definition_id AND version > @after
ORDER BY version
LIMIT @row_limit OFFSET @row_offset;

-- name: CountDefinitionVersions :one
SELECT count(*) FROM flow.definition_version WHERE org_id = @org_id AND definition_id = @definition_id;

-- name: DefinitionCredentials :many
-- What a definition must know of the credentials that it names.
SELECT id, platform_id, status FROM flow.credential WHERE org_id = @org_id AND id = ANY(@ids::uuid[])
    AND deleted_at IS NULL;

-- name: CredentialsHold :many
-- Keeps credentials from being deleted until the transaction ends.
SELECT id FROM flow.credential WHERE org_id = @org_id AND id = ANY(@ids::uuid[]) AND deleted_at IS NULL ORDER BY id
    FOR KEY SHARE;
