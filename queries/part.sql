-- Ranges of records that wait for calls or are in them (flow.part), and the queues of batches (flow.lane_batch).

-- name: SlicesQueue :exec
-- Queues the records of a batch that is released, or retries those of another, where their slices enter calls: for each
-- task one part of all slices that follow each other and lack the same tasks.
WITH run AS (
    SELECT s.step_no, s.tasks_done, min(s.no) AS slice_no, max(s.no) AS last_no, sum(s.records) AS records
    FROM (SELECT x.step_no, x.tasks_done, x.no, x.records, x.no - row_number() OVER (PARTITION BY x.step_no,
        x.tasks_done ORDER BY x.no) AS before
        FROM flow.slice x WHERE x.batch_id = @batch_id AND x.state = 'calling') s
    GROUP BY s.step_no, s.tasks_done, s.before
), queued AS MATERIALIZED (
    SELECT l.batch_id, l.step_no, l.task_no, r.slice_no, r.last_no, r.records,
        (SELECT e.records FROM flow.slice e WHERE e.batch_id = @batch_id AND e.no = r.last_no) AS to_off
    FROM run r JOIN flow.lane_batch l ON l.batch_id = @batch_id AND l.step_no = r.step_no
        AND r.tasks_done >> l.task_no & 1 = 0
), part AS (
    INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off)
    SELECT q.batch_id, q.step_no, q.task_no, q.slice_no, q.last_no, 0, q.to_off FROM queued q ORDER BY q.slice_no,
        q.task_no
)
UPDATE flow.lane_batch l SET ready_parts = q.parts, ready_records = q.records
FROM (SELECT step_no, task_no, count(*) AS parts, sum(records) AS records FROM queued GROUP BY step_no, task_no) q
WHERE l.batch_id = @batch_id AND l.step_no = q.step_no AND l.task_no = q.task_no;

-- name: LaneBatchMove :exec
UPDATE flow.lane_batch l SET ready_parts = l.ready_parts + d.parts, ready_records = l.ready_records + d.records,
    allowance = l.allowance - d.claimed,
    delayed_until = greatest(l.delayed_until, nullif(d.delayed_until, '0001-01-01 00:00:00+00')),
    call_id = coalesce(nullif(d.call_id, '00000000-0000-0000-0000-000000000000'), l.call_id)
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@step_nos::smallint[]) AS step_no,
    unnest(@task_nos::smallint[]) AS task_no,
        unnest(@parts::int[]) AS parts, unnest(@records::bigint[]) AS records, unnest(@claimed::bigint[]) AS claimed,
            unnest(@delayed_untils::timestamptz[]) AS delayed_until, unnest(@call_ids::uuid[]) AS call_id) d
WHERE l.batch_id = d.batch_id AND l.step_no = d.step_no AND l.task_no = d.task_no;

-- name: LaneBatchInsert :exec
-- The queues of a new batch. Those of a paced one have nothing to claim before the first tick.
INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, domain, bucket, lane, high, definition_id, version,
    allowance, lapses_at)
SELECT b.id, q.step_no, q.task_no, b.org_id, q.domain, q.bucket, q.lane::flow.lane, coalesce(c.priority = 'high',
    false), b.definition_id, b.version,
    CASE WHEN c.pacing IS NOT NULL THEN 0 END, CASE WHEN c.pacing IS NOT NULL THEN b.created_at END
FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id CROSS
    JOIN (SELECT unnest(@step_nos::smallint[]) AS step_no, unnest(@task_nos::smallint[]) AS task_no,
    unnest(@domains::text[]) AS domain, unnest(@buckets::text[]) AS bucket, unnest(@lanes::text[]) AS lane) q
WHERE b.id = @batch_id;

-- name: LaneAllowances :many
-- What the queues of paced batches may still claim, and until when.
SELECT batch_id, step_no, task_no, allowance::bigint AS allowance, lapses_at::timestamptz AS lapses_at
FROM flow.lane_batch WHERE batch_id = ANY(@batch_ids::uuid[]) AND allowance IS NOT NULL;

