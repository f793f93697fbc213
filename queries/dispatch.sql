-- name: BudgetRead :one
SELECT * FROM flow.budget WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetLock :many
-- Locks budgets of an account in the order of their names against other claims, but not against starts that refer to them. The clock is
-- read after each lock was had.
WITH locked AS MATERIALIZED (
    SELECT * FROM flow.budget WHERE domain = @domain AND bucket = ANY(@buckets::text[]) ORDER BY bucket FOR NO KEY UPDATE
)
SELECT locked.*, flow.clock()::timestamptz AS now FROM locked;

-- name: BudgetSpace :exec
UPDATE flow.budget SET next_call_at = @next_call_at WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetRefusals :exec
-- Notes how often in a row the receiver of a budget without windows has refused calls for their rate, and when it did last.
UPDATE flow.budget SET refusals = @refusals, refused_at = @refused_at WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetLanes :many
-- The lanes of organizations in a budget, those that want calls now among them: where they stand, and what was set for them (0:
-- nothing). Also when the automatic backoff of the budget ends, and the last one of other budgets that the calls spend too.
SELECT k.org_id::uuid AS org_id, k.lane, coalesce(l.vtime, 0)::bigint AS vtime, coalesce(l.vstart, 0)::bigint AS vstart,
    coalesce(o.vtime, 0)::bigint AS org_vtime, coalesce(o.vstart, 0)::bigint AS org_vstart, coalesce(s.weight, 0)::int AS weight, coalesce(s.max_concurrent_calls, 0)::int AS max_calls,
    (SELECT coalesce(max(h.expires_at), '0001-01-01 00:00:00+00') FROM flow.pause h
        WHERE h.domain = @domain::text AND h.bucket = @bucket::text AND h.scope = 'bucket' AND h.status = 'active'
            AND h.expires_at > (SELECT flow.clock()))::timestamptz AS backoff_until,
    (SELECT coalesce(max(h.expires_at), '0001-01-01 00:00:00+00') FROM flow.pause h
        WHERE h.domain = @domain::text AND h.bucket = ANY(@also::text[]) AND h.scope = 'bucket' AND h.status = 'active'
            AND h.expires_at > (SELECT flow.clock()))::timestamptz AS also_until
FROM (
    SELECT unnest(@org_ids::uuid[]) AS org_id, unnest(@lanes::text[])::flow.lane AS lane
    UNION SELECT x.org_id, x.lane FROM flow.budget_org_lane x WHERE x.domain = @domain::text AND x.bucket = @bucket::text
) k
LEFT JOIN flow.budget_org_lane l ON l.domain = @domain::text AND l.bucket = @bucket::text AND l.org_id = k.org_id AND l.lane = k.lane
LEFT JOIN flow.budget_org o ON o.domain = @domain::text AND o.bucket = @bucket::text AND o.org_id = k.org_id
LEFT JOIN flow.domain_lane s ON s.org_id = k.org_id AND s.tenancy_id = @domain::text AND s.lane = k.lane;

-- name: CallsOfOthers :many
-- How many calls of each lane other processes than this one may have under way. Whether a call's time is over, the database's clock
-- cannot tell, which may have stepped: whoever finds that out moves it.
SELECT c.org_id, c.lane, count(*)::int AS calls FROM flow.call c
WHERE c.domain = @domain::text AND c.bucket = @bucket::text AND c.state = 'intent' AND c.owner <> @owner
GROUP BY c.org_id, c.lane;

-- name: QueueChoose :many
-- The batches that may go next: of each lane the boosted ones first, then the oldest, with where the lane is in fair queueing;
-- the clocks are the latest starts of its competitors. Queues to skip ("batch.step.task"), and
-- those of paced batches that must wait for a tick, do not take the places of others. Of a lane no more are read than calls may be
-- under way, and least, from which one bulk call may take. part_id is the part that stands in the queue and is all that is ready in it; 0 for
-- none. Batches before since, which may be zero, are passed over by the index alone. Queues to skip are an
-- array of texts because Postgres then keeps one plan: with sets of keys it plans anew for each call, which takes longer than to run it.
WITH RECURSIVE org AS (
    (SELECT f.org_id FROM flow.lane_batch f WHERE f.domain = @domain::text AND f.bucket = @bucket::text AND f.open AND f.listed AND f.ready_parts > 0
            AND f.batch_id >= @since::uuid
        ORDER BY f.org_id LIMIT 1)
    UNION ALL
    SELECT n.org_id FROM org CROSS JOIN LATERAL (
        SELECT f.org_id FROM flow.lane_batch f WHERE f.domain = @domain::text AND f.bucket = @bucket::text AND f.open AND f.listed AND f.ready_parts > 0
            AND f.batch_id >= @since::uuid
            AND f.org_id > org.org_id ORDER BY f.org_id LIMIT 1
    ) n
)
SELECT l.lane, l.batch_id, l.step_no, l.task_no, l.org_id, l.ready_records, l.allowance, l.part_id, coalesce(s.max_concurrent_calls, 0)::int AS max_calls,
    coalesce(s.weight, 0)::int AS weight, coalesce(o.vtime, 0)::bigint AS org_vtime, coalesce(t.vtime, 0)::bigint AS vtime,
    (SELECT coalesce(max(c.vstart), 0) FROM flow.budget_org c WHERE c.domain = @domain::text AND c.bucket = @bucket::text)::bigint AS org_clock,
    (SELECT coalesce(max(c.vstart), 0) FROM flow.budget_org_lane c
        WHERE c.domain = @domain::text AND c.bucket = @bucket::text AND c.org_id = l.org_id)::bigint AS clock
