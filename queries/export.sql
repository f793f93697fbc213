-- What the export of an organization walks along. The tables themselves are found in the catalog of Postgres.

-- name: ExportSets :many
-- Record sets behind an id, about how many rows each has in other tables, and where its pages are.
SELECT s.id, s.chunk_count AS size, s.id AS pages FROM flow.record_set s WHERE s.org_id = @org_id AND s.id > @behind
    ORDER BY s.id LIMIT @max_rows;

-- name: ExportBatches :many
SELECT b.id, b.record_count AS size, coalesce(b.page_set, b.id)::uuid AS pages FROM flow.batch b
WHERE b.org_id = @org_id AND b.id > @behind
    ORDER BY b.id LIMIT @max_rows;

-- name: ExportBatchesBrought :many
-- As ExportBatches: those that brought their records, which are those of no record set and no other batch.
SELECT b.id, b.record_count AS size, coalesce(b.page_set, b.id)::uuid AS pages FROM flow.batch b
WHERE b.org_id = @org_id AND b.id > @behind AND b.retry_of IS NULL AND NOT EXISTS (SELECT FROM flow.record_set s
    WHERE s.id = b.page_set)
ORDER BY b.id LIMIT @max_rows;

-- name: ExportFiles :one
-- How many files of records and of results an export has.
SELECT ((SELECT count(*) FROM flow.record_set s WHERE s.org_id = @org_id)
    + (SELECT count(*) FROM flow.batch b WHERE b.org_id = @org_id)
    + (SELECT count(*) FROM flow.batch b WHERE b.org_id = @org_id AND b.retry_of IS NULL AND NOT EXISTS (SELECT
        FROM flow.record_set s WHERE s.id = b.page_set)))::bigint AS files;

-- name: ExportIsThere :one
-- Whether a batch or a record set is there for its readers: its rows may go once it is not.
SELECT (EXISTS (SELECT FROM flow.batch b WHERE b.id = @id AND b.org_id = @org_id)
    OR EXISTS (SELECT FROM flow.record_set s WHERE s.id = @id AND s.org_id = @org_id
        AND (s.staging_expires_at IS NULL OR s.staging_expires_at > flow.clock())))::boolean AS is_there;
