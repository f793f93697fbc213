-- Calls, from their intent to their settlement, and what people say of those that nobody knows the outcome of.

-- name: CallsOfOthers :many
-- How many calls of each lane other processes than this one may have under way. Whether a call's time is over, the
-- database's clock cannot tell, which may have stepped: whoever finds that out moves it.
SELECT c.org_id, c.lane, count(*)::int AS calls FROM flow.call c
WHERE c.domain = @domain::text AND c.bucket = @bucket::text AND c.state = 'intent' AND c.owner <> @owner
GROUP BY c.org_id, c.lane;

-- name: CallBarred :one
-- Whether a call of these batches must not go out now: one of them is over, stopped or paused, people hold its lane, or
-- the call is not under way any more, be it that a restore has forgotten it. One statement sees every pause and cancel
-- that was answered before it began.
SELECT (NOT EXISTS (SELECT FROM flow.call c WHERE c.id = @id AND c.state = 'intent')
    OR EXISTS (SELECT FROM flow.batch_count b WHERE b.batch_id = ANY(@batch_ids::uuid[]) AND (b.status NOT IN ('queued',
        'running') OR b.stopped_at IS NOT NULL))
    OR EXISTS (SELECT FROM flow.pauses_over(@org_id, @domain, @lane::flow.lane)))::boolean AS barred;

-- name: CallsExclusive :many
SELECT exclusive_key::text FROM flow.call WHERE domain = @domain AND exclusive_key = ANY(@keys::text[]);

-- name: CallInsert :exec
-- counts are the windows of one call, where these are not those of all.
INSERT INTO flow.call (id, org_id, batch_id, domain, bucket, lane, action_id, credential_id, state, owner, attempt,
    records, digest, first_key, last_key,
    params, outcome_check, exclusive_key, claimed_at, send_before, counts_in, costs, key_sums)
SELECT d.id, d.org_id, nullif(d.batch_id, '00000000-0000-0000-0000-000000000000'), @domain, @bucket, d.lane::flow.lane,
    d.action_id, nullif(d.credential_id, '00000000-0000-0000-0000-000000000000'), 'intent', @owner,
    d.attempt, d.records, d.digest, nullif(d.first_key, ''), nullif(d.last_key, ''), d.params, d.outcome_check,
        nullif(d.exclusive_key, ''),
    d.claimed_at, d.send_before, coalesce(nullif(d.counts, '')::jsonb, @counts_in::jsonb) AS counts_in,
        nullif(d.costs, '')::jsonb, d.key_sums
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@org_ids::uuid[]) AS org_id, unnest(@batch_ids::uuid[]) AS batch_id,
    unnest(@lanes::text[]) AS lane, unnest(@action_ids::text[]) AS action_id,
        unnest(@credential_ids::uuid[]) AS credential_id, unnest(@attempts::int[]) AS attempt,
            unnest(@records::int[]) AS records,
        unnest(@digests::text[]) AS digest, unnest(@first_keys::text[]) AS first_key,
            unnest(@last_keys::text[]) AS last_key,
        unnest(@params::text[]) AS params, unnest(@outcome_checks::text[]) AS outcome_check,
            unnest(@exclusive_keys::text[]) AS exclusive_key,
        unnest(@claimed_ats::timestamptz[]) AS claimed_at, unnest(@send_befores::timestamptz[]) AS send_before,
            unnest(@costs::text[]) AS costs, unnest(@counts::text[]) AS counts,
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
-- Moves calls that are still in the state that they were seen in, with as many of their records resolved. What is
-- looked into keeps what was said of it first. settled are their records that an answer settles which leaves others
-- open.
UPDATE flow.call c SET state = d.state, reference = coalesce(nullif(d.reference, ''), c.reference),
    answered_at = @answered_at::timestamptz,
    next_check_at = nullif(d.next_check_at, '0001-01-01 00:00:00+00'), note = coalesce(nullif(d.note, ''), c.note),
        counts_in = coalesce(nullif(d.counts_in, '')::jsonb, c.counts_in),
    costs = coalesce(nullif(d.costs, '')::jsonb, c.costs),
        asked = CASE WHEN d.state = 'unresolved' THEN coalesce(nullif(d.asked, ''), c.asked) END,
    failure = CASE WHEN d.state IN ('unknown', 'unresolved') THEN coalesce(c.failure, nullif(d.failure, ''))
        ELSE nullif(d.failure, '') END,
    exclusive_key = CASE WHEN d.state IN ('intent', 'unknown', 'awaiting') THEN c.exclusive_key END,
    key_sums = CASE WHEN d.state IN ('intent', 'unknown', 'awaiting') THEN c.key_sums END, resolved = c.resolved
        + d.settled
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@states::text[]) AS state, unnest(@refs::text[]) AS reference,
        unnest(@next_check_ats::timestamptz[]) AS next_check_at, unnest(@notes::text[]) AS note,
            unnest(@counts_in::text[]) AS counts_in, unnest(@failures::text[]) AS failure,
        unnest(@costs::text[]) AS costs, unnest(@asked::text[]) AS asked,
        unnest(@seen::text[]) AS seen, unnest(@resolved::int[]) AS resolved, unnest(@settled::int[]) AS settled) d
