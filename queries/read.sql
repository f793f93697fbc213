-- name: BatchList :many
-- In insertion order, between two ids. record_set_id is null where the trigger brought its own rows.
SELECT sqlc.embed(b), sqlc.embed(c), r.id AS record_set_id
FROM flow.batch b
JOIN flow.batch_count c ON c.batch_id = b.id AND c.org_id = b.org_id
LEFT JOIN flow.record_set r ON r.id = b.page_set AND r.org_id = b.org_id
WHERE b.org_id = @org_id AND b.id BETWEEN @least AND @most AND c.batch_id BETWEEN @least AND @most
    AND (sqlc.narg('status')::flow.batch_status IS NULL OR c.status = sqlc.narg('status'))
    AND (sqlc.narg('definition_id')::uuid IS NULL OR b.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('schedule_id')::uuid IS NULL OR c.schedule_id = sqlc.narg('schedule_id'))
    AND (sqlc.narg('trigger_type')::text IS NULL OR b.trigger_type = sqlc.narg('trigger_type'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
ORDER BY b.id LIMIT @max_rows OFFSET @skip_rows;

-- name: BatchListNewest :many
-- BatchList from the newest on.
SELECT sqlc.embed(b), sqlc.embed(c), r.id AS record_set_id
FROM flow.batch b
JOIN flow.batch_count c ON c.batch_id = b.id AND c.org_id = b.org_id
LEFT JOIN flow.record_set r ON r.id = b.page_set AND r.org_id = b.org_id
WHERE b.org_id = @org_id AND b.id BETWEEN @least AND @most AND c.batch_id BETWEEN @least AND @most
    AND (sqlc.narg('status')::flow.batch_status IS NULL OR c.status = sqlc.narg('status'))
    AND (sqlc.narg('definition_id')::uuid IS NULL OR b.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('schedule_id')::uuid IS NULL OR c.schedule_id = sqlc.narg('schedule_id'))
    AND (sqlc.narg('trigger_type')::text IS NULL OR b.trigger_type = sqlc.narg('trigger_type'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
ORDER BY b.id DESC LIMIT @max_rows OFFSET @skip_rows;

-- name: BatchesMeant :many
-- The newest batches that one action on many means, with how many it means. None that completed can be meant, which an
-- index leaves out.
SELECT b.id, count(*) OVER () AS matched
FROM flow.batch b
JOIN flow.batch_count c ON c.batch_id = b.id AND c.org_id = b.org_id
WHERE b.org_id = @org_id AND b.id BETWEEN @least AND @most AND c.batch_id BETWEEN @least AND @most
    AND c.status <> 'completed' AND c.status = ANY(CAST(@statuses::text[] AS flow.batch_status[]))
    AND (sqlc.narg('ids')::uuid[] IS NULL OR b.id = ANY(sqlc.narg('ids')::uuid[]))
    AND (sqlc.narg('definition_id')::uuid IS NULL OR b.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('schedule_id')::uuid IS NULL OR c.schedule_id = sqlc.narg('schedule_id'))
    AND (sqlc.narg('trigger_type')::text IS NULL OR b.trigger_type = sqlc.narg('trigger_type'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
ORDER BY b.id DESC LIMIT @max_rows;

-- name: BatchRead :one
-- IS TRUE keeps the organization out of the choice of an index: where most have few batches, one by organization looks
-- as good as the primary key, and is read to its end for who has many.
SELECT sqlc.embed(b), sqlc.embed(c), r.id AS record_set_id
FROM flow.batch b
JOIN flow.batch_count c ON c.batch_id = b.id
LEFT JOIN flow.record_set r ON r.id = b.page_set AND (r.org_id = b.org_id) IS TRUE
WHERE b.id = @id AND (b.org_id = @org_id) IS TRUE;

-- name: BatchesRead :many
-- Several batches, each of its organization.
SELECT sqlc.embed(b), sqlc.embed(c), r.id AS record_set_id
FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@ids::uuid[]) AS id) d
JOIN flow.batch b ON b.id = d.id AND (b.org_id = d.org_id) IS TRUE
JOIN flow.batch_count c ON c.batch_id = b.id
LEFT JOIN flow.record_set r ON r.id = b.page_set AND (r.org_id = b.org_id) IS TRUE;

-- name: BatchCountsRead :many
-- The counters of several batches, each of its organization.
SELECT sqlc.embed(c)
FROM (SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@ids::uuid[]) AS id) d
JOIN flow.batch_count c ON c.batch_id = d.id AND (c.org_id = d.org_id) IS TRUE;

-- name: BatchTotal :one
-- Only the table is read that has what is filtered by: nothing is left of the join with the other one. Nor is anything
-- left of bounds that bound nothing: entries are counted of whichever index is the smallest, and compared with nothing.
SELECT count(*) FROM flow.batch b LEFT JOIN flow.batch_count c ON c.batch_id = b.id AND c.org_id = b.org_id
WHERE b.org_id = @org_id
    AND (@least::uuid = '00000000-0000-0000-0000-000000000000' OR b.id >= @least)
    AND (@most::uuid = 'ffffffff-ffff-ffff-ffff-ffffffffffff' OR b.id <= @most)
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
    AND (sqlc.narg('status')::flow.batch_status IS NULL OR c.status = sqlc.narg('status'))
    AND (sqlc.narg('definition_id')::uuid IS NULL OR b.definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('schedule_id')::uuid IS NULL OR c.schedule_id = sqlc.narg('schedule_id'))
    AND (sqlc.narg('trigger_type')::text IS NULL OR b.trigger_type = sqlc.narg('trigger_type'));

-- name: BatchTotalOfState :one
-- As BatchTotal, where nothing is asked for but status or schedule.
SELECT count(*) FROM flow.batch_count c
WHERE c.org_id = @org_id
    AND (sqlc.narg('status')::flow.batch_status IS NULL OR c.status = sqlc.narg('status'))
    AND (sqlc.narg('schedule_id')::uuid IS NULL OR c.schedule_id = sqlc.narg('schedule_id'));

-- name: BatchTotalCompleted :one
-- As BatchTotalOfState for the status that its index leaves out: all but those with another one.
SELECT ((SELECT count(*) FROM flow.batch b WHERE b.org_id = @org_id)
    - (SELECT count(*) FROM flow.batch_count c WHERE c.org_id = @org_id AND c.status <> 'completed'))::bigint AS total;

-- name: BatchIDs :many
-- Batches between two ids that have jobs that match, in insertion order, from the one on that has the match behind
-- skip_jobs others: with how many they have, and how many those before them have. It matches what has one of these
-- statuses, which batches that are over may or may not have (in_...); with every, all. Ended runs count with those that
-- are asked for. of_begun and begun correct for some batches what the counters say. Nothing is left of the join with
-- the counters where every is true.
SELECT r.id, r.matching, r.before FROM (
    SELECT d.id, d.matching,
        ((sum(d.matching) OVER (ORDER BY d.id ROWS UNBOUNDED PRECEDING))::bigint - d.matching)::bigint AS before
    FROM (
        SELECT b.id, (CASE WHEN @every::boolean THEN b.record_count ELSE
                CASE WHEN 'staged' = ANY(@statuses::text[]) THEN c.staged ELSE 0 END
                + CASE WHEN 'queued' = ANY(@statuses::text[]) THEN c.queued ELSE 0 END
                + CASE WHEN 'pending' = ANY(@statuses::text[]) THEN c.pending ELSE 0 END
                + CASE WHEN 'started' = ANY(@statuses::text[]) THEN c.started ELSE 0 END
                + CASE WHEN 'needs_reconcile' = ANY(@statuses::text[]) THEN c.needs_reconcile ELSE 0 END
                + CASE WHEN 'completed' = ANY(@statuses::text[]) THEN c.completed ELSE 0 END
                + CASE WHEN 'failed' = ANY(@statuses::text[]) THEN c.failed ELSE 0 END
                + CASE WHEN 'cancelled' = ANY(@statuses::text[]) THEN c.cancelled ELSE 0 END
                + CASE WHEN 'accepted' = ANY(@statuses::text[]) THEN c.accepted ELSE 0 END
                + CASE WHEN 'rejected' = ANY(@statuses::text[]) THEN c.rejected ELSE 0 END
                + CASE WHEN 'unprocessed' = ANY(@statuses::text[]) THEN c.unprocessed ELSE 0 END
                + CASE WHEN 'unresolved' = ANY(@statuses::text[]) THEN c.unresolved ELSE 0 END END
            + CASE WHEN @ended_runs::boolean THEN (SELECT count(*) FROM flow.ended_run r WHERE r.org_id = b.org_id
                AND r.batch_id = b.id) ELSE 0 END
            + coalesce(x.begun, 0))::bigint AS matching
        FROM flow.batch b
        LEFT JOIN flow.batch_count c ON c.batch_id = b.id AND c.org_id = b.org_id
            AND c.batch_id BETWEEN @from_id AND @to_id
        LEFT JOIN (SELECT unnest(@of_begun::uuid[]) AS id, unnest(@begun::bigint[]) AS begun) x ON x.id = b.id
        WHERE b.org_id = @org_id AND b.id BETWEEN @from_id AND @to_id
            AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
            AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
            AND (@every::boolean OR @ended_runs::boolean OR c.status = ANY(ARRAY['queued', 'running', 'paused',
                CASE WHEN @in_completed::boolean THEN 'completed'::flow.batch_status ELSE 'queued' END,
                CASE WHEN @in_failed::boolean THEN 'failed'::flow.batch_status ELSE 'queued' END,
                CASE WHEN @in_failed::boolean THEN 'partially_failed'::flow.batch_status ELSE 'queued' END,
                CASE WHEN @in_cancelled::boolean THEN 'cancelled'::flow.batch_status ELSE 'queued' END]))
    ) d WHERE d.matching > 0
) r WHERE r.before + r.matching > @skip_jobs::bigint ORDER BY r.id LIMIT @max_rows;

-- name: BatchIDsNewest :many
-- BatchIDs from the newest on: those before a batch are the ones behind it.
SELECT r.id, r.matching, r.before FROM (
    SELECT d.id, d.matching,
        ((sum(d.matching) OVER (ORDER BY d.id DESC ROWS UNBOUNDED PRECEDING))::bigint - d.matching)::bigint AS before
    FROM (
        SELECT b.id, (CASE WHEN @every::boolean THEN b.record_count ELSE
                CASE WHEN 'staged' = ANY(@statuses::text[]) THEN c.staged ELSE 0 END
                + CASE WHEN 'queued' = ANY(@statuses::text[]) THEN c.queued ELSE 0 END
                + CASE WHEN 'pending' = ANY(@statuses::text[]) THEN c.pending ELSE 0 END
                + CASE WHEN 'started' = ANY(@statuses::text[]) THEN c.started ELSE 0 END
                + CASE WHEN 'needs_reconcile' = ANY(@statuses::text[]) THEN c.needs_reconcile ELSE 0 END
                + CASE WHEN 'completed' = ANY(@statuses::text[]) THEN c.completed ELSE 0 END
                + CASE WHEN 'failed' = ANY(@statuses::text[]) THEN c.failed ELSE 0 END
                + CASE WHEN 'cancelled' = ANY(@statuses::text[]) THEN c.cancelled ELSE 0 END
                + CASE WHEN 'accepted' = ANY(@statuses::text[]) THEN c.accepted ELSE 0 END
                + CASE WHEN 'rejected' = ANY(@statuses::text[]) THEN c.rejected ELSE 0 END
                + CASE WHEN 'unprocessed' = ANY(@statuses::text[]) THEN c.unprocessed ELSE 0 END
                + CASE WHEN 'unresolved' = ANY(@statuses::text[]) THEN c.unresolved ELSE 0 END END
            + CASE WHEN @ended_runs::boolean THEN (SELECT count(*) FROM flow.ended_run r WHERE r.org_id = b.org_id
                AND r.batch_id = b.id) ELSE 0 END
            + coalesce(x.begun, 0))::bigint AS matching
        FROM flow.batch b
        LEFT JOIN flow.batch_count c ON c.batch_id = b.id AND c.org_id = b.org_id
            AND c.batch_id BETWEEN @from_id AND @to_id
        LEFT JOIN (SELECT unnest(@of_begun::uuid[]) AS id, unnest(@begun::bigint[]) AS begun) x ON x.id = b.id
        WHERE b.org_id = @org_id AND b.id BETWEEN @from_id AND @to_id
            AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
            AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
            AND (@every::boolean OR @ended_runs::boolean OR c.status = ANY(ARRAY['queued', 'running', 'paused',
                CASE WHEN @in_completed::boolean THEN 'completed'::flow.batch_status ELSE 'queued' END,
                CASE WHEN @in_failed::boolean THEN 'failed'::flow.batch_status ELSE 'queued' END,
                CASE WHEN @in_failed::boolean THEN 'partially_failed'::flow.batch_status ELSE 'queued' END,
                CASE WHEN @in_cancelled::boolean THEN 'cancelled'::flow.batch_status ELSE 'queued' END]))
    ) d WHERE d.matching > 0
) r WHERE r.before + r.matching > @skip_jobs::bigint ORDER BY r.id DESC LIMIT @max_rows;

-- name: JobTotal :one
-- How many jobs match of an organization's batches between two ids, as in BatchIDs.
SELECT coalesce(sum(CASE WHEN @every::boolean THEN b.record_count ELSE
        CASE WHEN 'staged' = ANY(@statuses::text[]) THEN c.staged ELSE 0 END
        + CASE WHEN 'queued' = ANY(@statuses::text[]) THEN c.queued ELSE 0 END
        + CASE WHEN 'pending' = ANY(@statuses::text[]) THEN c.pending ELSE 0 END
        + CASE WHEN 'started' = ANY(@statuses::text[]) THEN c.started ELSE 0 END
        + CASE WHEN 'needs_reconcile' = ANY(@statuses::text[]) THEN c.needs_reconcile ELSE 0 END
        + CASE WHEN 'completed' = ANY(@statuses::text[]) THEN c.completed ELSE 0 END
        + CASE WHEN 'failed' = ANY(@statuses::text[]) THEN c.failed ELSE 0 END
        + CASE WHEN 'cancelled' = ANY(@statuses::text[]) THEN c.cancelled ELSE 0 END
        + CASE WHEN 'accepted' = ANY(@statuses::text[]) THEN c.accepted ELSE 0 END
        + CASE WHEN 'rejected' = ANY(@statuses::text[]) THEN c.rejected ELSE 0 END
        + CASE WHEN 'unprocessed' = ANY(@statuses::text[]) THEN c.unprocessed ELSE 0 END
        + CASE WHEN 'unresolved' = ANY(@statuses::text[]) THEN c.unresolved ELSE 0 END END), 0)::bigint AS total
FROM flow.batch b LEFT JOIN flow.batch_count c ON c.batch_id = b.id AND c.org_id = b.org_id
    AND c.batch_id BETWEEN @from_id AND @to_id
WHERE b.org_id = @org_id AND b.id BETWEEN @from_id AND @to_id
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR b.created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR b.created_at < sqlc.narg('created_before'))
    AND (@every::boolean OR c.status = ANY(ARRAY['queued', 'running', 'paused',
        CASE WHEN @in_completed::boolean THEN 'completed'::flow.batch_status ELSE 'queued' END,
        CASE WHEN @in_failed::boolean THEN 'failed'::flow.batch_status ELSE 'queued' END,
        CASE WHEN @in_failed::boolean THEN 'partially_failed'::flow.batch_status ELSE 'queued' END,
        CASE WHEN @in_cancelled::boolean THEN 'cancelled'::flow.batch_status ELSE 'queued' END]));

-- name: JobTotalOfAll :one
-- All jobs of an organization: JobTotal without anything to compare.
SELECT coalesce(sum(record_count), 0)::bigint AS total FROM flow.batch WHERE org_id = @org_id;

-- name: BegunBatches :many
-- Batches between two ids that are under way and have queued jobs that were worked on before, or may have been: how
-- many stand past their first step, and the slices at it for which something was done, so that they must be looked at.
-- No slice behind the last one that has a fragment is one of those, which rules most out.
SELECT b.batch_id AS id, s.begun, s.mixed::int[] AS mixed
FROM flow.batch_count b
CROSS JOIN LATERAL (SELECT max(f.slice_no) AS no FROM flow.fragment f WHERE f.batch_id = b.batch_id OFFSET 0) l
CROSS JOIN LATERAL (
    SELECT coalesce(sum(a.queued) FILTER (WHERE a.step_no > a.first_step), 0)::bigint AS begun,
        coalesce(array_agg(a.no ORDER BY a.no) FILTER (WHERE a.step_no = a.first_step AND a.no <= l.no
            AND EXISTS (SELECT FROM flow.fragment f WHERE f.batch_id = a.batch_id AND f.slice_no = a.no)),
                '{}') AS mixed
    FROM flow.slice a WHERE a.batch_id = b.batch_id AND a.queued > 0 OFFSET 0
) s
WHERE b.org_id = @org_id AND b.batch_id BETWEEN @from_id AND @to_id AND b.status IN ('running', 'paused')
    AND b.started_at IS NOT NULL AND b.stopped_at IS NULL
    AND (s.begun > 0 OR cardinality(s.mixed) > 0)
    AND (sqlc.narg('created_after')::timestamptz IS NULL AND sqlc.narg('created_before')::timestamptz IS NULL
        OR EXISTS (SELECT FROM flow.batch a WHERE a.id = b.batch_id
        AND (sqlc.narg('created_after') IS NULL OR a.created_at >= sqlc.narg('created_after'))
        AND (sqlc.narg('created_before') IS NULL OR a.created_at < sqlc.narg('created_before'))))
ORDER BY b.batch_id;

-- name: SliceAt :one
-- The slice that holds a position.
SELECT coalesce(flow.slice_at(@batch_id::uuid, @place::bigint), 0)::int AS no;

-- name: SlicesFrom :many
-- Slices of batches, each from a number on and so many at most, that can have jobs in any of these statuses, with how
-- many by their counters; i is the batch, from 0. Of a batch that is over it is over_statuses, because its slices count
-- as waiting what will never be sent. begun narrows what is queued: 'yes' to slices in which something was done
-- already, 'no' to those at their first step, '' to nothing. With ended runs those count too.
SELECT w.i::int AS i, d.no, d.first, d.records, d.state, d.step_no, d.detached, d.page_off, d.first_step, d.tasks_done,
    d.matching::bigint AS matching
FROM (
    SELECT b.i, b.batch_id, b.from_no, CASE WHEN b.over THEN @over_statuses::text[]
        ELSE @statuses::text[] END AS statuses, CASE WHEN b.over THEN '' ELSE @begun::text END AS begun,
        (@ended_runs::boolean AND EXISTS (SELECT FROM flow.ended_run r WHERE r.org_id = @org_id
            AND r.batch_id = b.batch_id)) AS ended_runs
    FROM (SELECT generate_series(0, cardinality(@batch_ids::uuid[]) - 1) AS i, unnest(@batch_ids::uuid[]) AS batch_id,
        unnest(@from_nos::int[]) AS from_no, unnest(@over::boolean[]) AS over) b OFFSET 0
) w
CROSS JOIN LATERAL (SELECT * FROM (
    SELECT s.no, s.first, s.records, s.state, s.step_no, s.detached, s.page_off, s.first_step, s.tasks_done,
        (CASE WHEN 'staged' = ANY(w.statuses) THEN s.staged ELSE 0 END
        + CASE WHEN 'queued' = ANY(w.statuses) THEN s.queued ELSE 0 END
        + CASE WHEN 'pending' = ANY(w.statuses) THEN s.pending ELSE 0 END
        + CASE WHEN 'started' = ANY(w.statuses) THEN s.started ELSE 0 END
        + CASE WHEN 'needs_reconcile' = ANY(w.statuses) THEN s.needs_reconcile ELSE 0 END
        + CASE WHEN 'completed' = ANY(w.statuses) THEN s.completed ELSE 0 END
        + CASE WHEN 'failed' = ANY(w.statuses) THEN s.failed ELSE 0 END
        + CASE WHEN 'cancelled' = ANY(w.statuses) THEN s.cancelled ELSE 0 END
        + CASE WHEN 'accepted' = ANY(w.statuses) THEN s.accepted ELSE 0 END
        + CASE WHEN 'rejected' = ANY(w.statuses) THEN s.rejected ELSE 0 END
        + CASE WHEN 'unprocessed' = ANY(w.statuses) THEN s.unprocessed ELSE 0 END
        + CASE WHEN 'unresolved' = ANY(w.statuses) THEN s.unresolved ELSE 0 END)
        + CASE WHEN w.begun = 'yes' AND s.queued > 0
            AND (s.step_no > s.first_step OR EXISTS (SELECT FROM flow.fragment f WHERE f.batch_id = s.batch_id
                AND f.slice_no = s.no)) THEN s.queued ELSE 0 END
        - CASE WHEN w.begun = 'no' AND s.step_no > s.first_step THEN s.queued ELSE 0 END
        + CASE WHEN w.ended_runs THEN (SELECT count(*) FROM flow.ended_run r WHERE r.org_id = @org_id
            AND r.batch_id = s.batch_id
            AND r.position >= s.first AND r.position < s.first + s.records) ELSE 0 END AS matching
    FROM flow.all_slices s WHERE s.batch_id = w.batch_id AND s.no >= w.from_no
        -- Most slices of a large batch pass by here: what costs little, and rules nearly all out, comes first.
        AND (w.begun = 'yes' AND s.queued > 0 OR w.ended_runs OR s.staged > 0 AND 'staged' = ANY(w.statuses)
            OR s.queued > 0 AND 'queued' = ANY(w.statuses) OR s.pending > 0 AND 'pending' = ANY(w.statuses)
            OR s.started > 0 AND 'started' = ANY(w.statuses) OR s.needs_reconcile > 0
            AND 'needs_reconcile' = ANY(w.statuses) OR s.completed > 0 AND 'completed' = ANY(w.statuses)
            OR s.failed > 0 AND 'failed' = ANY(w.statuses) OR s.cancelled > 0 AND 'cancelled' = ANY(w.statuses)
            OR s.accepted > 0 AND 'accepted' = ANY(w.statuses)
            OR s.rejected > 0 AND 'rejected' = ANY(w.statuses) OR s.unprocessed > 0 AND 'unprocessed' = ANY(w.statuses)
            OR s.unresolved > 0 AND 'unresolved' = ANY(w.statuses))
) a WHERE a.matching > 0 ORDER BY a.no LIMIT @max_rows) d
ORDER BY w.i, d.no;

-- name: SlicesBack :many
-- SlicesFrom from a number down, the last one of a batch first.
SELECT w.i::int AS i, d.no, d.first, d.records, d.state, d.step_no, d.detached, d.page_off, d.first_step, d.tasks_done,
    d.matching::bigint AS matching
FROM (
    SELECT b.i, b.batch_id, b.from_no, CASE WHEN b.over THEN @over_statuses::text[]
        ELSE @statuses::text[] END AS statuses, CASE WHEN b.over THEN '' ELSE @begun::text END AS begun,
        (@ended_runs::boolean AND EXISTS (SELECT FROM flow.ended_run r WHERE r.org_id = @org_id
            AND r.batch_id = b.batch_id)) AS ended_runs
    FROM (SELECT generate_series(0, cardinality(@batch_ids::uuid[]) - 1) AS i, unnest(@batch_ids::uuid[]) AS batch_id,
        unnest(@from_nos::int[]) AS from_no, unnest(@over::boolean[]) AS over) b OFFSET 0
) w
CROSS JOIN LATERAL (SELECT * FROM (
    SELECT s.no, s.first, s.records, s.state, s.step_no, s.detached, s.page_off, s.first_step, s.tasks_done,
        (CASE WHEN 'staged' = ANY(w.statuses) THEN s.staged ELSE 0 END
        + CASE WHEN 'queued' = ANY(w.statuses) THEN s.queued ELSE 0 END
        + CASE WHEN 'pending' = ANY(w.statuses) THEN s.pending ELSE 0 END
        + CASE WHEN 'started' = ANY(w.statuses) THEN s.started ELSE 0 END
        + CASE WHEN 'needs_reconcile' = ANY(w.statuses) THEN s.needs_reconcile ELSE 0 END
        + CASE WHEN 'completed' = ANY(w.statuses) THEN s.completed ELSE 0 END
        + CASE WHEN 'failed' = ANY(w.statuses) THEN s.failed ELSE 0 END
        + CASE WHEN 'cancelled' = ANY(w.statuses) THEN s.cancelled ELSE 0 END
        + CASE WHEN 'accepted' = ANY(w.statuses) THEN s.accepted ELSE 0 END
        + CASE WHEN 'rejected' = ANY(w.statuses) THEN s.rejected ELSE 0 END
        + CASE WHEN 'unprocessed' = ANY(w.statuses) THEN s.unprocessed ELSE 0 END
        + CASE WHEN 'unresolved' = ANY(w.statuses) THEN s.unresolved ELSE 0 END)
        + CASE WHEN w.begun = 'yes' AND s.queued > 0
            AND (s.step_no > s.first_step OR EXISTS (SELECT FROM flow.fragment f WHERE f.batch_id = s.batch_id
                AND f.slice_no = s.no)) THEN s.queued ELSE 0 END
        - CASE WHEN w.begun = 'no' AND s.step_no > s.first_step THEN s.queued ELSE 0 END
        + CASE WHEN w.ended_runs THEN (SELECT count(*) FROM flow.ended_run r WHERE r.org_id = @org_id
            AND r.batch_id = s.batch_id
            AND r.position >= s.first AND r.position < s.first + s.records) ELSE 0 END AS matching
    FROM flow.all_slices s WHERE s.batch_id = w.batch_id AND s.no <= w.from_no
        -- Most slices of a large batch pass by here: what costs little, and rules nearly all out, comes first.
        AND (w.begun = 'yes' AND s.queued > 0 OR w.ended_runs OR s.staged > 0 AND 'staged' = ANY(w.statuses)
            OR s.queued > 0 AND 'queued' = ANY(w.statuses) OR s.pending > 0 AND 'pending' = ANY(w.statuses)
            OR s.started > 0 AND 'started' = ANY(w.statuses) OR s.needs_reconcile > 0
            AND 'needs_reconcile' = ANY(w.statuses) OR s.completed > 0 AND 'completed' = ANY(w.statuses)
            OR s.failed > 0 AND 'failed' = ANY(w.statuses) OR s.cancelled > 0 AND 'cancelled' = ANY(w.statuses)
            OR s.accepted > 0 AND 'accepted' = ANY(w.statuses)
            OR s.rejected > 0 AND 'rejected' = ANY(w.statuses) OR s.unprocessed > 0 AND 'unprocessed' = ANY(w.statuses)
            OR s.unresolved > 0 AND 'unresolved' = ANY(w.statuses))
) a WHERE a.matching > 0 ORDER BY a.no DESC LIMIT @max_rows) d
ORDER BY w.i, d.no DESC;

-- name: JobsRead :many
-- OFFSET 0 keeps it one walk along the index for each slice, whatever the planner thinks of the size of the table.
SELECT j.batch_id, j.position, j.slice_no, j.detached_step, j.step_no, j.status, j.attempts,
    coalesce(CASE WHEN NOT @bare::boolean THEN j.error END, '')::text AS error, j.started_at, j.updated_at
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS no) d
CROSS JOIN LATERAL (SELECT * FROM flow.job a WHERE a.batch_id = d.batch_id AND a.slice_no = d.no OFFSET 0) j;

-- name: SliceSizes :many
-- Bytes of what readers take of slices, so that they take no more at once than memory allows: the fragments from a step
-- of each on, those inherited from another on, and the pages where they are wanted, each with the first of its slices.
-- In the order in which the slices are asked for.
SELECT (coalesce((SELECT sum(octet_length(f.body)) FROM flow.all_fragments f WHERE f.batch_id = s.batch_id
    AND f.slice_no = s.no AND f.step_no >= s.from_step), 0)
    + coalesce((SELECT sum(octet_length(f.body)) FROM flow.inherited i CROSS JOIN LATERAL (
            SELECT * FROM flow.all_fragments a WHERE a.batch_id = i.from_batch AND a.slice_no = i.from_slice OFFSET 0) f
        WHERE i.batch_id = s.batch_id AND i.slice_no = s.no AND f.step_no >= s.inherited_from
            AND (f.step_no < i.step_no OR f.step_no = i.step_no AND i.tasks_done >> f.task_no & 1 = 1)), 0)
    + CASE WHEN @pages::boolean AND s.new_page THEN coalesce(
        (SELECT p.raw_bytes FROM flow.page p WHERE p.set_id = b.page_set AND p.first = s.first - s.page_off),
        (SELECT o.page_bytes FROM flow.batch o WHERE o.id = coalesce(b.page_set, b.id)), 0) ELSE 0 END)::bigint AS bytes
FROM (
    SELECT d.i, d.from_step, d.inherited_from, r.*, lag(r.first - r.page_off) OVER (PARTITION BY d.batch_id
        ORDER BY d.i) IS DISTINCT FROM r.first - r.page_off AS new_page
    FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS no,
        unnest(@from_steps::smallint[]) AS from_step,
            unnest(@inherited_from::smallint[]) AS inherited_from,
                generate_series(1, cardinality(@slice_nos::int[])) AS i) d
    CROSS JOIN LATERAL (SELECT * FROM flow.all_slices x WHERE x.batch_id = d.batch_id AND x.no = d.no OFFSET 0) r
) s
JOIN flow.batch b ON b.id = s.batch_id
ORDER BY s.i;