-- name: LaneBatchRelease :exec
-- A tick: what was not used lapses.
UPDATE flow.lane_batch SET allowance = @allowance::bigint, lapses_at = @lapses_at::timestamptz
    WHERE batch_id = @batch_id;

-- name: LaneBatchPace :exec
-- Puts queues under another policy until its first tick: what was released and not used stays, as far as both policies
-- allow it. was is how many records the old policy releases per tick, gives how many the new one does.
UPDATE flow.lane_batch l SET allowance = greatest(0, least(coalesce(l.allowance, 0),
    d.gives - (d.was - coalesce(l.allowance, 0)))),
    lapses_at = least(l.lapses_at, d.until)
FROM (SELECT @was::bigint AS was, @gives::bigint AS gives, @until::timestamptz AS until) d
WHERE l.batch_id = @batch_id;

-- name: LaneBatchUnpace :exec
UPDATE flow.lane_batch SET allowance = NULL, lapses_at = NULL WHERE batch_id = @batch_id;

-- name: LaneBatchRank :exec
UPDATE flow.lane_batch SET high = @high WHERE batch_id = @batch_id AND high <> @high;

-- name: LaneBatchOfBatches :many
SELECT batch_id, step_no, task_no, domain, bucket, (open AND ready_parts > 0)::boolean AS ready FROM flow.lane_batch
    WHERE batch_id = ANY(@batch_ids::uuid[]);

-- name: LaneBatchClose :exec
UPDATE flow.lane_batch SET open = false WHERE batch_id = @batch_id;

-- name: LaneBatchesEnd :exec
-- Batches that came to their end have no queues any more.
DELETE FROM flow.lane_batch WHERE batch_id = ANY(@batch_ids::uuid[]);

-- name: PartInsert :exec
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, detached, attempt, element,
    ready_at, keyed_since, queued_at)
SELECT unnest(@batch_ids::uuid[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]),
    unnest(@slice_nos::int[]),
    unnest(@slice_nos::int[]), unnest(@froms::int[]), unnest(@tos::int[]), unnest(@are_detached::boolean[]),
        unnest(@attempts::int[]), unnest(@elements::int[]),
    unnest(@ready_ats::timestamptz[]), nullif(unnest(@keyed_sinces::timestamptz[]), '0001-01-01 00:00:00+00'),
    greatest(@now::timestamptz, unnest(@ready_ats::timestamptz[]));

-- name: PartDelete :execrows
DELETE FROM flow.part p
USING (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS slice_no,
    unnest(@ids::bigint[]) AS id) k
WHERE p.batch_id = k.batch_id AND p.slice_no = k.slice_no AND p.id = k.id;

-- name: PartDeleteOfCalls :one
-- Deletes the parts of calls. Those that stand in queues stay, but are counted: of batches that a call has all records
-- of.
WITH gone AS (
    DELETE FROM flow.part WHERE call_id = ANY(@call_ids::uuid[]) RETURNING 1
)
SELECT ((SELECT count(*) FROM gone) + (SELECT count(*) FROM flow.lane_batch WHERE batch_id = ANY(@batch_ids::uuid[])
    AND call_id = ANY(@call_ids::uuid[])))::bigint AS parts;

-- name: LaneBatchTaken :exec
-- Queues of batches that go on, whose part was settled.
UPDATE flow.lane_batch SET part_id = NULL, call_id = NULL WHERE batch_id = ANY(@batch_ids::uuid[])
    AND call_id = ANY(@call_ids::uuid[]);

