-- name: BlobInsert :execrows
-- Names an object that was begun to be written not too long ago; else the sweep may have taken it for left over
-- already.
INSERT INTO flow.blob (id, org_id, set_id, bytes)
SELECT @id::uuid, @org_id::uuid, @set_id::uuid, @bytes::bigint WHERE flow.clock() < @name_until::timestamptz;

-- name: BlobsClaim :execrows
-- Takes objects that nothing names for the sweep. One that an upload is naming just now waits for its commit, and is
-- not taken then. Those of organizations that are not here belong to others, as do those that another cell has made of
-- one that went there, and has the same store: the last three digits of an id are its cell.
INSERT INTO flow.blob (id, org_id, bytes, unnamed_at)
SELECT k.id, k.org_id, 0, flow.clock()
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@org_ids::uuid[]) AS org_id) k JOIN flow.organization o
    ON o.id = k.org_id
WHERE NOT EXISTS (SELECT FROM flow.move m WHERE m.org_id = o.id AND m.moved_at IS NOT NULL
    AND right(k.id::text, 3) <> (SELECT lpad(to_hex(c.no::int), 3, '0') FROM flow.cell c))
ORDER BY k.id
ON CONFLICT (id) DO NOTHING;

-- name: BlobsUnnamed :many
-- Objects that nothing has named for so long.
SELECT b.id, b.org_id FROM flow.blob b WHERE b.unnamed_at < flow.clock() - make_interval(secs => @grace_seconds::float8)
ORDER BY b.unnamed_at LIMIT @max_rows;

-- name: BlobsForget :execrows
-- Objects that are gone.
DELETE FROM flow.blob b WHERE b.id = ANY(@ids::uuid[]) AND b.unnamed_at IS NOT NULL;

-- name: BlobsForgetOrg :execrows
-- Rows of an organization of which every object is gone.
DELETE FROM flow.blob b WHERE b.org_id = @org_id;

-- name: BlobsOfOrg :one
SELECT EXISTS (SELECT FROM flow.blob b WHERE b.org_id = @org_id);

-- name: BlobsMoved :one
-- Whether an organization went to another cell, which may have the same store.
SELECT EXISTS (SELECT FROM flow.move m WHERE m.org_id = @org_id AND m.moved_at IS NOT NULL);

-- name: BlobsAny :one
SELECT EXISTS (SELECT FROM flow.blob);