WHERE c.id = d.id AND c.state = d.seen AND c.resolved = d.resolved;

-- name: CallsForget :execrows
-- Ends calls that succeeded and that nobody will ask for again, if nobody else has settled them.
DELETE FROM flow.call WHERE id = ANY(@ids::uuid[]) AND state = 'intent' AND resolved = 0;

-- name: CallPostpone :exec
UPDATE flow.call SET next_check_at = @next_check_at, checks = checks + @checks,
    asked = CASE WHEN @checks > 0 THEN nullif(@asked::text, '') ELSE asked END
WHERE id = @id AND state IN ('unknown', 'awaiting');

-- name: CallReferences :many
-- Which of these references already settle another call.
SELECT reference::text FROM flow.call WHERE domain = @domain AND bucket = @bucket AND reference = ANY(@refs::text[])
    AND NOT id = ANY(@ids::uuid[]);

-- name: CallSame :one
-- Whether another call of a budget has sent the same, and is under way, or of unknown outcome and older.
SELECT EXISTS (SELECT FROM flow.call c WHERE c.domain = @domain AND c.bucket = @bucket
    AND (c.state = 'intent' OR c.state = 'unknown' AND c.id < @id) AND c.id <> @id AND c.action_id = @action_id
    AND c.digest = @digest AND c.params = @params);

-- name: CallsUnderWay :many
-- The calls of a budget that their sender has not settled. Whether it may still be sending, their caller finds out.
SELECT id, claimed_at, send_before FROM flow.call WHERE domain = @domain AND bucket = @bucket AND state = 'intent'
    ORDER BY send_before;

-- name: CallsCheckNow :exec
-- After a step of the clock: nobody knows any more when the next question about a call was to be.
UPDATE flow.call SET next_check_at = flow.clock() WHERE state IN ('unknown', 'awaiting')
    AND next_check_at > (SELECT flow.clock());

-- name: CallsToCheck :many
-- The calls whose next question is due, but for some: organizations take turns, first those of which the fewest are
-- looked into already (under_way, one for each). One that was asked about often gives way to those that fell due a
-- little later, so that new ones are soon asked about however many cannot be found out.
SELECT sqlc.embed(c) FROM (
    SELECT d.id, d.due,
        row_number() OVER (PARTITION BY d.org_id ORDER BY d.due) + cardinality(array_positions(@under_way::uuid[],
            d.org_id)) AS turn
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

-- name: CallNote :exec
-- Writes down a question of the service's own that was answered, and debits it whatever the windows leave.
WITH call AS (
    INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params,
        outcome_check, claimed_at, send_before,
        answered_at, counts_in)
    VALUES (@id, @org_id, @domain, @bucket, 'interactive', '', 'settled', @owner, 0, '', '{}', 'safe', @asked_at,
        @answered_at, @answered_at, @counts_in)
)
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, own, cap)
SELECT @domain, @bucket, unnest(@seconds::int[]), unnest(@starts::timestamptz[]), unnest(@ends::timestamptz[]), 1,
    unnest(@caps::int[])
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET own = l.own + 1, cap = excluded.cap;