-- name: SkippedRead :many
-- How many records the conditions of tasks left out, of batches of an organization.
SELECT f.batch_id, f.step_no, f.task_no, sum(f.skipped)::bigint AS records
FROM flow.fragment f JOIN flow.batch b ON b.id = f.batch_id
WHERE f.batch_id = ANY(@batch_ids::uuid[]) AND b.org_id = @org_id AND f.skipped > 0
GROUP BY f.batch_id, f.step_no, f.task_no ORDER BY f.batch_id, f.step_no, f.task_no;

-- name: FragmentsRead :many
-- Those of slices, of each from a step on, in the order in which they came: the last one counts. The bodies of large
-- ones are left out: each is read by itself. OFFSET 0 as in JobsRead.
SELECT f.batch_id, f.slice_no, f.step_no, f.task_no, f.seq, octet_length(f.body) > @small::int AS large,
    (CASE WHEN octet_length(f.body) > @small::int THEN '' ELSE f.body END)::bytea AS body
FROM (SELECT DISTINCT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS no,
    unnest(@from_steps::smallint[]) AS from_step) d
CROSS JOIN LATERAL (SELECT * FROM flow.all_fragments a WHERE a.batch_id = d.batch_id AND a.slice_no = d.no
    AND a.step_no >= d.from_step OFFSET 0) f
