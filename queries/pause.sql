-- Pauses that people open, what they cover, the lists of all pauses, and the backoffs that the dispatcher opens.
-- flow.clock() says what time it is.

-- name: PauseGateShare :exec
-- Lets no pause of these organizations be opened or extended until the claim that reads pauses after this has ended.
SELECT pg_advisory_xact_lock_shared(hashtextextended('pause ' || o, 0)) FROM unnest(@org_ids::uuid[]) o;

-- name: PauseGateTake :exec
-- Waits for the claims of an organization that may have read pauses, and keeps others from doing so.
SELECT pg_advisory_xact_lock(hashtextextended('pause ' || @org_id::uuid, 0));

-- name: PausesCount :one
-- How many active pauses of its people an organization has, but for those of batches.
SELECT count(*) FROM flow.pause WHERE org_id = @org_id AND status = 'active' AND operator IS NULL
    AND scope IN ('global', 'domain', 'lane');

-- name: PauseInsert :one
INSERT INTO flow.pause (id, org_id, scope, domain, lane, batch_id, cause, reason, operator, created_by, created_at,
    expires_at)
VALUES (@id, @org_id, @scope, @domain, @lane, @batch_id, @cause, @reason, @operator, @created_by, @created_at,
    @expires_at)
RETURNING *;

-- name: PauseOfBatch :one
SELECT * FROM flow.pause WHERE batch_id = @batch_id::uuid AND org_id = @org_id::uuid AND scope = 'batch'
    AND status = 'active';

-- name: PauseOfOperator :one
-- Whether the operator of the service pauses an organization for a reason.
SELECT EXISTS (SELECT FROM flow.pause WHERE org_id = @org_id::uuid AND operator = @operator::text
    AND status = 'active');

-- name: PauseGet :one
SELECT * FROM flow.pause WHERE id = @id;

-- name: PauseLock :one
SELECT * FROM flow.pause WHERE id = @id FOR UPDATE;

-- name: PauseRead :one
-- A pause that an organization sees: its own, and the backoffs of the accounts that it knows.
SELECT sqlc.embed(h), (SELECT flow.clock())::timestamptz AS now FROM flow.pause h
WHERE h.id = @id AND (h.org_id = @org_id::uuid
    OR h.scope = 'bucket' AND EXISTS (SELECT FROM flow.tenant t WHERE t.org_id = @org_id::uuid
        AND t.tenancy_id = h.domain));

-- name: PauseExtend :one
UPDATE flow.pause SET expires_at = @expires_at::timestamptz, extensions = @extensions WHERE id = @id RETURNING *;

-- name: PauseEnd :exec
-- Releases a pause whose time is over.
UPDATE flow.pause SET status = 'released', released_at = @released_at::timestamptz WHERE id = @id;

-- name: PausesRelease :many
-- Releases the active pauses of one target: of the organization, of a Domain, or of a lane of a Domain. Its people
-- release none of the operator, and the operator none of theirs.
UPDATE flow.pause p SET status = 'released', released_at = flow.clock(), released_by = sqlc.narg('released_by')::uuid
WHERE p.org_id = @org_id::uuid AND p.scope = @scope AND p.domain IS NOT DISTINCT FROM sqlc.narg('domain')
    AND p.lane IS NOT DISTINCT FROM sqlc.narg('lane')::flow.lane
    AND p.status = 'active' AND p.scope IN ('global', 'domain', 'lane') AND p.ends_at > flow.clock()
    AND p.operator IS NOT DISTINCT FROM sqlc.narg('operator')
RETURNING *;

-- name: PausesOfDomainRelease :many
-- Releases the pauses of an organization on a Domain that goes, and on its lanes.
UPDATE flow.pause SET status = 'released', released_at = flow.clock(), released_by = sqlc.narg('released_by')::uuid
WHERE org_id = @org_id::uuid AND domain = @domain::text AND scope IN ('domain', 'lane') AND status = 'active'
    AND ends_at > flow.clock()
RETURNING *;