FROM org
CROSS JOIN (SELECT unnest(enum_range(NULL::flow.lane)) AS lane) k
CROSS JOIN LATERAL (
    SELECT q.batch_id, q.step_no, q.task_no, q.org_id, q.lane, q.high, q.ready_records, q.allowance,
        coalesce(CASE WHEN q.call_id IS NULL THEN q.part_id END, 0)::bigint AS part_id
    FROM flow.lane_batch q
    WHERE q.domain = @domain::text AND q.bucket = @bucket::text AND q.org_id = org.org_id AND q.lane = k.lane AND q.open AND q.listed AND NOT q.paused AND q.ready_parts > 0
        AND q.batch_id >= @since::uuid
        AND (q.allowance IS NULL OR q.allowance > 0) AND (q.lapses_at IS NULL OR q.lapses_at > (SELECT flow.clock()))
        AND (q.part_id IS NOT NULL AND q.call_id IS NULL
            OR EXISTS (SELECT FROM flow.part p WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no AND p.task_no = q.task_no
                AND p.call_id IS NULL AND p.ready_at <= (SELECT flow.clock())))
        -- Of the lane, and so asked once, not for each of its queues.
        AND (SELECT NOT EXISTS (SELECT FROM flow.holds_over(org.org_id, @domain::text, k.lane)))
        AND NOT concat_ws('.', q.batch_id, q.step_no, q.task_no) = ANY(@skip::text[])
    ORDER BY q.high DESC, q.batch_id
    LIMIT (SELECT greatest(b.max_in_flight, @least::int) FROM flow.budget b WHERE b.domain = @domain::text AND b.bucket = @bucket::text)
) l
LEFT JOIN flow.budget_org o ON o.domain = @domain::text AND o.bucket = @bucket::text AND o.org_id = l.org_id
LEFT JOIN flow.budget_org_lane t ON t.domain = @domain::text AND t.bucket = @bucket::text AND t.org_id = l.org_id AND t.lane = l.lane
LEFT JOIN flow.domain_lane s ON s.org_id = l.org_id AND s.tenancy_id = @domain::text AND s.lane = l.lane
ORDER BY l.org_id, l.lane, l.high DESC, l.batch_id;

-- name: QueuesDead :one
-- How many versions of queues Postgres has yet to clear, as its statistics have it.
SELECT pg_stat_get_dead_tuples('flow.lane_batch'::regclass)::bigint AS dead;

-- name: PartChoose :many
-- What is ready in queues, slice by slice, in the order in which it goes; of each so many parts at most. Each queue is looked up for
-- itself: else the planner takes reading all parts for cheap.
SELECT (k.no - 1)::int AS queue_no, p.id, k.batch_id::uuid AS batch_id, k.step_no::smallint AS step_no, k.task_no::smallint AS task_no, p.slice_no,
    p.part_slice AS begins, p.from_off, p.to_off, p.apart, p.attempt, p.element, p.first, p.size,
    coalesce(p.queued_at, '0001-01-01 00:00:00+00')::timestamptz AS queued_at, greatest(p.ready_at, '0001-01-01 00:00:00+00')::timestamptz AS ready_at
FROM (SELECT unnest(@batch_ids::uuid[]) AS batch_id, unnest(@step_nos::smallint[]) AS step_no, unnest(@task_nos::smallint[]) AS task_no,
        unnest(@max_parts::int[]) AS most, generate_series(1, cardinality(@batch_ids::uuid[])) AS no) k
CROSS JOIN LATERAL (
    SELECT r.id, s.no AS slice_no, (CASE WHEN s.no = r.slice_no THEN r.from_off ELSE 0 END)::int AS from_off,
        (CASE WHEN s.no = r.last_no THEN coalesce(r.to_off, s.records) ELSE s.records END)::int AS to_off,
        r.apart, r.attempt, r.element, s.first, s.records AS size, r.ready_at, r.queued_at, r.slice_no AS part_slice, r.from_off AS part_from
    FROM (
        SELECT q.id, q.slice_no, q.from_off, q.last_no, q.to_off, q.apart, q.attempt, q.element, q.ready_at, q.queued_at FROM flow.part q
        WHERE q.batch_id = k.batch_id AND q.step_no = k.step_no AND q.task_no = k.task_no AND q.call_id IS NULL
            AND q.ready_at <= (SELECT flow.clock())
        ORDER BY q.ready_at, q.slice_no, q.from_off LIMIT k.most
    ) r
    CROSS JOIN LATERAL (
        SELECT z.no, z.first, z.records FROM flow.slice z
        WHERE z.batch_id = k.batch_id AND z.no BETWEEN r.slice_no AND r.last_no ORDER BY z.no LIMIT k.most
    ) s
    ORDER BY r.ready_at, r.slice_no, r.from_off, s.no LIMIT k.most
) p
ORDER BY k.no, p.ready_at, p.part_slice, p.part_from, p.slice_no;

