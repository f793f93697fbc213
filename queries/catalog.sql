-- name: CatalogGeneration :one
SELECT generation FROM flow.catalog_state WHERE org_id = @org_id;

-- name: CatalogTurn :one
-- Raises the generation. Imports of one organization wait for each other here.
INSERT INTO flow.catalog_state AS s (org_id, generation) VALUES (@org_id, 1)
ON CONFLICT (org_id) DO UPDATE SET generation = s.generation + 1
RETURNING generation;

-- name: CatalogHold :one
-- Keeps imports of the organization away until the transaction ends.
SELECT generation FROM flow.catalog_state WHERE org_id = @org_id FOR SHARE;

-- name: CatalogImportedAt :one
-- When the version of a platform that counts was imported; long ago for one that is not.
SELECT coalesce(max(created_at), 'epoch'::timestamptz)::timestamptz AS imported_at
FROM flow.catalog_import WHERE org_id = @org_id AND platform_id = @platform_id;

-- name: CatalogFiles :many
-- The newest version of each platform.
SELECT DISTINCT ON (platform_id) platform_id, version, file
FROM flow.catalog_import WHERE org_id = @org_id
ORDER BY platform_id, version DESC;

-- name: CatalogImportAdd :one
INSERT INTO flow.catalog_import (org_id, platform_id, version, name, file, document_digest, options, report, services,
    actions,
    operations, skipped, left_out, created_by)
VALUES (@org_id, @platform_id, @version, @name, @file, @document_digest, @options, @report, @services, @actions,
    @operations, @skipped, @left_out, @created_by)
RETURNING created_at;

-- name: CatalogImportTrim :exec
DELETE FROM flow.catalog_import WHERE org_id = @org_id AND platform_id = @platform_id AND version <= @up_to;

-- name: CatalogImportDelete :execrows
DELETE FROM flow.catalog_import WHERE org_id = @org_id AND platform_id = @platform_id;

-- name: CatalogImportSize :one
SELECT count(*) AS platforms, coalesce(sum(octet_length(file)), 0)::bigint AS bytes
FROM (SELECT DISTINCT ON (platform_id) platform_id, file FROM flow.catalog_import
    WHERE org_id = @org_id ORDER BY platform_id, version DESC) AS newest
WHERE platform_id <> @except_id;

-- name: CatalogImportCount :one
SELECT count(DISTINCT platform_id) FROM flow.catalog_import WHERE org_id = @org_id;

-- name: CatalogImportList :many
-- The newest version of each platform, by id; `after` is the last id of the page before.
SELECT DISTINCT ON (platform_id) platform_id, version, name, document_digest, options, report, services, actions,
    operations, skipped,
    left_out, created_by, created_at
FROM flow.catalog_import WHERE org_id = @org_id AND platform_id > @after
ORDER BY platform_id, version DESC
LIMIT @max_rows OFFSET @skip;

-- name: CatalogImportVersions :many
-- Every version that is kept, newest first.
SELECT platform_id, version, name, document_digest, options, report, services, actions, operations, skipped,
    left_out, created_by, created_at
FROM flow.catalog_import WHERE org_id = @org_id AND platform_id = @platform_id
ORDER BY version DESC;

-- name: CatalogCredential :one
-- A credential of the platform, whose secret goes wherever the platform's services are.
SELECT id FROM flow.credential WHERE org_id = @org_id AND platform_id = @platform_id AND deleted_at IS NULL LIMIT 1;

-- name: CatalogActionUsed :one
-- A task of one of the actions, in the newest version of an active definition or in a version that an open batch runs.
WITH used AS (
    SELECT d.id AS definition_id, d.version FROM flow.definition d
    WHERE d.org_id = @org_id AND d.deleted_at IS NULL AND d.status = 'active'
    UNION
    SELECT b.definition_id, b.version FROM flow.batch_count c JOIN flow.batch b ON b.id = c.batch_id
    WHERE c.org_id = @org_id AND c.status IN ('queued', 'running', 'paused')
)
SELECT v.definition_id, k.key::text AS action_id
FROM used u
JOIN flow.definition_version v ON v.definition_id = u.definition_id AND v.version = u.version
CROSS JOIN LATERAL json_object_keys(v.actions) AS k (key)
WHERE v.org_id = @org_id AND k.key = ANY(@actions::text[])
ORDER BY v.definition_id, k.key LIMIT 1;