-- name: PartsWriteOut :exec
-- Writes the parts of batches that stand in their queues.
WITH old AS MATERIALIZED (
    SELECT l.batch_id, l.step_no, l.task_no, l.part_id, l.call_id FROM flow.lane_batch l
    WHERE l.batch_id = ANY(@batch_ids::uuid[]) AND l.part_id IS NOT NULL FOR NO KEY UPDATE
), emptied AS (
    UPDATE flow.lane_batch l SET part_id = NULL, call_id = NULL FROM old o WHERE l.batch_id = o.batch_id
        AND l.step_no = o.step_no AND l.task_no = o.task_no
)
INSERT INTO flow.part (id, batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, call_id,
    call_seq) OVERRIDING SYSTEM VALUE
SELECT o.part_id, o.batch_id, o.step_no, o.task_no, 0, 0, 0, c.record_count,
    o.call_id, CASE WHEN o.call_id IS NOT NULL THEN 0 END
FROM old o JOIN flow.batch_count c ON c.batch_id = o.batch_id;

-- name: PartRequeue :execrows
UPDATE flow.part p SET call_id = NULL, call_seq = NULL, claim_no = NULL, left_out = NULL, ready_at = @ready_at,
    queued_at = greatest(@now::timestamptz, @ready_at), attempt = p.attempt + @attempts::int
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS slice_no,
    unnest(@ids::bigint[]) AS id) k
WHERE p.batch_id = k.batch_id AND p.slice_no = k.slice_no AND p.id = k.id AND p.call_id IS NOT NULL;

-- name: PartsOfSlices :many
-- The parts of slices, each cut to its slice.
SELECT p.id, p.batch_id, p.step_no, p.task_no, s.no AS slice_no, p.slice_no AS begins,
    (CASE WHEN s.no = p.slice_no THEN p.from_off ELSE 0 END)::int AS from_off,
    (CASE WHEN s.no = p.last_no THEN coalesce(p.to_off, s.records) ELSE s.records END)::int AS to_off,
    p.detached, p.attempt, p.element, p.left_out, p.call_id, coalesce(p.claim_no, 0)::bigint AS claim_no,
        c.state AS call_state, c.claimed_at,
    coalesce(c.failure, '')::text AS failure, coalesce(c.asked, '')::text AS asked
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@slice_nos::int[]) AS no) d
CROSS JOIN LATERAL (SELECT * FROM flow.all_slices x WHERE x.batch_id = d.batch_id AND x.no = d.no OFFSET 0) s
CROSS JOIN LATERAL (
    SELECT b.id, b.batch_id, b.step_no, b.task_no, b.slice_no, b.from_off, b.last_no, b.to_off, b.detached, b.attempt,
        b.element, b.left_out, b.call_id, b.claim_no
    FROM flow.part b WHERE b.batch_id = s.batch_id AND b.slice_no = s.no
    UNION ALL
    SELECT a.id, a.batch_id, a.step_no, a.task_no, a.slice_no, a.from_off, a.last_no, a.to_off, a.detached, a.attempt,
        a.element, a.left_out, a.call_id, a.claim_no
    FROM flow.part a WHERE a.batch_id = s.batch_id AND a.last_no > a.slice_no AND a.slice_no < s.no
        AND a.last_no >= s.no
    UNION ALL
    -- A call that has all records is not counted at once, and does not show before.
    SELECT q.part_id, q.batch_id, q.step_no, q.task_no, 0, 0, 0, NULL, false, 1, 0, NULL,
        CASE WHEN s.queued = 0 THEN q.call_id END, NULL
    FROM flow.lane_batch q WHERE s.no = 0 AND q.batch_id = s.batch_id AND q.part_id IS NOT NULL
) p
LEFT JOIN flow.call c ON c.id = p.call_id
ORDER BY p.id, s.no;

-- name: LaneBatchPause :exec
UPDATE flow.lane_batch SET paused = true WHERE batch_id = @batch_id;

-- name: LaneBatchResume :exec
UPDATE flow.lane_batch SET paused = false WHERE batch_id = @batch_id;