-- name: QueueNextReady :one
-- When the next part of a budget may be claimed that could not be at the time of the last choice.
SELECT coalesce(min(n.ready_at), '0001-01-01 00:00:00+00')::timestamptz AS at FROM flow.lane_batch q
CROSS JOIN LATERAL (
    SELECT p.ready_at FROM flow.part p
    WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no AND p.task_no = q.task_no AND p.call_id IS NULL AND p.ready_at > @chosen_at::timestamptz
    ORDER BY p.ready_at LIMIT 1
) n
WHERE q.domain = @domain AND q.bucket = @bucket AND q.open AND q.listed AND q.ready_parts > 0;

-- name: HoldCovers :many
-- The queues of these batches that active holds of people cover. Those of batches are not read: the batch says that it is paused.
SELECT q.batch_id, q.step_no, q.task_no FROM flow.lane_batch q
WHERE q.batch_id = ANY(@batch_ids::uuid[]) AND q.domain = @domain AND q.bucket = @bucket
    AND EXISTS (SELECT FROM flow.holds_over(q.org_id, q.domain, q.lane));

-- name: CallBarred :one
-- Whether a call of these batches must not go out now: one of them is over, stopped or paused, people hold its lane, or the call is not under
-- way any more, be it that a restore has forgotten it. One statement sees every hold and cancel that was answered before it began.
SELECT (NOT EXISTS (SELECT FROM flow.call c WHERE c.id = @id AND c.state = 'intent')
    OR EXISTS (SELECT FROM flow.batch_count b WHERE b.batch_id = ANY(@batch_ids::uuid[]) AND (b.status NOT IN ('queued', 'running') OR b.stopped_at IS NOT NULL))
    OR EXISTS (SELECT FROM flow.holds_over(@org_id, @domain, @lane::flow.lane)))::boolean AS barred;

-- name: HoldOpenBackoff :exec
-- Opens the automatic backoff of a budget, or extends the one that is open.
INSERT INTO flow.pause (id, scope, domain, bucket, cause, reason, created_at, expires_at)
VALUES (@id, 'bucket', @domain::text, @bucket::text, @cause, @reason::text, flow.clock(), @expires_at::timestamptz)
ON CONFLICT (domain, bucket) WHERE status = 'active' AND scope = 'bucket'
DO UPDATE SET expires_at = greatest(pause.expires_at, excluded.expires_at);

-- name: HoldExpire :exec
-- Ends the backoffs of an account whose time is over: a budget may have no pass of its own.
UPDATE flow.pause SET status = 'released', released_at = expires_at
WHERE domain = @domain::text AND scope = 'bucket' AND status = 'active' AND expires_at <= (SELECT flow.clock());

-- name: CallsTogether :one
-- How many calls of these actions, or of any, may be under way in any process, whichever of these queues they waited in. With jobs,
-- also those whose result is not known. With a scope, only those that name it beside their costs. As in CallsOfOthers, no clock ends them.
SELECT count(*) FROM flow.call WHERE domain = @domain AND bucket = ANY(@lines::text[])
    AND (state = 'intent' OR @jobs::boolean AND state IN ('intent', 'unknown', 'awaiting'))
    AND (action_id = ANY(@spends::text[]) OR cardinality(@spends::text[]) = 0)
    AND (@scope::text = '' OR (costs->>(@scope::text)) IS NOT NULL);

-- name: CallsExclusive :many
SELECT exclusive_key::text FROM flow.call WHERE domain = @domain AND exclusive_key = ANY(@keys::text[]);

-- name: CallInsert :exec
-- counts are the windows of one call, where these are not those of all.
INSERT INTO flow.call (id, org_id, batch_id, domain, bucket, lane, action_id, credential_id, state, owner, attempt, records, digest, first_key, last_key,
    params, outcome_check, exclusive_key, claimed_at, send_before, counts_in, costs, key_sums)
SELECT d.id, d.org_id, nullif(d.batch_id, '00000000-0000-0000-0000-000000000000'), @domain, @bucket, d.lane::flow.lane, d.action_id, nullif(d.credential_id, '00000000-0000-0000-0000-000000000000'), 'intent', @owner,
    d.attempt, d.records, d.digest, nullif(d.first_key, ''), nullif(d.last_key, ''), d.params, d.outcome_check, nullif(d.exclusive_key, ''),
    d.claimed_at, d.send_before, coalesce(nullif(d.counts, '')::jsonb, @counts_in::jsonb) AS counts_in, nullif(d.costs, '')::jsonb, d.key_sums
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@org_ids::uuid[]) AS org_id, unnest(@batch_ids::uuid[]) AS batch_id, unnest(@lanes::text[]) AS lane, unnest(@action_ids::text[]) AS action_id,
        unnest(@credential_ids::uuid[]) AS credential_id, unnest(@attempts::int[]) AS attempt, unnest(@records::int[]) AS records,
        unnest(@digests::text[]) AS digest, unnest(@first_keys::text[]) AS first_key, unnest(@last_keys::text[]) AS last_key,
        unnest(@params::text[]) AS params, unnest(@outcome_checks::text[]) AS outcome_check, unnest(@exclusive_keys::text[]) AS exclusive_key,
        unnest(@claimed_ats::timestamptz[]) AS claimed_at, unnest(@send_befores::timestamptz[]) AS send_before, unnest(@costs::text[]) AS costs, unnest(@counts::text[]) AS counts,
        unnest(@key_sums::bytea[]) AS key_sums) d;

