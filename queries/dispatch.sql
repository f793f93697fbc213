-- name: BudgetRead :one
SELECT * FROM flow.budget WHERE domain = @domain AND bucket = @bucket;

-- name: BudgetLock :one
-- Locks a budget against other claims, but not against starts that refer to it. The clock is read after the lock was had.
WITH locked AS MATERIALIZED (
    SELECT * FROM flow.budget WHERE domain = @domain AND bucket = @bucket FOR NO KEY UPDATE
)
SELECT locked.*, flow.clock()::timestamptz AS now FROM locked;

-- name: BudgetLanes :many
-- The lanes of a budget, with how many calls of each may be under way, and when the automatic backoff of the budget ends.
SELECT bl.lane, bl.weight, bl.vtime, bl.vstart, coalesce(f.calls, 0)::int AS in_flight,
    (SELECT coalesce(max(h.expires_at), '0001-01-01 00:00:00+00') FROM flow.pause h
        WHERE h.domain = @domain::text AND h.bucket = @bucket::text AND h.scope = 'bucket' AND h.status = 'active'
            AND h.expires_at > (SELECT flow.clock()))::timestamptz AS backoff_until
FROM flow.budget_lane bl
LEFT JOIN (
    SELECT c.lane, count(*) AS calls FROM flow.call c
    WHERE c.domain = @domain::text AND c.bucket = @bucket::text AND c.state = 'intent'
        AND c.send_before > (SELECT flow.clock()) - make_interval(secs => @margin_seconds::float8)
    GROUP BY c.lane
) f ON f.lane = bl.lane
WHERE bl.domain = @domain::text AND bl.bucket = @bucket::text;

-- name: QueueChoose :many
-- The batches that may go next, by lane: the lane with the least virtual time first, in it the boosted ones, then the oldest.
-- Queues to skip do not take the places of others.
SELECT bl.lane, bl.vtime, bl.weight, l.batch_id, l.step_no, l.task_no, l.org_id, l.ready_records
FROM flow.budget_lane bl
CROSS JOIN LATERAL (
    SELECT q.batch_id, q.step_no, q.task_no, q.org_id, q.high, q.ready_records
    FROM flow.lane_batch q
    WHERE q.domain = bl.domain AND q.bucket = bl.bucket AND q.lane = bl.lane AND q.open AND q.ready_parts > 0
        AND EXISTS (SELECT FROM flow.part p WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no AND p.task_no = q.task_no
            AND p.call_id IS NULL AND p.ready_at <= (SELECT flow.clock()))
        AND NOT EXISTS (SELECT FROM flow.pause h WHERE h.status = 'active' AND (h.expires_at IS NULL OR h.expires_at > (SELECT flow.clock()))
            AND ((h.scope = 'global' AND h.org_id = q.org_id) OR (h.scope = 'batch' AND h.batch_id = q.batch_id)
                OR (h.scope = 'domain' AND h.domain = q.domain AND h.org_id = q.org_id)
                OR (h.scope = 'lane' AND h.domain = q.domain AND h.lane = q.lane AND h.org_id = q.org_id)))
        AND NOT EXISTS (SELECT FROM (SELECT unnest(@skip_batches::uuid[]) AS batch_id, unnest(@skip_steps::smallint[]) AS step_no,
                unnest(@skip_tasks::smallint[]) AS task_no) s
            WHERE s.batch_id = q.batch_id AND s.step_no = q.step_no AND s.task_no = q.task_no)
    ORDER BY q.high DESC, q.batch_id LIMIT @per_lane
) l
WHERE bl.domain = @domain AND bl.bucket = @bucket
ORDER BY bl.vtime, bl.lane, l.high DESC, l.batch_id;

-- name: PartChoose :many
-- What is ready in a queue, slice by slice, in the order in which it goes.
SELECT p.id, p.batch_id, p.step_no, p.task_no, s.no AS slice_no,
    (CASE WHEN s.no = p.slice_no THEN p.from_off ELSE 0 END)::int AS from_off,
    (CASE WHEN s.no = p.last_no THEN p.to_off ELSE s.records END)::int AS to_off,
    p.apart, p.attempt, p.element, s.first, s.records AS size
