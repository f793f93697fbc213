-- name: UsageCount :exec
-- Adds calls to a day. Its rows are locked in order.
INSERT INTO flow.usage AS u (org_id, day, definition_id, credential_id, action_id, calls, records)
SELECT d.org_id, @day::date, d.definition_id, d.credential_id, d.action_id, sum(d.calls), sum(d.records)
FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@definition_ids::uuid[]) AS definition_id,
    unnest(@credential_ids::uuid[]) AS credential_id,
        unnest(@action_ids::text[]) AS action_id, unnest(@calls::bigint[]) AS calls,
            unnest(@records::bigint[]) AS records) d
GROUP BY d.org_id, d.definition_id, d.credential_id, d.action_id ORDER BY d.org_id, d.definition_id, d.credential_id,
    d.action_id
ON CONFLICT (org_id, day, definition_id, credential_id, action_id) DO UPDATE SET calls = u.calls + excluded.calls,
    records = u.records + excluded.records;

-- name: UsageCalls :many
-- Calls and their records from one day to another, by day, definition, credential or action.
SELECT (CASE @group_by::text WHEN 'day' THEN u.day::text WHEN 'definition' THEN u.definition_id::text
    WHEN 'credential' THEN u.credential_id::text
        ELSE u.action_id END)::text AS key,
    sum(u.calls)::bigint AS calls, sum(u.records)::bigint AS records
FROM flow.usage u WHERE u.org_id = @org_id AND u.day BETWEEN @from_day::date AND @to_day::date
GROUP BY 1;

-- name: UsageBatches :many
-- Batches that were started between two times and their records, by day or definition.
SELECT (CASE @group_by::text WHEN 'day' THEN ((f.hour AT TIME ZONE 'UTC')::date)::text
    ELSE f.definition_id::text END)::text AS key,
    sum(f.batches)::bigint AS batches, sum(f.jobs)::bigint AS jobs
FROM flow.figures(@org_id, @from_time, @to_time, true) f
GROUP BY 1;

-- name: UsageBatchesByTask :many
-- The same by what the tasks of their definitions name: credential or action. A batch counts once for each.
WITH started AS (
    SELECT f.definition_id, f.version, sum(f.batches) AS batches, sum(f.jobs) AS jobs
    FROM flow.figures(@org_id, @from_time, @to_time, true) f
    GROUP BY f.definition_id, f.version
), named AS (
    SELECT DISTINCT s.definition_id, s.version, s.batches, s.jobs,
        CASE @group_by::text WHEN 'credential' THEN t.task->>'credential_id' ELSE t.task->>'action_id' END AS key
    FROM started s
    JOIN flow.definition_version v ON v.definition_id = s.definition_id AND v.version = s.version
    CROSS JOIN LATERAL json_array_elements(v.doc->'steps') AS p(step)
    CROSS JOIN LATERAL json_array_elements(p.step->'tasks') AS t(task)
)
SELECT coalesce(key, '00000000-0000-0000-0000-000000000000')::text AS key, sum(batches)::bigint AS batches,
    sum(jobs)::bigint AS jobs FROM named GROUP BY 1;

-- name: UsageDefinitionNames :many
SELECT id, name FROM flow.definition WHERE org_id = @org_id AND id = ANY(@ids::uuid[]) AND deleted_at IS NULL;

-- name: UsageCredentialNames :many
SELECT id, name FROM flow.credential WHERE org_id = @org_id AND id = ANY(@ids::uuid[]) AND deleted_at IS NULL;

-- name: DashboardSeries :many
-- Batches that were started since a time, with the sums of their counters in the order of the job statuses, by interval
-- and status.
SELECT date_bin(make_interval(secs => @interval_seconds::float8), f.hour,
    @from_time::timestamptz)::timestamptz AS starts_at,
    f.status, sum(f.batches)::bigint AS batches,
    ARRAY[sum(f.staged), sum(f.queued), sum(f.pending), sum(f.started), sum(f.needs_reconcile), sum(f.completed),
        sum(f.failed),
        sum(f.cancelled), sum(f.accepted), sum(f.rejected), sum(f.unprocessed), sum(f.unresolved)]::bigint[] AS jobs
FROM flow.figures(@org_id, @from_time, @to_time, @sums) f
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: DashboardDefinitions :many
-- Of the definitions whose batches were started since a time: the slowest, then those that failed most.
WITH sums AS MATERIALIZED (
    SELECT f.definition_id, sum(f.batches)::bigint AS batches, sum(f.jobs)::bigint AS jobs,
        sum(f.completed + f.accepted)::bigint AS succeeded, sum(f.failed + f.rejected)::bigint AS failed,
        sum(f.timed)::bigint AS ended,
        coalesce(sum(f.seconds) / nullif(sum(f.timed), 0), 0)::float8 AS average_seconds,
        coalesce(max(f.most_seconds), 0)::float8 AS max_seconds
    FROM flow.figures(@org_id, @from_time, @to_time, @sums) f
    GROUP BY f.definition_id
), slow AS (
    SELECT * FROM sums WHERE ended > 0 ORDER BY average_seconds DESC, definition_id LIMIT @most
), failing AS (
    SELECT * FROM sums WHERE failed > 0 ORDER BY failed DESC, definition_id LIMIT @most
)
SELECT true AS slow, slow.* FROM slow UNION ALL SELECT false AS slow, failing.* FROM failing;

-- name: DashboardPauses :many
-- The active pauses that an organization sees, as in the list of pauses: its own, and the backoffs of its accounts.
-- Newest first.
SELECT sqlc.embed(h), count(*) OVER () AS total FROM flow.pause h
WHERE h.status = 'active' AND (h.org_id = @org_id AND (h.scope = 'batch' OR h.ends_at > (SELECT flow.clock()))
    OR h.scope = 'bucket' AND h.ends_at > (SELECT flow.clock()) AND h.domain IN (SELECT t.tenancy_id FROM flow.tenant t
        WHERE t.org_id = @org_id))
ORDER BY h.created_at DESC, h.id DESC LIMIT @most;