-- name: CallsRead :many
-- Calls of one budget, with the budget, and the time.
SELECT sqlc.embed(c), sqlc.embed(b), (SELECT flow.clock())::timestamptz AS now
FROM flow.budget b CROSS JOIN flow.call c
WHERE b.domain = @domain AND b.bucket = @bucket AND c.id = ANY(@ids::uuid[]) ORDER BY c.id;

-- name: CallIs :one
SELECT EXISTS (SELECT FROM flow.call WHERE id = @id AND owner = @owner);

-- name: CallOpened :execrows
-- Notes by what name the provider knows the job of a call that is under way still.
UPDATE flow.call SET reference = @reference::text WHERE id = @id AND state = 'intent';

-- name: CallMove :execrows
-- Moves calls that are still in the state that they were seen in, with as many of their records resolved. What is looked into keeps
-- what was said of it first. settled are their records that an answer settles which leaves others open.
UPDATE flow.call c SET state = d.state, reference = coalesce(nullif(d.reference, ''), c.reference), answered_at = @answered_at::timestamptz,
    next_check_at = nullif(d.next_check_at, '0001-01-01 00:00:00+00'), note = coalesce(nullif(d.note, ''), c.note), counts_in = coalesce(nullif(d.counts_in, '')::jsonb, c.counts_in),
    costs = coalesce(nullif(d.costs, '')::jsonb, c.costs), asked = CASE WHEN d.state = 'unresolved' THEN coalesce(nullif(d.asked, ''), c.asked) END,
    failure = CASE WHEN d.state IN ('unknown', 'unresolved') THEN coalesce(c.failure, nullif(d.failure, '')) ELSE nullif(d.failure, '') END,
    exclusive_key = CASE WHEN d.state IN ('intent', 'unknown', 'awaiting') THEN c.exclusive_key END,
    key_sums = CASE WHEN d.state IN ('intent', 'unknown', 'awaiting') THEN c.key_sums END, resolved = c.resolved + d.settled
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@states::text[]) AS state, unnest(@refs::text[]) AS reference,
        unnest(@next_check_ats::timestamptz[]) AS next_check_at, unnest(@notes::text[]) AS note, unnest(@counts_in::text[]) AS counts_in, unnest(@failures::text[]) AS failure,
        unnest(@costs::text[]) AS costs, unnest(@asked::text[]) AS asked,
        unnest(@seen::text[]) AS seen, unnest(@resolved::int[]) AS resolved, unnest(@settled::int[]) AS settled) d
WHERE c.id = d.id AND c.state = d.seen AND c.resolved = d.resolved;

-- name: CallsForget :execrows
-- Ends calls that succeeded and that nobody will ask for again, if nobody else has settled them.
DELETE FROM flow.call WHERE id = ANY(@ids::uuid[]) AND state = 'intent' AND resolved = 0;

-- name: CallPostpone :exec
UPDATE flow.call SET next_check_at = @next_check_at, checks = checks + @checks, asked = CASE WHEN @checks > 0 THEN nullif(@asked::text, '') ELSE asked END
WHERE id = @id AND state IN ('unknown', 'awaiting');

-- name: CallReferences :many
-- Which of these references already settle another call.
SELECT reference::text FROM flow.call WHERE domain = @domain AND bucket = @bucket AND reference = ANY(@refs::text[]) AND NOT id = ANY(@ids::uuid[]);

-- name: CallsUnderWay :many
-- The calls of a budget that their sender has not settled. Whether it may still be sending, their caller finds out.
SELECT id, claimed_at, send_before FROM flow.call WHERE domain = @domain AND bucket = @bucket AND state = 'intent' ORDER BY send_before;

-- name: CallsCheckNow :exec
-- After a step of the clock: nobody knows any more when the next question about a call was to be.
UPDATE flow.call SET next_check_at = flow.clock() WHERE state IN ('unknown', 'awaiting') AND next_check_at > (SELECT flow.clock());