FROM (
    SELECT * FROM flow.part q
    WHERE q.batch_id = @batch_id AND q.step_no = @step_no AND q.task_no = @task_no AND q.call_id IS NULL
        AND q.ready_at <= (SELECT flow.clock())
    ORDER BY q.ready_at, q.slice_no, q.from_off LIMIT @max_parts
) p
CROSS JOIN LATERAL (
    SELECT z.no, z.first, z.records FROM flow.slice z
    WHERE z.batch_id = p.batch_id AND z.no BETWEEN p.slice_no AND p.last_no ORDER BY z.no LIMIT @max_parts
) s
ORDER BY p.ready_at, p.slice_no, p.from_off, s.no LIMIT @max_parts;

-- name: QueueNextReady :one
-- When the next delayed part of a budget may be claimed.
SELECT coalesce(min(n.ready_at), '0001-01-01 00:00:00+00')::timestamptz AS at FROM flow.lane_batch q
CROSS JOIN LATERAL (
    SELECT p.ready_at FROM flow.part p
    WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no AND p.task_no = q.task_no AND p.call_id IS NULL AND p.ready_at > (SELECT flow.clock())
    ORDER BY p.ready_at LIMIT 1
) n
WHERE q.domain = @domain AND q.bucket = @bucket AND q.open AND q.ready_parts > 0;

-- name: HoldCovers :many
-- The active holds of people that cover any of these batches.
SELECT DISTINCT q.batch_id FROM flow.lane_batch q JOIN flow.pause h ON h.status = 'active' AND (h.expires_at IS NULL OR h.expires_at > (SELECT flow.clock()))
    AND ((h.scope = 'global' AND h.org_id = q.org_id) OR (h.scope = 'batch' AND h.batch_id = q.batch_id)
        OR (h.scope = 'domain' AND h.domain = q.domain AND h.org_id = q.org_id)
        OR (h.scope = 'lane' AND h.domain = q.domain AND h.lane = q.lane AND h.org_id = q.org_id))
WHERE q.batch_id = ANY(@batch_ids::uuid[]) AND q.domain = @domain AND q.bucket = @bucket;

-- name: HoldOpenBackoff :exec
-- Opens the automatic backoff of a budget, or extends the one that is open.
INSERT INTO flow.pause (id, scope, domain, bucket, cause, reason, created_at, expires_at)
VALUES (@id, 'bucket', @domain::text, @bucket::text, @cause, @reason::text, flow.clock(), @expires_at::timestamptz)
ON CONFLICT (domain, bucket) WHERE status = 'active' AND scope = 'bucket'
DO UPDATE SET expires_at = greatest(pause.expires_at, excluded.expires_at);

-- name: HoldExpire :exec
UPDATE flow.pause SET status = 'released', released_at = expires_at
WHERE domain = @domain::text AND bucket = @bucket::text AND scope = 'bucket' AND status = 'active' AND expires_at <= (SELECT flow.clock());

-- name: CallsExclusive :many
SELECT exclusive_key::text FROM flow.call WHERE domain = @domain AND exclusive_key = ANY(@keys::text[]);

-- name: CallInsert :exec
INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, credential_id, state, owner, attempt, records, digest, first_key, last_key,
    params, outcome_check, exclusive_key, claimed_at, send_before, counts_in)
SELECT d.id, d.org_id, @domain, @bucket, d.lane::flow.lane, d.action_id, nullif(d.credential_id, '00000000-0000-0000-0000-000000000000'), 'intent', @owner,
    d.attempt, d.records, d.digest, nullif(d.first_key, ''), nullif(d.last_key, ''), d.params, d.outcome_check, nullif(d.exclusive_key, ''),
    @claimed_at, d.send_before, @counts_in
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@org_ids::uuid[]) AS org_id, unnest(@lanes::text[]) AS lane, unnest(@action_ids::text[]) AS action_id,
        unnest(@credential_ids::uuid[]) AS credential_id, unnest(@attempts::int[]) AS attempt, unnest(@records::int[]) AS records,
        unnest(@digests::text[]) AS digest, unnest(@first_keys::text[]) AS first_key, unnest(@last_keys::text[]) AS last_key,
        unnest(@params::text[]) AS params, unnest(@outcome_checks::text[]) AS outcome_check, unnest(@exclusive_keys::text[]) AS exclusive_key,
        unnest(@send_befores::timestamptz[]) AS send_before) d;

