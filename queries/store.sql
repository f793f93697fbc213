-- name: StoreAdd :one
INSERT INTO flow.store (id, org_id, name, fields, layers, created_by)
VALUES (@id, @org_id, @name, @fields, @layers, @created_by)
RETURNING *;

-- name: StoreStateAdd :exec
INSERT INTO flow.store_state (store_id, org_id) VALUES (@store_id, @org_id);

-- name: StoreLimit :one
-- Creations of one organization wait for each other, so that none passes the limit. What refers to the organization
-- does not wait.
SELECT id FROM flow.organization WHERE id = @org_id FOR NO KEY UPDATE;

-- name: StoreCount :one
SELECT count(*) FROM flow.store WHERE org_id = @org_id AND deleted_at IS NULL;

-- name: StoreGet :one
SELECT sqlc.embed(s), sqlc.embed(t)
FROM flow.store s JOIN flow.store_state t ON t.store_id = s.id
WHERE s.org_id = @org_id AND s.name = @name AND s.deleted_at IS NULL;

-- name: StoreList :many
-- In insertion order; `after` is the last id of the page before (all zeros for the first).
SELECT sqlc.embed(s), sqlc.embed(t)
FROM flow.store s JOIN flow.store_state t ON t.store_id = s.id
WHERE s.org_id = @org_id AND s.id > @after AND s.deleted_at IS NULL
ORDER BY s.id LIMIT @max_rows OFFSET @skip;

-- name: StoresNamed :many
SELECT * FROM flow.store WHERE org_id = @org_id AND name = ANY(@names::text[]) AND deleted_at IS NULL;

-- name: StoresShare :many
-- Keeps configurations as they are until the transaction ends. Writers of records do not wait for each other here.
SELECT * FROM flow.store WHERE org_id = @org_id AND name = ANY(@names::text[]) AND deleted_at IS NULL ORDER BY id
    FOR SHARE;

-- name: StoreShareByID :one
SELECT * FROM flow.store WHERE id = @id FOR SHARE;

-- name: StoreReplace :one
-- Waits for all who write records.
UPDATE flow.store SET fields = @fields, layers = @layers, config_version = config_version + 1, updated_at = flow.clock()
WHERE org_id = @org_id AND name = @name AND deleted_at IS NULL
RETURNING *;

-- name: StoreStateRestart :one
UPDATE flow.store_state SET resolved_upto = CASE WHEN records > 0 THEN '' END WHERE store_id = @store_id RETURNING *;

-- name: StoreDelete :one
UPDATE flow.store SET deleted_at = flow.clock() WHERE org_id = @org_id AND name = @name AND deleted_at IS NULL
    RETURNING id;

-- name: StoreRemove :exec
DELETE FROM flow.store WHERE id = @id;

-- name: StoreUsed :one
-- Whether the newest version of an active definition has a task of one of these actions that names the store.
SELECT EXISTS (
    SELECT FROM flow.definition d
    JOIN flow.definition_version v ON v.definition_id = d.id AND v.version = d.version
    CROSS JOIN LATERAL json_array_elements(v.doc -> 'steps') AS s (step)
    CROSS JOIN LATERAL json_array_elements(s.step -> 'tasks') AS t (task)
    WHERE d.org_id = @org_id AND d.status = 'active' AND d.deleted_at IS NULL
        AND t.task ->> 'action_id' = ANY(@actions::text[]) AND t.task -> 'params' ->> 'store' = @name::text);

-- name: StoreStateLock :many
-- Whoever adds or removes records waits for others who do, in one order.
SELECT * FROM flow.store_state WHERE store_id = ANY(@store_ids::uuid[]) ORDER BY store_id FOR UPDATE;

-- name: StoreStateCount :exec
UPDATE flow.store_state t SET records = t.records + d.added
FROM (SELECT unnest(@store_ids::uuid[]) AS store_id, unnest(@added::bigint[]) AS added) d
WHERE t.store_id = d.store_id;

-- name: StoreStateResolved :exec
UPDATE flow.store_state SET resolved_upto = sqlc.narg('resolved_upto') WHERE store_id = @store_id;

-- name: StoreRecordsKnown :many
-- Which of these records there are.
SELECT r.store_id, r.key
FROM (SELECT unnest(@store_ids::uuid[]) AS store_id, unnest(@keys::text[]) AS key) d
JOIN flow.store_record r ON r.org_id = @org_id AND r.store_id = d.store_id AND r.key = d.key;

-- name: StoreRecordsAt :many
SELECT r.*
FROM (SELECT unnest(@store_ids::uuid[]) AS store_id, unnest(@keys::text[]) AS key) d
JOIN flow.store_record r ON r.org_id = @org_id AND r.store_id = d.store_id AND r.key = d.key;

-- name: StoreRecordsResolved :many
-- As StoreRecordsAt, with layers only where a record is resolved by another configuration than its store's.
SELECT r.store_id, r.key, r.resolved, (CASE WHEN r.resolved_config_version <> s.config_version THEN r.layers::text
    ELSE '' END)::text AS layers
FROM (SELECT unnest(@store_ids::uuid[]) AS store_id, unnest(@keys::text[]) AS key) d
JOIN flow.store_record r ON r.org_id = @org_id AND r.store_id = d.store_id AND r.key = d.key
JOIN flow.store s ON s.id = r.store_id;