-- name: CallsToCheck :many
-- The calls whose next question is due, but for some: organizations take turns, first those of which the fewest are looked into
-- already (under_way, one for each). One that was asked about often gives way to those that fell due a little later, so that new
-- ones are soon asked about however many cannot be found out.
SELECT sqlc.embed(c) FROM (
    SELECT d.id, d.due,
        row_number() OVER (PARTITION BY d.org_id ORDER BY d.due) + cardinality(array_positions(@under_way::uuid[], d.org_id)) AS turn
    FROM (
        SELECT q.id, q.org_id, q.next_check_at + make_interval(secs => 10 * least(q.checks, 30)) AS due FROM flow.call q
        WHERE q.domain = @domain AND q.bucket = @bucket AND q.state IN ('unknown', 'awaiting')
            AND q.next_check_at <= (SELECT flow.clock()) AND NOT q.id = ANY(@skip::uuid[])
    ) d
    ORDER BY turn, d.due LIMIT @max_calls
) t JOIN flow.call c ON c.id = t.id ORDER BY t.turn, t.due;

-- name: CallsNextCheck :one
-- When the next question about a call of a budget is due.
SELECT coalesce(min(next_check_at), '0001-01-01 00:00:00+00')::timestamptz AS at
FROM flow.call WHERE domain = @domain AND bucket = @bucket AND state IN ('unknown', 'awaiting');

-- name: LedgerRead :many
SELECT * FROM flow.ledger WHERE domain = @domain AND bucket = @bucket AND ends_at > @since ORDER BY window_seconds, starts_at;

-- name: LedgerDebit :execrows
-- Debits every window, each only if its cap holds; the caller rolls back unless every row is written.
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, own, cap, by_credential)
SELECT @domain, @bucket, d.seconds, d.starts_at, d.ends_at, @calls::int, d.cap, @by_credential::jsonb
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at, unnest(@ends::timestamptz[]) AS ends_at,
        unnest(@caps::int[]) AS cap) d
WHERE @calls <= d.cap
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET own = l.own + excluded.own, cap = excluded.cap,
    by_credential = flow.tally(l.by_credential, excluded.by_credential)
WHERE l.own + l.foreign_spend + excluded.own <= (
    SELECT (@caps::int[])[array_position(@seconds::int[], l.window_seconds)]);

-- name: RollingRead :many
-- What counts of the rolling windows of a budget.
SELECT window_seconds, cell, own, foreign_spend FROM flow.rolling WHERE domain = @domain AND bucket = @bucket AND ends_at > @now::timestamptz;

-- name: RollingDebit :execrows
-- Debits a rolling window whose cap holds; the caller rolls back unless the row is written.
INSERT INTO flow.rolling AS r (domain, bucket, window_seconds, cell, ends_at, own)
SELECT @domain, @bucket, d.seconds, @cell::bigint, @ends_at::timestamptz, @calls::int FROM (SELECT @window_seconds::int AS seconds) d
WHERE flow.rolling_used(@domain, @bucket, d.seconds, @now::timestamptz) + @calls::int <= @cap::int
ON CONFLICT (domain, bucket, window_seconds, cell) DO UPDATE SET own = r.own + excluded.own;

-- name: LedgerClamp :execrows
-- Raises what is spent of a window to what the provider told in an answer; it is never lowered by one.
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, foreign_spend)
VALUES (@domain, @bucket, @window_seconds, @starts_at, @ends_at, @observed)
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET foreign_spend = excluded.foreign_spend - l.own
WHERE l.own + l.foreign_spend < excluded.foreign_spend;

-- name: RollingPrune :exec
-- Deletes cells of a rolling window that count no more, so that those that do are found among few.
DELETE FROM flow.rolling WHERE domain = @domain AND bucket = @bucket AND window_seconds = @window_seconds AND cell < @cell;

-- name: RollingRelease :exec
UPDATE flow.rolling r SET own = greatest(0, r.own - d.calls)
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@cells::bigint[]) AS cell, unnest(@calls::int[]) AS calls) d
WHERE r.domain = @domain AND r.bucket = @bucket AND r.window_seconds = d.seconds AND r.cell = d.cell;

-- name: RollingAdd :exec
-- Puts calls into cells whatever the caps are: those that were debited in others, and those that were made already. own and foreign_spend
-- are added up.
INSERT INTO flow.rolling AS r (domain, bucket, window_seconds, cell, ends_at, own, foreign_spend)
SELECT @domain, @bucket, unnest(@seconds::int[]), unnest(@cells::bigint[]), unnest(@ends::timestamptz[]), unnest(@own::int[]), unnest(@foreign_spend::int[])
ON CONFLICT (domain, bucket, window_seconds, cell) DO UPDATE SET own = r.own + excluded.own, foreign_spend = r.foreign_spend + excluded.foreign_spend;

-- name: CallNote :exec
-- Writes down a question of the service's own that was answered, and debits it whatever the windows leave.
WITH call AS (
    INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check, claimed_at, send_before,
        answered_at, counts_in)
    VALUES (@id, @org_id, @domain, @bucket, 'interactive', '', 'settled', @owner, 0, '', '{}', 'safe', @asked_at, @answered_at, @answered_at, @counts_in)
)
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, own, cap)
SELECT @domain, @bucket, unnest(@seconds::int[]), unnest(@starts::timestamptz[]), unnest(@ends::timestamptz[]), 1, unnest(@caps::int[])
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET own = l.own + 1, cap = excluded.cap;

