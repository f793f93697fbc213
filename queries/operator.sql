-- What an operator does from the command line, across organizations.

-- name: OrgList :many
SELECT o.*, (SELECT count(*) FROM flow.api_key k WHERE k.org_id = o.id AND flow.api_key_status(k.revoked_at,
    k.expires_at) = 'active') AS active_keys
FROM flow.organization o ORDER BY o.id;

-- name: OrgOldestByName :one
SELECT * FROM flow.organization WHERE name = @name ORDER BY id LIMIT 1;

-- name: OrgSetStatus :one
-- No row for one that is deleted, or on its way there, or to another cell; what is left of one that went is deleted.
UPDATE flow.organization SET status = @status WHERE id = @id AND (status IN ('active', 'suspended')
    OR status = 'moved' AND @status = 'deleting') RETURNING *;

-- name: OrgSetBudget :one
UPDATE flow.organization SET start_budget = @start_budget WHERE id = @id RETURNING *;

-- name: OrgSetRequestLimits :one
-- Sets limits of operations, and takes away those that are null.
UPDATE flow.organization SET request_limits = jsonb_strip_nulls(request_limits || @request_limits)
WHERE id = @id RETURNING *;

-- name: OrgBatches :one
SELECT count(*) FROM flow.batch WHERE org_id = @org_id;

-- name: OrgLink :one
-- Sets the identity provider's name for an organization; null takes it away.
UPDATE flow.organization SET external_id = sqlc.narg('external_id') WHERE id = @id RETURNING *;

-- name: OrgGet :one
SELECT * FROM flow.organization WHERE id = @id;

-- name: OrgsOfPauseLock :exec
-- Waits for those who make organizations: each has seen what holds everything, or is seen by who reads organizations
-- after this.
SELECT pg_advisory_xact_lock(hashtextextended('pause everything', 0));

-- name: OrgsOfPauseShare :exec
-- Keeps who holds or releases everything from reading organizations until who makes one has ended.
SELECT pg_advisory_xact_lock_shared(hashtextextended('pause everything', 0));

-- name: PauseOfEverything :one
-- Why every organization is held; no row where that is not so.
SELECT coalesce(p.reason, '')::text FROM flow.pause p JOIN flow.organization o ON o.id = p.org_id
WHERE p.operator = @operator::text AND p.status = 'active'
ORDER BY p.created_at DESC LIMIT 1;

-- name: OrgsOfPause :many
-- The organizations that a command of the operator holds, or that it does not hold yet.
SELECT o.id FROM flow.organization o
WHERE @held::boolean = EXISTS (SELECT FROM flow.pause p WHERE p.org_id = o.id AND p.operator = @operator::text
    AND p.status = 'active')
ORDER BY o.id;

-- The page of operators shows each view of ops as it is: rows as JSON, whose members are in the order of the columns.

-- name: OpsQueue :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.queue ORDER BY waiting_records DESC LIMIT @most) v;

-- name: OpsCalls :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.call_in_flight ORDER BY oldest_age DESC LIMIT @most) v;

-- name: OpsUnknown :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.unknown_outcome ORDER BY age DESC LIMIT @most) v;

-- name: OpsPauses :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.pause ORDER BY age DESC LIMIT @most) v;

-- name: OpsBudgets :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.budget_window ORDER BY exhausted DESC NULLS LAST, remaining
    LIMIT @most) v;

-- name: OpsRetries :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.retry_storm ORDER BY retries DESC LIMIT @most) v;

-- name: OpsLate :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.due_late ORDER BY late DESC LIMIT @most) v;

-- name: OpsDue :many
-- All due work by its kind: flow.due has a row for each thing that waits, not for each record.
SELECT row_to_json(v) FROM (
    SELECT d.kind, count(*) AS rows, count(*) FILTER (WHERE d.leased) AS leased,
        count(*) FILTER (WHERE d.failures > 0) AS failing,
        min(d.due_at) FILTER (WHERE NOT d.leased) AS next_at
    FROM flow.due d GROUP BY d.kind ORDER BY d.kind LIMIT @most
) v;

-- name: OpsJobs :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.river_backlog ORDER BY queue, state LIMIT @most) v;

-- name: OpsHolders :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.xmin_holder ORDER BY xmin_age DESC LIMIT @most) v;

-- name: OpsRetention :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.retention_debt ORDER BY overdue DESC NULLS LAST, kind LIMIT @most) v;

-- name: OpsReplication :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.replication ORDER BY behind_bytes DESC NULLS LAST LIMIT @most) v;

-- name: OpsTables :many
SELECT row_to_json(v) FROM (SELECT * FROM ops.table_health ORDER BY table_bytes + index_bytes DESC LIMIT @most) v;

-- name: OpsComments :many
-- What the views of ops and their columns say; the column is empty for a view as a whole.
SELECT c.relname::text AS view_name, coalesce(a.attname, '')::text AS column_name, d.description
FROM pg_catalog.pg_description d
JOIN pg_catalog.pg_class c ON c.oid = d.objoid AND d.classoid = 'pg_catalog.pg_class'::regclass
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND d.objsubid > 0
WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'ops');

-- What processes show as metrics of the whole installation, and read at most every few seconds.

-- name: OpsQueueMetrics :many
SELECT lane, sum(waiting_records)::bigint AS records, sum(paused_records)::bigint AS paused,
    coalesce(extract(epoch FROM max(oldest_age)), 0)::float8 AS oldest_seconds
FROM ops.queue GROUP BY lane;

-- name: OpsBudgetMetrics :many
-- Of the windows that are open: how many there are, how many are exhausted, and what the emptiest has left of its cap.
SELECT bucket, window_seconds, count(*) AS windows, count(*) FILTER (WHERE exhausted) AS exhausted,
    min(greatest(remaining, 0)::float8 / cap)::float8 AS least_left
FROM ops.budget_window WHERE cap > 0 GROUP BY bucket, window_seconds;

-- name: OpsUnknownMetrics :many
SELECT state, (CASE WHEN age < interval '1 minute' THEN '1m' WHEN age < interval '10 minutes' THEN '10m'
    WHEN age < interval '1 hour' THEN '1h' WHEN age < interval '1 day' THEN '1d' ELSE 'older' END)::text AS age,
    count(*) AS calls
FROM ops.unknown_outcome GROUP BY 1, 2;

-- name: OpsSnapshotAge :one
-- For how long, in seconds, the oldest open transaction has kept vacuum from its work.
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(began_at)), 0)::float8 FROM ops.xmin_holder;

-- name: OpsTableBytes :many
-- Bytes by table, its partitions, indexes and large values with it, of those that have a mebibyte.
SELECT coalesce(pg_partition_root(c.oid), c.oid)::regclass::text AS name,
    sum(pg_total_relation_size(c.oid))::bigint AS bytes
FROM pg_catalog.pg_class c WHERE c.relnamespace IN ('flow'::regnamespace, 'river'::regnamespace) AND c.relkind = 'r'
GROUP BY 1 HAVING sum(pg_total_relation_size(c.oid)) >= 1048576;