-- name: StoreRecordsLock :many
SELECT r.*
FROM flow.store_record r
WHERE r.org_id = @org_id AND (r.store_id, r.key) IN (SELECT unnest(@store_ids::uuid[]), unnest(@keys::text[]))
ORDER BY r.store_id, r.key FOR UPDATE;

-- name: StoreRecordsNext :many
-- The records of a store behind a key, by key.
SELECT r.*
FROM flow.store_record r
WHERE r.store_id = @store_id AND r.key > @after::text
ORDER BY r.key LIMIT @max_rows FOR UPDATE;

-- name: StoreRecordsPut :exec
-- Who adds records holds the store's state: no other can have added them.
INSERT INTO flow.store_record AS r (org_id, store_id, key, layers, resolved, terms, resolved_config_version, created_at,
    updated_at)
SELECT @org_id, d.store_id, d.key, d.layers::json, d.resolved::json, d.terms::uuid[], d.version, d.created_at,
    d.updated_at
FROM (SELECT unnest(@store_ids::uuid[]) AS store_id, unnest(@keys::text[]) AS key, unnest(@layers::text[]) AS layers,
        unnest(@resolved::text[]) AS resolved, unnest(@terms::text[]) AS terms, unnest(@versions::int[]) AS version,
        unnest(@created_ats::timestamptz[]) AS created_at, unnest(@updated_ats::timestamptz[]) AS updated_at) d
ON CONFLICT (store_id, key) DO UPDATE SET layers = excluded.layers, resolved = excluded.resolved,
    terms = excluded.terms,
    resolved_config_version = excluded.resolved_config_version, updated_at = excluded.updated_at;

-- name: StoreRecordDelete :exec
DELETE FROM flow.store_record WHERE store_id = @store_id AND key = @key;

-- name: StoreRecordsClear :execrows
DELETE FROM flow.store_record r
WHERE r.store_id = @store_id
    AND r.key IN (SELECT o.key FROM flow.store_record o WHERE o.store_id = @store_id ORDER BY o.key LIMIT @max_rows);

-- name: StoreRecordsByKey :many
SELECT key, resolved, resolved_config_version, created_at, updated_at FROM flow.store_record
WHERE org_id = @org_id AND store_id = @store_id AND key > @after::text
    AND (sqlc.narg('terms')::uuid[] IS NULL OR terms @> sqlc.narg('terms'))
ORDER BY key LIMIT @max_rows;

-- name: StoreRecordsByKeyDesc :many
SELECT key, resolved, resolved_config_version, created_at, updated_at FROM flow.store_record
WHERE org_id = @org_id AND store_id = @store_id AND (sqlc.narg('before')::text IS NULL OR key < sqlc.narg('before'))
    AND (sqlc.narg('terms')::uuid[] IS NULL OR terms @> sqlc.narg('terms'))
ORDER BY key DESC LIMIT @max_rows;

-- name: StoreRecordsByUpdate :many
-- A place is (time, key): many records may have one time.
SELECT key, resolved, resolved_config_version, created_at, updated_at FROM flow.store_record
WHERE org_id = @org_id AND store_id = @store_id AND (updated_at, key) > (@after_time::timestamptz, @after::text)
    AND (sqlc.narg('terms')::uuid[] IS NULL OR terms @> sqlc.narg('terms'))
ORDER BY updated_at, key LIMIT @max_rows;

-- name: StoreRecordsByUpdateDesc :many
SELECT key, resolved, resolved_config_version, created_at, updated_at FROM flow.store_record
WHERE org_id = @org_id AND store_id = @store_id AND (updated_at, key) < (@before_time::timestamptz, @before::text)
    AND (sqlc.narg('terms')::uuid[] IS NULL OR terms @> sqlc.narg('terms'))
ORDER BY updated_at DESC, key DESC LIMIT @max_rows;

-- name: StoreRecordsHit :many
-- As the four above, by way of all records that have the terms, in any of the orders. It costs what these are many; a
-- walk in one order may come to the end of the store before it has found enough of them.
WITH hits AS MATERIALIZED (
    SELECT h.key, h.updated_at FROM flow.store_record h WHERE h.org_id = @org_id AND h.store_id = @store_id
        AND h.terms @> @terms::uuid[]
)
SELECT r.key, r.resolved, r.resolved_config_version, r.created_at, r.updated_at
FROM (
    SELECT h.key FROM hits h
    WHERE @first::boolean OR CASE
        WHEN @by_update::boolean AND @descending::boolean THEN (h.updated_at, h.key) < (@at_time::timestamptz,
            @at_key::text)
        WHEN @by_update THEN (h.updated_at, h.key) > (@at_time, @at_key)
        WHEN @descending THEN h.key < @at_key
        ELSE h.key > @at_key END
    ORDER BY CASE WHEN @by_update AND NOT @descending THEN h.updated_at END, CASE WHEN @by_update
        AND @descending THEN h.updated_at END DESC,
        CASE WHEN NOT @descending THEN h.key END, CASE WHEN @descending THEN h.key END DESC
    LIMIT @max_rows
) p
JOIN flow.store_record r ON r.org_id = @org_id AND r.store_id = @store_id AND r.key = p.key
ORDER BY CASE WHEN @by_update AND NOT @descending THEN r.updated_at END, CASE WHEN @by_update
    AND @descending THEN r.updated_at END DESC,
    CASE WHEN NOT @descending THEN r.key END, CASE WHEN @descending THEN r.key END DESC;

-- name: StoreRecordsCount :one
SELECT count(*) FROM flow.store_record WHERE org_id = @org_id AND store_id = @store_id AND terms @> @terms::uuid[];