-- name: LedgerRelease :exec
UPDATE flow.ledger l SET own = greatest(0, l.own - d.calls), by_credential = flow.tally(l.by_credential, d.less::jsonb)
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at, unnest(@calls::int[]) AS calls, unnest(@less::text[]) AS less) d
WHERE l.domain = @domain AND l.bucket = @bucket AND l.window_seconds = d.seconds AND l.starts_at = d.starts_at;

-- name: LedgerObserve :exec
-- Takes over what the provider counted. The caller holds the budget's lock.
INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, foreign_spend, unsure, observed, observed_at, drift, alarm_drift, cap)
VALUES (@domain, @bucket, @window_seconds, @starts_at, @ends_at, @foreign_spend, @unsure, @observed, @observed_at, @drift, @alarm_drift, sqlc.narg('cap'))
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET
    foreign_spend = excluded.foreign_spend, unsure = excluded.unsure, observed = excluded.observed, observed_at = excluded.observed_at,
    cap = coalesce(excluded.cap, ledger.cap), drift = excluded.drift, alarm_drift = excluded.alarm_drift;

-- name: LedgerIsOpen :one
-- Whether credentials spent of an account in a window that is not over: questions of the service's own call for no further reading.
SELECT EXISTS (SELECT FROM flow.ledger WHERE domain = @domain AND by_credential <> '{}' AND ends_at > (SELECT flow.clock()));

-- name: CallsSince :many
-- Calls that a reading of the provider's counters up to since may not hold: those that went since then or, slow ones, were
-- answered since, and those of which nobody knows whether they arrived, as long as a window of theirs can be open. Those that the provider
-- did not count are in no window. Calls that were
-- claimed together count in the same windows: they are counted here, because there may be tens of thousands. They are those of all
-- buckets in whose queues calls wait that may spend the budget. Questions of the service's own, which no credential spends, are not young:
-- a reading is one itself.
SELECT bucket, counts_in, sum(coalesce((costs->>(@of_bucket::text))::int, 1))::bigint AS calls, bool_or(state <> 'unresolved' AND credential_id IS NOT NULL)::boolean AS young FROM flow.call
WHERE domain = @domain AND bucket = ANY(@lines::text[]) AND counts_in <> '{}' AND (
    claimed_at > @since
    OR (answered_at - claimed_at > interval '1 second' AND answered_at > @since)
    OR state IN ('intent', 'unknown')
    OR (state = 'unresolved' AND claimed_at > @oldest))
GROUP BY bucket, counts_in;

-- name: DomainCaps :one
-- The provider's limits of a bucket that were read, by window, and the lowest margin of the organizations that use the account: those
-- with an active credential of it, which the provider has identified and whose newest secret it has not refused, and the one that has it
-- for itself.
SELECT (SELECT coalesce(array_agg(l.window_seconds ORDER BY l.window_seconds), '{}') FROM flow.domain_limit l
        WHERE l.tenancy_id = @tenancy_id AND l.bucket = @bucket)::int[] AS windows,
    (SELECT coalesce(array_agg(l.cap ORDER BY l.window_seconds), '{}') FROM flow.domain_limit l
        WHERE l.tenancy_id = @tenancy_id AND l.bucket = @bucket)::int[] AS caps,
    (SELECT coalesce(min(m.percent), 100) FROM flow.domain_margin m WHERE m.tenancy_id = @tenancy_id AND m.bucket = @bucket
        AND (EXISTS (SELECT FROM flow.domain a WHERE a.tenancy_id = m.tenancy_id AND a.org_id = m.org_id)
            OR EXISTS (SELECT FROM flow.credential c WHERE c.tenancy_id = m.tenancy_id AND c.org_id = m.org_id AND c.status = 'active' AND c.deleted_at IS NULL
            AND (c.last_verified IS NOT NULL OR NOT EXISTS (SELECT FROM flow.credential_use u WHERE u.credential_id = c.id
                AND u.last_failure_class = 'AUTH_FAILED' AND u.last_failed_at > coalesce(u.last_succeeded_at, '-infinity'))))))::int AS margin,
    coalesce((SELECT d.time_zone FROM flow.domain d WHERE d.tenancy_id = @tenancy_id), '')::text AS time_zone;

-- name: BudgetZone :exec
UPDATE flow.budget SET time_zone = @time_zone WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetsUnaligned :many
-- The budgets of an account that do not go by its time zone yet.
SELECT b.bucket FROM flow.domain d JOIN flow.budget b ON b.domain = d.tenancy_id
WHERE d.tenancy_id = @domain AND b.metered AND b.time_zone <> d.time_zone ORDER BY b.bucket;

-- name: CallsUnaligned :many
-- Calls of a budget whose windows are read again, with when they can have arrived: those that are not over, and those that a reading of
-- the provider's counters may miss. They may wait in queues of other budgets.
SELECT id, bucket, counts_in, claimed_at, (CASE WHEN state IN ('settled', 'refused', 'awaiting') THEN least(answered_at, send_before) ELSE send_before END)::timestamptz AS until
FROM flow.call WHERE domain = @domain AND bucket = ANY(@lines::text[]) AND counts_in <> '{}' AND (
    claimed_at > @since
    OR (answered_at - claimed_at > interval '1 second' AND answered_at > @since)
    OR state IN ('intent', 'unknown', 'awaiting')
    OR (state = 'unresolved' AND claimed_at > @oldest))