-- name: CallsRead :many
-- Calls of one budget, with what says in which windows they count, and the time.
SELECT sqlc.embed(c), (SELECT b.time_zone FROM flow.budget b WHERE b.domain = @domain AND b.bucket = @bucket) AS time_zone,
    (SELECT b.service_id FROM flow.budget b WHERE b.domain = @domain AND b.bucket = @bucket) AS service_id,
    (SELECT b.metered FROM flow.budget b WHERE b.domain = @domain AND b.bucket = @bucket) AS metered,
    (SELECT flow.clock())::timestamptz AS now
FROM flow.call c WHERE c.id = ANY(@ids::uuid[]) ORDER BY c.id;

-- name: CallIs :one
SELECT EXISTS (SELECT FROM flow.call WHERE id = @id AND owner = @owner);

-- name: CallMove :execrows
-- Moves calls that are still in the state that they were seen in, with as many of their records resolved.
UPDATE flow.call c SET state = d.state, reference = coalesce(nullif(d.reference, ''), c.reference), answered_at = d.answered_at,
    next_check_at = nullif(d.next_check_at, '9999-01-01 00:00:00+00'), checks = c.checks + d.checks, note = coalesce(nullif(d.note, ''), c.note), counts_in = coalesce(nullif(d.counts_in, '')::jsonb, c.counts_in),
    exclusive_key = CASE WHEN d.state IN ('intent', 'unknown', 'awaiting') THEN c.exclusive_key END
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@states::text[]) AS state, unnest(@refs::text[]) AS reference,
        unnest(@answered_ats::timestamptz[]) AS answered_at, unnest(@next_check_ats::timestamptz[]) AS next_check_at,
        unnest(@checks::int[]) AS checks, unnest(@notes::text[]) AS note, unnest(@counts_in::text[]) AS counts_in,
        unnest(@seen::text[]) AS seen, unnest(@resolved::int[]) AS resolved) d
WHERE c.id = d.id AND c.state = d.seen AND c.resolved = d.resolved;

-- name: CallPostpone :exec
UPDATE flow.call SET next_check_at = @next_check_at, checks = checks + 1 WHERE id = @id AND state IN ('unknown', 'awaiting');

-- name: CallReferences :many
-- Which of these references already settle another call.
SELECT reference::text FROM flow.call WHERE domain = @domain AND bucket = @bucket AND reference = ANY(@refs::text[]) AND NOT id = ANY(@ids::uuid[]);

-- name: CallsOverdue :many
-- Intents whose sender can no longer be sending.
SELECT id FROM flow.call
WHERE domain = @domain AND bucket = @bucket AND state = 'intent' AND send_before <= (SELECT flow.clock()) - make_interval(secs => @margin_seconds::float8)
ORDER BY send_before LIMIT @max_calls;

-- name: CallsToCheck :many
SELECT * FROM flow.call
WHERE domain = @domain AND bucket = @bucket AND state IN ('unknown', 'awaiting') AND next_check_at <= (SELECT flow.clock())
ORDER BY next_check_at LIMIT @max_calls;

-- name: CallsNextCheck :one
-- When the next open call of a budget must be looked at.
SELECT coalesce(min(CASE WHEN state = 'intent' THEN send_before + make_interval(secs => @margin_seconds::float8) ELSE next_check_at END), '0001-01-01 00:00:00+00')::timestamptz AS at
FROM flow.call WHERE domain = @domain AND bucket = @bucket AND state IN ('intent', 'unknown', 'awaiting');

-- name: LedgerRead :many
SELECT * FROM flow.ledger WHERE domain = @domain AND bucket = @bucket AND ends_at > @since ORDER BY window_seconds, starts_at;

-- name: LedgerDebit :execrows
-- Debits every window, each only if its cap holds; the caller rolls back unless every row is written.
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, own, cap, by_credential)
SELECT @domain, @bucket, d.seconds, d.starts_at, d.ends_at, d.calls, d.cap, @by_credential::jsonb
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at, unnest(@ends::timestamptz[]) AS ends_at,
        unnest(@calls::int[]) AS calls, unnest(@caps::int[]) AS cap) d