ORDER BY f.batch_id, f.slice_no, f.step_no, f.task_no, f.seq;

-- name: SlicesChanged :many
-- Which of these slices are no longer as they were at their mark. Every change of a slice writes its row anew, or that
-- of its batch's counters, so the transaction that last wrote it, with where its batch stands, makes a mark that nobody
-- has to keep.
SELECT d.i::int AS i, m.mark::bigint AS mark
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@nos::int[]) AS no, unnest(@marks::bigint[]) AS mark,
        generate_series(0, cardinality(@nos::int[]) - 1) AS i) d
JOIN flow.batch_count b ON b.batch_id = d.batch_id
CROSS JOIN LATERAL (SELECT * FROM flow.all_slices x WHERE x.batch_id = d.batch_id AND x.no = d.no OFFSET 0) s
CROSS JOIN LATERAL (SELECT (array_position(enum_range(NULL::flow.batch_status), b.status)::bigint * 2
    + (b.stopped_at IS NOT NULL)::int) << 32
    | s.xid AS mark OFFSET 0) m
WHERE m.mark <> d.mark;

-- name: SlicesRead :many
-- Slices of several batches, those of one side by side and in their order.
SELECT s.batch_id, s.no, s.first, s.records, s.state, s.step_no, s.remaining, s.detached, s.page_off, s.first_step,
    s.tasks_done
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@nos::int[]) AS no) d
CROSS JOIN LATERAL (SELECT * FROM flow.all_slices x WHERE x.batch_id = d.batch_id AND x.no = d.no OFFSET 0) s
ORDER BY s.batch_id, s.no;