ORDER BY id;

-- name: CallsAlign :exec
UPDATE flow.call c SET counts_in = d.counts_in::jsonb
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@counts_in::text[]) AS counts_in) d WHERE c.id = d.id;

-- name: CallsCounted :many
-- Calls that count in windows of a budget, by when they can have arrived.
SELECT claimed_at, (CASE WHEN state IN ('settled', 'refused', 'awaiting') THEN least(answered_at, send_before) ELSE send_before END)::timestamptz AS until,
    coalesce(credential_id, '00000000-0000-0000-0000-000000000000')::uuid AS credential_id,
    sum(coalesce((costs->>(@bucket::text))::int, 1))::bigint AS calls
FROM flow.call WHERE domain = @domain AND bucket = ANY(@lines::text[]) AND counts_in <> '{}' AND claimed_at > @since
    AND (bucket = @bucket OR EXISTS (SELECT FROM jsonb_object_keys(counts_in) w WHERE split_part(w, ' ', 2) = @bucket::text))
GROUP BY 1, 2, 3;

-- name: LedgerAlign :exec
-- Makes windows with what may count in them. One that is there already never counts less than before.
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, own, foreign_spend, cap, by_credential)
SELECT @domain, @bucket, d.seconds, d.starts_at, d.ends_at, d.own, d.foreign_spend, d.cap, d.by_credential::jsonb
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at, unnest(@ends::timestamptz[]) AS ends_at,
        unnest(@own::int[]) AS own, unnest(@foreign_spend::int[]) AS foreign_spend, unnest(@caps::int[]) AS cap,
        unnest(@by_credential::text[]) AS by_credential) d
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET own = greatest(l.own, excluded.own), ends_at = excluded.ends_at,
    by_credential = CASE WHEN excluded.own > l.own THEN excluded.by_credential ELSE l.by_credential END,
    foreign_spend = greatest(l.foreign_spend, excluded.foreign_spend), cap = excluded.cap;

-- name: DomainLimitPut :exec
INSERT INTO flow.domain_limit (tenancy_id, bucket, window_seconds, cap, read_at) VALUES (@tenancy_id, @bucket, @window_seconds, @cap, flow.clock())
ON CONFLICT (tenancy_id, bucket, window_seconds) DO UPDATE SET cap = excluded.cap, read_at = excluded.read_at;

-- name: DomainGet :one
SELECT * FROM flow.domain WHERE tenancy_id = @tenancy_id;

-- name: DomainAnswered :exec
-- The provider answered a question of ours within so many seconds; the longest counts, and is forgotten little by little.
UPDATE flow.domain SET answers_in = greatest(@answered_in::float8, 0.9 * answers_in) WHERE tenancy_id = @tenancy_id;

-- name: DomainCredential :one
-- A credential by which an account can be asked about itself.
SELECT id FROM flow.credential WHERE tenancy_id = @tenancy_id AND org_id = @org_id AND status = 'active' AND deleted_at IS NULL
ORDER BY id LIMIT 1;

-- name: LaneCharge :exec
WITH org AS (
    INSERT INTO flow.budget_org (domain, bucket, org_id, vstart, vtime) VALUES (@domain, @bucket, @org_id, @org_vstart, @org_vtime)
    ON CONFLICT (domain, bucket, org_id) DO UPDATE SET vstart = excluded.vstart, vtime = excluded.vtime
)
INSERT INTO flow.budget_org_lane (domain, bucket, org_id, lane, vstart, vtime) VALUES (@domain, @bucket, @org_id, @lane, @vstart, @vtime)
ON CONFLICT (domain, bucket, org_id, lane) DO UPDATE SET vstart = excluded.vstart, vtime = excluded.vtime;

-- name: LaneList :many
-- What an organization set for its lanes of an account.
SELECT * FROM flow.domain_lane WHERE org_id = @org_id AND tenancy_id = @tenancy_id;

-- name: LaneSet :one
INSERT INTO flow.domain_lane (org_id, tenancy_id, lane, weight, max_concurrent_calls) VALUES (@org_id, @tenancy_id, @lane, @weight, @max_concurrent_calls)
ON CONFLICT (org_id, tenancy_id, lane) DO UPDATE SET weight = excluded.weight, max_concurrent_calls = excluded.max_concurrent_calls, updated_at = excluded.updated_at
RETURNING *;