WHERE d.calls <= d.cap
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET own = l.own + excluded.own, cap = excluded.cap,
    by_credential = flow.tally(l.by_credential, excluded.by_credential)
WHERE l.own + l.foreign_spend + excluded.own <= (
    SELECT (@caps::int[])[array_position(@seconds::int[], l.window_seconds)]);

-- name: LedgerRelease :exec
UPDATE flow.ledger l SET own = greatest(0, l.own - d.calls), by_credential = flow.tally(l.by_credential, d.less::jsonb)
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at, unnest(@calls::int[]) AS calls, unnest(@less::text[]) AS less) d
WHERE l.domain = @domain AND l.bucket = @bucket AND l.window_seconds = d.seconds AND l.starts_at = d.starts_at;

-- name: LedgerObserve :exec
-- Takes over what the provider counted. The caller holds the budget's lock.
INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, foreign_spend, observed, observed_at, cap)
VALUES (@domain, @bucket, @window_seconds, @starts_at, @ends_at, @foreign_spend, @observed, @observed_at, sqlc.narg('cap'))
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET
    cap = coalesce(excluded.cap, ledger.cap), foreign_spend = excluded.foreign_spend, observed = excluded.observed, observed_at = excluded.observed_at;

-- name: CallsSince :many
-- Calls that a reading of the provider's counters up to since may not hold yet.
SELECT counts_in FROM flow.call WHERE domain = @domain AND bucket = @bucket AND (claimed_at > @since OR state = 'intent') AND state <> 'refused';

-- name: DomainLimits :many
SELECT bucket, window_seconds, cap FROM flow.domain_limit WHERE tenancy_id = @tenancy_id;

-- name: DomainLimitPut :exec
INSERT INTO flow.domain_limit (tenancy_id, bucket, window_seconds, cap, read_at) VALUES (@tenancy_id, @bucket, @window_seconds, @cap, flow.clock())
ON CONFLICT (tenancy_id, bucket, window_seconds) DO UPDATE SET cap = excluded.cap, read_at = excluded.read_at;

-- name: DomainGet :one
SELECT * FROM flow.domain WHERE tenancy_id = @tenancy_id;

-- name: DomainCredential :one
-- A credential by which an account can be asked about itself.
SELECT id FROM flow.credential WHERE tenancy_id = @tenancy_id AND org_id = @org_id AND status = 'active' AND deleted_at IS NULL
ORDER BY id LIMIT 1;

-- name: LaneCharge :exec
UPDATE flow.budget_lane SET vstart = @vstart, vtime = @vtime WHERE domain = @domain AND bucket = @bucket AND lane = @lane;

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

-- name: CallsLock :many
SELECT sqlc.embed(c), b.time_zone, b.service_id, b.metered FROM flow.call c JOIN flow.budget b ON b.domain = c.domain AND b.bucket = c.bucket
WHERE c.id = ANY(@ids::uuid[]) AND c.state IN ('unknown', 'unresolved') ORDER BY c.id FOR UPDATE OF c;

-- name: CallResolve :exec
UPDATE flow.call SET resolved = resolved + 1 WHERE id = @id;

-- name: ResolutionInsert :exec
INSERT INTO flow.resolution (call_id, call_row, org_id, batch_id, position, outcome, note, account_id, created_at)
VALUES (@call_id, @call_row, @org_id, @batch_id, @position, @outcome, @note, @account_id, @created_at);

-- name: ResolutionsOfCalls :many
SELECT call_id, call_row, outcome FROM flow.resolution WHERE call_id = ANY(@call_ids::uuid[]) ORDER BY call_id, call_row;

-- name: ResolutionContradict :exec
UPDATE flow.resolution r SET contradiction = d.truth
FROM (SELECT unnest(@call_ids::uuid[]) AS call_id, unnest(@call_rows::int[]) AS call_row, unnest(@truths::text[]) AS truth) d
WHERE r.call_id = d.call_id AND r.call_row = d.call_row AND r.contradiction IS NULL;