-- name: PartsQueued :many
-- Parts that began in a slice when they were chosen, and begin in another now, at the most, because calls have taken
-- what was before. The condition is not one that part_ready has, so that each part is looked up by its key, and that
-- index is not read whole.
WITH k AS MATERIALIZED (
    SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@begins::int[]) AS begins,
        unnest(@slice_nos::int[]) AS slice_no,
        unnest(@ids::bigint[]) AS id
)
SELECT p.id, p.slice_no, p.last_no, p.from_off, p.to_off, false AS in_queue
FROM k JOIN flow.part p ON p.batch_id = k.batch_id AND p.slice_no BETWEEN k.begins AND k.slice_no AND p.id = k.id
WHERE coalesce(p.call_id, '00000000-0000-0000-0000-000000000000') = '00000000-0000-0000-0000-000000000000'
UNION ALL
SELECT q.part_id::bigint, 0, 0, 0, c.record_count, true
FROM k JOIN flow.lane_batch q ON q.batch_id = k.batch_id AND q.part_id = k.id AND q.call_id IS NULL
    JOIN flow.batch_count c ON c.batch_id = q.batch_id;

-- name: PartClaim :exec
UPDATE flow.part p SET call_id = d.call_id, call_seq = d.seq, claim_no = nullif(d.claim_no, 0),
    left_out = nullif(d.left_out, '')::int[],
    element = d.element, elements = d.elements
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@begins::int[]) AS slice_no, unnest(@ids::bigint[]) AS id,
        unnest(@call_ids::uuid[]) AS call_id, unnest(@seqs::int[]) AS seq, unnest(@claim_nos::bigint[]) AS claim_no,
        unnest(@left_out::text[]) AS left_out, unnest(@element::int[]) AS element,
            unnest(@elements::int[]) AS elements) d
WHERE p.batch_id = d.batch_id AND p.slice_no = d.slice_no AND p.id = d.id;

-- name: PartShrink :exec
UPDATE flow.part p SET slice_no = d.slice_no, from_off = d.from_off
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@begins::int[]) AS begins, unnest(@ids::bigint[]) AS id,
        unnest(@slice_nos::int[]) AS slice_no, unnest(@froms::int[]) AS from_off) d
WHERE p.batch_id = d.batch_id AND p.slice_no = d.begins AND p.id = d.id;

-- name: PartInsertClaimed :exec
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, detached, attempt, element,
    elements, call_id, call_seq, claim_no, left_out, keyed_since,
    queued_at)
SELECT unnest(@batch_ids::uuid[]), unnest(@step_nos::smallint[]), unnest(@task_nos::smallint[]),
    unnest(@slice_nos::int[]),
    unnest(@last_nos::int[]), unnest(@froms::int[]), unnest(@tos::int[]), unnest(@are_detached::boolean[]),
        unnest(@attempts::int[]), unnest(@element::int[]),
    unnest(@elements::int[]), unnest(@call_ids::uuid[]),
    unnest(@seqs::int[]), nullif(unnest(@claim_nos::bigint[]), 0), nullif(unnest(@left_out::text[]), '')::int[],
    nullif(unnest(@keyed_sinces::timestamptz[]), '0001-01-01 00:00:00+00'),
    nullif(unnest(@queued_ats::timestamptz[]), '0001-01-01 00:00:00+00');

-- name: PartsOfCall :many
-- The parts of calls, slice by slice, in the order in which their records were sent.
SELECT p.id, p.batch_id, p.step_no, p.task_no, s.no AS slice_no, p.slice_no AS begins,
    (CASE WHEN s.no = p.slice_no THEN p.from_off ELSE 0 END)::int AS from_off,
    (CASE WHEN s.no = p.last_no THEN coalesce(p.to_off, s.records) ELSE s.records END)::int AS to_off,
    p.detached, p.attempt, p.element, p.elements, p.left_out, p.call_id, coalesce(p.claim_no, 0)::bigint AS claim_no,
        s.first, s.records AS size,
    coalesce(p.queued_at, '0001-01-01 00:00:00+00')::timestamptz AS queued_at,
    coalesce(p.keyed_since, '0001-01-01 00:00:00+00')::timestamptz AS keyed_since