-- name: CallsSince :many
-- Calls that a reading of the provider's counters up to since may not hold: those that went since then or, slow ones,
-- were answered since, and those of which nobody knows whether they arrived, as long as a window of theirs can be open.
-- Those that the provider did not count are in no window. Calls that were claimed together count in the same windows:
-- they are counted here, because there may be tens of thousands. They are those of all buckets in whose queues calls
-- wait that may spend the budget. Questions of the service's own, which no credential spends, are not young: a reading
-- is one itself.
SELECT bucket, counts_in, sum(coalesce((costs->>(@of_bucket::text))::int, 1))::bigint AS calls,
    bool_or(state <> 'unresolved' AND credential_id IS NOT NULL)::boolean AS young FROM flow.call
WHERE domain = @domain AND bucket = ANY(@lines::text[]) AND counts_in <> '{}' AND (
    claimed_at > @since
    OR (answered_at - claimed_at > interval '1 second' AND answered_at > @since)
    OR state IN ('intent', 'unknown')
    OR (state = 'unresolved' AND claimed_at > @oldest))
GROUP BY bucket, counts_in;

-- name: CallsUnaligned :many
-- Calls of a budget whose windows are read again, with when they can have arrived: those that are not over, and those
-- that a reading of the provider's counters may miss. They may wait in queues of other budgets.
SELECT id, bucket, counts_in, claimed_at, (CASE WHEN state IN ('settled', 'refused', 'awaiting') THEN least(answered_at,
    send_before) ELSE send_before END)::timestamptz AS until
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
SELECT claimed_at, (CASE WHEN state IN ('settled', 'refused', 'awaiting') THEN least(answered_at, send_before)
    ELSE send_before END)::timestamptz AS until,
    coalesce(credential_id, '00000000-0000-0000-0000-000000000000')::uuid AS credential_id,
    sum(coalesce((costs->>(@bucket::text))::int, 1))::bigint AS calls
FROM flow.call WHERE domain = @domain AND bucket = ANY(@lines::text[]) AND counts_in <> '{}' AND claimed_at > @since
    AND (bucket = @bucket OR EXISTS (SELECT FROM jsonb_object_keys(counts_in) w WHERE split_part(w, ' ',
        2) = @bucket::text))
GROUP BY 1, 2, 3;

-- name: CallsUncertainAt :many
-- The calls of unknown outcome that may cover a record.
SELECT c.id FROM flow.part p JOIN flow.call c ON c.id = p.call_id
WHERE p.batch_id = @batch_id AND c.org_id = @org_id AND c.state IN ('unknown', 'unresolved')
    AND flow.slice_at(@batch_id::uuid, @position::bigint) BETWEEN p.slice_no AND p.last_no
ORDER BY c.id;

-- name: CallsUncertainOf :many
-- The calls of unknown outcome that cover records of a batch, from one on.
SELECT c.id, c.state, c.failure, c.asked FROM flow.call c
WHERE c.id IN (SELECT p.call_id FROM flow.part p WHERE p.batch_id = @batch_id AND p.call_id > @after)
    AND c.org_id = @org_id AND c.state IN ('unknown', 'unresolved')
ORDER BY c.id LIMIT @max_calls;

-- name: CallsLock :many
SELECT sqlc.embed(c), sqlc.embed(b) FROM flow.call c JOIN flow.budget b ON b.domain = c.domain AND b.bucket = c.bucket
WHERE c.id = ANY(@ids::uuid[]) AND c.state IN ('unknown', 'unresolved') ORDER BY c.id FOR UPDATE OF c;

-- name: ResolutionsInsert :exec
-- Writes down what was said of records, with the places that they had in their call, and that the call is without them
-- now.
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
FROM (SELECT unnest(@call_ids::uuid[]) AS call_id, unnest(@call_rows::int[]) AS call_row,
    unnest(@truths::text[]) AS truth) d
WHERE r.call_id = d.call_id AND r.call_row = d.call_row AND r.contradiction IS NULL;