-- name: EndedRunsRead :many
-- The runs that are over of the jobs of slices. OFFSET 0 as in JobsRead.
SELECT r.batch_id, s.no AS slice_no, r.position, r.run, r.step_no, r.note, r.ended_at
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS no) d
JOIN flow.batch b ON b.id = d.batch_id
CROSS JOIN LATERAL (SELECT x.no, x.first, x.records FROM flow.all_slices x WHERE x.batch_id = d.batch_id
    AND x.no = d.no OFFSET 0) s
CROSS JOIN LATERAL (SELECT * FROM flow.ended_run e WHERE e.org_id = b.org_id AND e.batch_id = d.batch_id
    AND e.position >= s.first
    AND e.position < s.first + s.records OFFSET 0) r
ORDER BY r.batch_id, r.position, r.run;

-- name: EndedRunTotal :one
SELECT count(*) FROM flow.ended_run r WHERE r.org_id = @org_id AND r.batch_id BETWEEN @from_id AND @to_id
    AND (sqlc.narg('created_after')::timestamptz IS NULL AND sqlc.narg('created_before')::timestamptz IS NULL
        OR EXISTS (SELECT FROM flow.batch a WHERE a.id = r.batch_id
        AND (sqlc.narg('created_after') IS NULL OR a.created_at >= sqlc.narg('created_after'))
        AND (sqlc.narg('created_before') IS NULL OR a.created_at < sqlc.narg('created_before'))));