FROM (
    SELECT o.id, o.batch_id, o.step_no, o.task_no, o.slice_no, o.from_off, o.last_no, o.to_off, o.detached, o.attempt,
        o.element, o.elements, o.left_out,
        o.call_id, o.call_seq, o.claim_no, o.queued_at, o.keyed_since
    FROM flow.part o WHERE o.call_id = ANY(@call_ids::uuid[])
    UNION ALL
    SELECT q.part_id, q.batch_id, q.step_no, q.task_no, 0, 0, 0, NULL, false, 1, 0, 0, NULL, q.call_id, 0, NULL, NULL,
        NULL
    FROM flow.call c JOIN flow.lane_batch q ON q.batch_id = c.batch_id AND q.call_id = c.id
        WHERE c.id = ANY(@call_ids::uuid[])
) p
CROSS JOIN LATERAL (
    SELECT * FROM flow.all_slices x WHERE x.batch_id = p.batch_id AND x.no BETWEEN p.slice_no AND p.last_no OFFSET 0
) s
ORDER BY p.call_id, p.call_seq, p.slice_no, p.from_off, s.no;

-- name: PartCut :many
-- Puts one record of a part into a part of its own, in the same call. What comes before the record ends with the slice
-- before where the record is the first of its slice, what comes behind it begins with the next one where it is the
-- last. All pieces are new rows: who read the old one must see that it is gone. Only a part of one slice has records
-- left out.
WITH old AS (
    DELETE FROM flow.part p WHERE p.batch_id = @batch_id AND p.slice_no = @begins AND p.id = @id
    RETURNING batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, detached, attempt, element, elements,
        call_id, call_seq, claim_no, left_out,
        queued_at
),
piece AS (
    SELECT (ARRAY[old.slice_no, s.no, coalesce(a.no, s.no)])[i]::int AS slice_no,
        (ARRAY[old.from_off, d.off, CASE WHEN a.no IS NULL THEN d.off + 1 ELSE 0 END])[i]::int AS from_off,
        (ARRAY[coalesce(b.no, s.no), s.no, old.last_no])[i]::int AS last_no, (ARRAY[coalesce(b.records, d.off), d.off
            + 1, old.to_off])[i]::int AS to_off
    FROM generate_series(1, 3) i CROSS JOIN (SELECT @slice_no::int AS no, @off::int AS off) d CROSS JOIN old
    CROSS JOIN LATERAL (SELECT w.* FROM flow.slice w WHERE w.batch_id = old.batch_id AND w.no = d.no OFFSET 0) s
    LEFT JOIN flow.slice b ON b.batch_id = s.batch_id AND b.no = s.no - 1 AND b.no >= old.slice_no AND d.off = 0
    LEFT JOIN flow.slice a ON a.batch_id = s.batch_id AND a.no = s.no + 1 AND a.no <= old.last_no
        AND d.off = s.records - 1
)
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, detached, attempt, element,
    elements, call_id, call_seq, claim_no, left_out,
    queued_at)
SELECT old.batch_id, old.step_no, old.task_no, n.slice_no, n.last_no, n.from_off, n.to_off, old.detached, old.attempt,
    old.element, old.elements,
    old.call_id, old.call_seq, old.claim_no, nullif(ARRAY(SELECT o FROM unnest(old.left_out) o WHERE o >= n.from_off
        AND o < n.to_off), '{}'), old.queued_at
FROM old CROSS JOIN piece n
WHERE n.slice_no < n.last_no OR n.slice_no = n.last_no
    AND n.to_off - n.from_off > (SELECT count(*) FROM unnest(old.left_out) o WHERE o >= n.from_off AND o < n.to_off)
RETURNING id, slice_no, from_off, elements, call_id;