-- name: MarginList :many
-- The margins of an account by bucket: that of the organization (0: none) and the lowest of all that use it, as DomainCaps says.
SELECT m.bucket, coalesce(min(m.percent) FILTER (WHERE EXISTS (SELECT FROM flow.domain a WHERE a.tenancy_id = m.tenancy_id AND a.org_id = m.org_id)
        OR EXISTS (SELECT FROM flow.credential c WHERE c.tenancy_id = m.tenancy_id AND c.org_id = m.org_id AND c.status = 'active' AND c.deleted_at IS NULL
        AND (c.last_verified IS NOT NULL OR NOT EXISTS (SELECT FROM flow.credential_use u WHERE u.credential_id = c.id
            AND u.last_failure_class = 'AUTH_FAILED' AND u.last_failed_at > coalesce(u.last_succeeded_at, '-infinity'))))), 100)::int AS lowest,
    coalesce(max(m.percent) FILTER (WHERE m.org_id = @org_id), 0)::int AS own,
    coalesce(max(m.updated_at) FILTER (WHERE m.org_id = @org_id), '0001-01-01 00:00:00+00')::timestamptz AS updated_at
FROM flow.domain_margin m WHERE m.tenancy_id = @tenancy_id GROUP BY m.bucket;

-- name: MarginSet :exec
INSERT INTO flow.domain_margin (tenancy_id, bucket, org_id, percent) VALUES (@tenancy_id, @bucket, @org_id, @percent)
ON CONFLICT (tenancy_id, bucket, org_id) DO UPDATE SET percent = excluded.percent, updated_at = excluded.updated_at;

-- name: BudgetsLock :many
-- Locks every budget of an account against claims.
SELECT bucket FROM flow.budget WHERE domain = @domain ORDER BY bucket FOR NO KEY UPDATE;

-- name: BudgetsOf :many
SELECT bucket FROM flow.budget WHERE domain = @domain ORDER BY bucket;

-- name: BudgetWaits :many
-- Those of these budgets of an account for which work waits.
SELECT b.bucket::text FROM unnest(@buckets::text[]) AS b (bucket)
WHERE EXISTS (SELECT FROM flow.lane_batch q WHERE q.domain = @domain AND q.bucket = b.bucket AND q.open AND q.listed AND q.ready_parts > 0)
ORDER BY b.bucket;

-- name: CredentialDomain :one
SELECT c.status, c.tenancy_id, d.time_zone FROM flow.credential c LEFT JOIN flow.domain d ON d.tenancy_id = c.tenancy_id
WHERE c.id = @id AND c.org_id = @org_id AND c.deleted_at IS NULL;

-- name: BudgetCommitted :one
-- Whether the budget was there before this transaction.
SELECT EXISTS (SELECT FROM flow.budget WHERE domain = @domain AND bucket = @bucket AND xmin::text::bigint <> txid_current() % 4294967296);

-- name: DomainAnyOrg :one
-- An organization whose credential may ask an account about itself.
SELECT org_id FROM flow.credential WHERE tenancy_id = @tenancy_id AND status = 'active' AND deleted_at IS NULL ORDER BY id LIMIT 1;

-- name: CallsDoubtedAt :many
-- The calls of unknown outcome that may cover a record.
SELECT c.id FROM flow.part p JOIN flow.call c ON c.id = p.call_id
WHERE p.batch_id = @batch_id AND c.org_id = @org_id AND c.state IN ('unknown', 'unresolved')
    AND flow.slice_at(@batch_id::uuid, @position::bigint) BETWEEN p.slice_no AND p.last_no
ORDER BY c.id;

-- name: CallsDoubtedOf :many
-- The calls of unknown outcome that cover records of a batch, from one on.
SELECT c.id, c.state, c.failure, c.asked FROM flow.call c
WHERE c.id IN (SELECT p.call_id FROM flow.part p WHERE p.batch_id = @batch_id AND p.call_id > @after)
    AND c.org_id = @org_id AND c.state IN ('unknown', 'unresolved')
ORDER BY c.id LIMIT @max_calls;

-- name: CallsLock :many
SELECT sqlc.embed(c), sqlc.embed(b) FROM flow.call c JOIN flow.budget b ON b.domain = c.domain AND b.bucket = c.bucket
WHERE c.id = ANY(@ids::uuid[]) AND c.state IN ('unknown', 'unresolved') ORDER BY c.id FOR UPDATE OF c;

-- name: ResolutionsInsert :exec
-- Writes down what was said of records, with the places that they had in their call, and that the call is without them now.
WITH call AS (
    UPDATE flow.call SET resolved = resolved + cardinality(@call_rows::int[]) WHERE id = @call_id
)
INSERT INTO flow.resolution (call_id, call_row, org_id, batch_id, position, outcome, note, account_id, created_at)
SELECT @call_id, r.call_row, @org_id, @batch_id, r.position, @outcome, @note, @account_id, @created_at
FROM (SELECT unnest(@call_rows::int[]) AS call_row, unnest(@positions::bigint[]) AS position) r;

-- name: ResolutionsOfCall :many
SELECT call_row, outcome FROM flow.resolution WHERE call_id = @call_id ORDER BY call_row;

-- name: ResolutionContradict :exec
UPDATE flow.resolution r SET contradiction = d.truth
FROM (SELECT unnest(@call_ids::uuid[]) AS call_id, unnest(@call_rows::int[]) AS call_row, unnest(@truths::text[]) AS truth) d
WHERE r.call_id = d.call_id AND r.call_row = d.call_row AND r.contradiction IS NULL;
