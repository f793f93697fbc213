-- name: RecordSetInsert :one
INSERT INTO flow.record_set (id, org_id, chunk_size, metadata, staging_expires_at)
VALUES (@id, @org_id, @chunk_size, @metadata, flow.clock() + make_interval(secs => @staging_seconds::float8))
RETURNING *;

-- name: RecordSetGet :one
-- An expired set is gone for its readers, whether it was reclaimed or not.
SELECT * FROM flow.record_set
WHERE org_id = @org_id AND id = @id AND (staging_expires_at IS NULL OR staging_expires_at > flow.clock());

-- name: RecordSetLock :one
-- As RecordSetGet, and holds the row until the transaction ends.
SELECT * FROM flow.record_set
WHERE org_id = @org_id AND id = @id AND (staging_expires_at IS NULL OR staging_expires_at > flow.clock())
FOR NO KEY UPDATE;

-- name: RecordSetList :many
-- In insertion order, between two ids.
SELECT * FROM flow.record_set
WHERE org_id = @org_id AND id BETWEEN @least AND @most AND (sqlc.narg('status')::text IS NULL
    OR status = sqlc.narg('status'))
    AND (staging_expires_at IS NULL OR staging_expires_at > flow.clock())
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY id LIMIT @max_rows OFFSET @skip_rows;

-- name: RecordSetListNewest :many
-- RecordSetList from the newest on.
SELECT * FROM flow.record_set
WHERE org_id = @org_id AND id BETWEEN @least AND @most AND (sqlc.narg('status')::text IS NULL
    OR status = sqlc.narg('status'))
    AND (staging_expires_at IS NULL OR staging_expires_at > flow.clock())
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY id DESC LIMIT @max_rows OFFSET @skip_rows;

-- name: RecordSetTotal :one
SELECT count(*) FROM flow.record_set
WHERE org_id = @org_id AND id BETWEEN @least AND @most AND (sqlc.narg('status')::text IS NULL
    OR status = sqlc.narg('status'))
    AND (staging_expires_at IS NULL OR staging_expires_at > flow.clock())
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'));

-- name: RecordSetReceive :one
-- Counts an accepted chunk; no row means that the set is not open any more.
UPDATE flow.record_set SET chunk_count = chunk_count + 1, received_count = received_count + @records::bigint,
    row_bytes = row_bytes + @row_bytes::bigint, updated_at = flow.clock(), staging_expires_at = flow.clock()
        + make_interval(secs => @staging_seconds::float8)
WHERE org_id = @org_id AND id = @id AND status = 'open' AND staging_expires_at > flow.clock()
RETURNING received_count;

-- name: RecordSetSeal :one
UPDATE flow.record_set SET status = 'sealed', expected_count = received_count, content_hash = @content_hash::text,
    sealed_at = flow.clock(), updated_at = flow.clock(),
    staging_expires_at = flow.clock() + make_interval(secs => @staging_seconds::float8)
WHERE org_id = @org_id AND id = @id AND status = 'open'
RETURNING *;

-- name: RecordSetConsume :one
UPDATE flow.record_set SET status = 'consumed', batch_id = @batch_id::uuid, staging_expires_at = NULL,
    updated_at = flow.clock()
WHERE org_id = @org_id AND id = @id AND status = 'sealed' AND staging_expires_at > flow.clock()
RETURNING received_count;

-- name: RecordSetLockStaged :one
-- Locks a set that nobody consumed, of any organization, and tells whether its staging has ended.
SELECT sqlc.embed(s), (s.staging_expires_at <= flow.clock())::boolean AS expired
FROM flow.record_set s WHERE id = @id AND status <> 'consumed'
FOR UPDATE;

-- name: RecordSetDelete :exec
DELETE FROM flow.record_set WHERE id = @id AND status <> 'consumed';

-- name: RecordSetErase :exec
-- Deletes a set that is not consumed; its rows are left to RowsErase.
WITH gone AS (DELETE FROM flow.record_set WHERE id = @id AND status <> 'consumed' RETURNING id, org_id)
INSERT INTO flow.erasure (batch_id, org_id, page_set) SELECT g.id, g.org_id, g.id FROM gone g;

-- name: ChunkGet :one
SELECT records, digest FROM flow.record_chunk WHERE record_set_id = @record_set_id AND chunk_index = @chunk_index;

-- name: ChunkInsert :exec
INSERT INTO flow.record_chunk (record_set_id, chunk_index, records, digest)
VALUES (@record_set_id, @chunk_index, @records, @digest);

-- name: ChunkList :many
SELECT chunk_index, records, digest FROM flow.record_chunk
WHERE record_set_id = @record_set_id AND chunk_index >= @from_index
ORDER BY chunk_index LIMIT @max_rows;

-- name: ChunkDelete :execrows
DELETE FROM flow.record_chunk d WHERE d.record_set_id = @record_set_id AND d.chunk_index IN (
    SELECT c.chunk_index FROM flow.record_chunk c WHERE c.record_set_id = @record_set_id ORDER BY c.chunk_index
        LIMIT @max_rows);

-- name: PageRead :many
-- From the table of pages, or from the row of the batch that has its only one there.
SELECT p.set_id, p.first, p.rows, p.raw_bytes, p.body
FROM (SELECT DISTINCT unnest(@set_ids::uuid[]) AS set_id, unnest(@firsts::bigint[]) AS first) n
CROSS JOIN LATERAL (
    SELECT x.set_id, x.first, x.rows, x.raw_bytes, x.body FROM flow.page x WHERE x.set_id = n.set_id
        AND x.first = n.first
    UNION ALL
    SELECT b.id, 0, b.record_count::int, b.page_bytes, b.page FROM flow.batch b WHERE b.id = n.set_id
        AND b.page IS NOT NULL AND n.first = 0
    OFFSET 0
) p
ORDER BY p.set_id, p.first;

-- name: PageFrom :one
-- The page with a row, or else the next one; it begins behind a position.
SELECT first, rows, raw_bytes, body FROM flow.page
WHERE set_id = @set_id AND first > @behind AND first + rows > @from_row::bigint ORDER BY first LIMIT 1;

-- name: PageDelete :execrows
-- The blobs of the set are left to the sweep with the first of them.
WITH blobs AS (
    UPDATE flow.blob b SET set_id = NULL, unnamed_at = flow.clock() WHERE b.set_id = @set_id
)
DELETE FROM flow.page d WHERE d.set_id = @set_id AND d.first IN (
    SELECT p.first FROM flow.page p WHERE p.set_id = @set_id ORDER BY p.first LIMIT @max_rows);