-- name: PausesOfBatchRelease :many
UPDATE flow.pause SET status = 'released', released_at = @now::timestamptz, released_by = sqlc.narg('released_by')::uuid
WHERE batch_id = @batch_id::uuid AND scope = 'batch' AND status = 'active'
RETURNING *;

-- name: PauseBudgets :many
-- The budgets in which an organization's work waits that a pause covered.
SELECT DISTINCT q.domain, q.bucket FROM flow.batch_count b
CROSS JOIN LATERAL (SELECT l.* FROM flow.lane_batch l WHERE l.batch_id = b.batch_id OFFSET 0) q
WHERE b.org_id = @org_id AND b.status IN ('queued', 'running') AND q.open AND q.ready_parts > 0
    AND (sqlc.narg('domain')::text IS NULL OR q.domain = sqlc.narg('domain')) AND (sqlc.narg('lane')::flow.lane IS NULL
        OR q.lane = sqlc.narg('lane'))
ORDER BY q.domain, q.bucket;

-- name: PauseList :many
-- A page of the pauses that an organization sees, its own and the backoffs of the accounts that it knows, behind one of
-- them. reach is how many rows to pass over and to read together. What is expired covers nothing any more, whoever has
-- written that down; but a batch is paused until that is done.
SELECT sqlc.embed(f) FROM (
    (SELECT o.id, k.at FROM flow.pause o CROSS JOIN LATERAL (SELECT CASE WHEN @by_end::boolean THEN o.ends_at
        ELSE o.created_at END AS at) k
    WHERE o.org_id = @org_id::uuid AND (sqlc.narg('scope')::text IS NULL OR o.scope = sqlc.narg('scope'))
        AND (sqlc.narg('domain')::text IS NULL OR o.domain = sqlc.narg('domain'))
        AND (@released::boolean OR o.status = 'active' AND (o.scope = 'batch' OR o.ends_at > @now::timestamptz))
        AND (NOT @behind::boolean OR (k.at, o.id) > (@after_at::timestamptz, @after_id::uuid))
    ORDER BY k.at, o.id LIMIT @reach::int)
    UNION ALL
    (SELECT b.id, b.at FROM flow.tenant t CROSS JOIN LATERAL (
        SELECT p.id, k.at FROM flow.pause p CROSS JOIN LATERAL (SELECT CASE WHEN @by_end::boolean THEN p.ends_at
            ELSE p.created_at END AS at) k
        WHERE p.domain = t.tenancy_id AND p.scope = 'bucket' AND (@released::boolean OR p.status = 'active'
            AND p.ends_at > @now::timestamptz)
            AND (NOT @behind::boolean OR (k.at, p.id) > (@after_at::timestamptz, @after_id::uuid))
        ORDER BY k.at, p.id LIMIT @reach::int
    ) b
    WHERE t.org_id = @org_id::uuid AND (sqlc.narg('scope')::text IS NULL OR sqlc.narg('scope') = 'bucket')
        AND (sqlc.narg('domain')::text IS NULL OR t.tenancy_id = sqlc.narg('domain')))
) h JOIN flow.pause f ON f.id = h.id
ORDER BY h.at, h.id LIMIT @max_rows::int OFFSET @skip_rows::int;

-- name: PauseListDescending :many
-- As above, in the other order.
SELECT sqlc.embed(f) FROM (
    (SELECT o.id, k.at FROM flow.pause o CROSS JOIN LATERAL (SELECT CASE WHEN @by_end::boolean THEN o.ends_at
        ELSE o.created_at END AS at) k
    WHERE o.org_id = @org_id::uuid AND (sqlc.narg('scope')::text IS NULL OR o.scope = sqlc.narg('scope'))
        AND (sqlc.narg('domain')::text IS NULL OR o.domain = sqlc.narg('domain'))
        AND (@released::boolean OR o.status = 'active' AND (o.scope = 'batch' OR o.ends_at > @now::timestamptz))
        AND (NOT @behind::boolean OR (k.at, o.id) < (@after_at::timestamptz, @after_id::uuid))
    ORDER BY k.at DESC, o.id DESC LIMIT @reach::int)
    UNION ALL
    (SELECT b.id, b.at FROM flow.tenant t CROSS JOIN LATERAL (
        SELECT p.id, k.at FROM flow.pause p CROSS JOIN LATERAL (SELECT CASE WHEN @by_end::boolean THEN p.ends_at
            ELSE p.created_at END AS at) k
        WHERE p.domain = t.tenancy_id AND p.scope = 'bucket' AND (@released::boolean OR p.status = 'active'
            AND p.ends_at > @now::timestamptz)
            AND (NOT @behind::boolean OR (k.at, p.id) < (@after_at::timestamptz, @after_id::uuid))
        ORDER BY k.at DESC, p.id DESC LIMIT @reach::int
    ) b
    WHERE t.org_id = @org_id::uuid AND (sqlc.narg('scope')::text IS NULL OR sqlc.narg('scope') = 'bucket')
        AND (sqlc.narg('domain')::text IS NULL OR t.tenancy_id = sqlc.narg('domain')))
) h JOIN flow.pause f ON f.id = h.id
ORDER BY h.at DESC, h.id DESC LIMIT @max_rows::int OFFSET @skip_rows::int;

-- name: PauseTotal :one
SELECT ((SELECT count(*) FROM flow.pause o
    WHERE o.org_id = @org_id::uuid AND (sqlc.narg('scope')::text IS NULL OR o.scope = sqlc.narg('scope'))
        AND (sqlc.narg('domain')::text IS NULL OR o.domain = sqlc.narg('domain'))
        AND (@released::boolean OR o.status = 'active' AND (o.scope = 'batch' OR o.ends_at > @now::timestamptz)))
    + (SELECT count(*) FROM flow.tenant t JOIN flow.pause p ON p.domain = t.tenancy_id
    WHERE t.org_id = @org_id::uuid AND p.scope = 'bucket' AND (@released::boolean OR p.status = 'active'
        AND p.ends_at > @now::timestamptz)
        AND (sqlc.narg('scope')::text IS NULL OR sqlc.narg('scope') = 'bucket')
        AND (sqlc.narg('domain')::text IS NULL OR t.tenancy_id = sqlc.narg('domain'))))::bigint AS total;

-- name: PausesOfBatch :many
-- The newest pauses that a batch has or had, none of which is older than it.
SELECT * FROM flow.pause WHERE org_id = @org_id AND scope = 'batch' AND created_at >= @since AND batch_id = @batch_id
ORDER BY created_at DESC, id DESC LIMIT @most;

-- name: PausesCover :many
-- The queues of these batches that active pauses of people cover. Those of batches are not read: the batch says that it
-- is paused.
SELECT q.batch_id, q.step_no, q.task_no FROM flow.lane_batch q
WHERE q.batch_id = ANY(@batch_ids::uuid[]) AND q.domain = @domain AND q.bucket = @bucket
    AND EXISTS (SELECT FROM flow.pauses_over(q.org_id, q.domain, q.lane));

-- name: LanesPaused :one
-- Whether active pauses of people cover one of these lanes of organizations in an account.
SELECT EXISTS (SELECT FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@lanes::text[])::flow.lane AS lane) k
    WHERE EXISTS (SELECT FROM flow.pauses_over(k.org_id, @domain::text, k.lane)))::boolean AS paused;

-- name: BackoffOpen :exec
-- Opens the automatic backoff of a budget, or extends the one that is open.
INSERT INTO flow.pause (id, scope, domain, bucket, cause, reason, created_at, expires_at)
VALUES (@id, 'bucket', @domain::text, @bucket::text, @cause, @reason::text, flow.clock(), @expires_at::timestamptz)
ON CONFLICT (domain, bucket) WHERE status = 'active' AND scope = 'bucket'
DO UPDATE SET expires_at = greatest(pause.expires_at, excluded.expires_at);

-- name: BackoffsExpire :exec
-- Ends the backoffs of an account whose time is over: a budget may have no pass of its own.
UPDATE flow.pause SET status = 'released', released_at = expires_at
WHERE domain = @domain::text AND scope = 'bucket' AND status = 'active' AND expires_at <= (SELECT flow.clock());
