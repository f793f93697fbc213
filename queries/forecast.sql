-- name: DomainList :many
-- The accounts that an organization knows of platforms that meter them, and its credentials that it limits, in
-- insertion order from one on.
SELECT sqlc.embed(d), coalesce(t.label, k.name, '')::text AS label, t.created_at AS known_at,
    coalesce(t.limits, k.limits) AS limits,
    (SELECT coalesce(array_agg(c.id ORDER BY c.id), '{}') FROM flow.credential c
        WHERE (c.tenancy_id = d.tenancy_id OR c.id = d.credential_id) AND c.org_id = @org_id
            AND c.deleted_at IS NULL)::uuid[] AS credential_ids,
    (SELECT coalesce(max(l.read_at), '0001-01-01 00:00:00+00') FROM flow.domain_limit l
        WHERE l.tenancy_id = d.tenancy_id)::timestamptz AS limits_read_at
FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id LEFT JOIN flow.credential k
    ON k.id = d.credential_id
WHERE t.org_id = @org_id AND (d.platform_id = ANY(@metered::text[]) OR d.credential_id IS NOT NULL)
    AND (sqlc.narg('platform_id')::text IS NULL OR d.platform_id = sqlc.narg('platform_id'))
    AND (sqlc.narg('tenancy_id')::text IS NULL OR t.tenancy_id = sqlc.narg('tenancy_id'))
    AND (t.created_at, t.tenancy_id) > (@after_created_at::timestamptz, @after_id::text)
ORDER BY t.created_at, t.tenancy_id LIMIT @max_rows OFFSET @skip_rows;

-- name: DomainTotal :one
SELECT count(*) FROM flow.tenant t JOIN flow.domain d ON d.tenancy_id = t.tenancy_id
WHERE t.org_id = @org_id AND (d.platform_id = ANY(@metered::text[]) OR d.credential_id IS NOT NULL)
    AND d.platform_id = @platform_id;

-- name: DomainDispatched :one
-- Whether anything was ever sent to an account but questions of the service's own.
-- A call is in one of two indexes of its account, or in both; calls that are gone were counted in windows of an hour
-- and more, of which there are few, or in the longest of their budget: of those that have a cap, since the provider may
-- count longer ones than we debit.
SELECT (EXISTS (SELECT FROM flow.call c WHERE c.domain = @domain AND c.credential_id IS NOT NULL AND c.state = 'intent')
    OR EXISTS (SELECT FROM flow.call c WHERE c.domain = @domain AND c.credential_id IS NOT NULL
        AND (c.counts_in <> '{}' OR c.state <> 'intent'))
    OR EXISTS (SELECT FROM flow.budget b CROSS JOIN LATERAL (
        SELECT w.window_seconds FROM flow.ledger w WHERE w.domain = b.domain AND w.bucket = b.bucket
            AND w.cap IS NOT NULL
        ORDER BY w.window_seconds DESC LIMIT 1
    ) longest CROSS JOIN LATERAL (
        SELECT FROM flow.ledger w WHERE w.domain = b.domain AND w.bucket = b.bucket
            AND w.window_seconds >= least(longest.window_seconds, 3600) AND w.by_credential <> '{}'
        ORDER BY w.window_seconds DESC, w.starts_at DESC LIMIT 1
    ) l WHERE b.domain = @domain))::boolean AS dispatched;

-- name: LedgerOpen :many
-- The windows of an account's budgets that are not over.
SELECT l.bucket, l.window_seconds, l.starts_at, l.own, l.foreign_spend, l.unsure, l.by_credential
FROM unnest(@buckets::text[]) AS b (bucket)
CROSS JOIN LATERAL (
    SELECT * FROM flow.ledger w WHERE w.domain = @domain AND w.bucket = b.bucket AND w.ends_at > @now::timestamptz
    OFFSET 0
) l;

-- name: RollingOpen :many
-- What counts of the rolling windows of an account.
SELECT bucket, window_seconds, cell, own, foreign_spend FROM flow.rolling WHERE domain = @domain
    AND ends_at > @now::timestamptz;

-- name: BudgetDelays :many
-- What delays the budgets of an account besides their windows: the spacing of calls, and the automatic backoff.
SELECT b.bucket, b.next_call_at, coalesce(h.expires_at, '0001-01-01 00:00:00+00')::timestamptz AS held_until,
    coalesce(h.cause, '')::text AS cause
FROM flow.budget b
LEFT JOIN flow.pause h ON h.domain = b.domain AND h.bucket = b.bucket AND h.scope = 'bucket' AND h.status = 'active'
    AND h.expires_at > @now::timestamptz
WHERE b.domain = @domain;

-- name: DomainPausedUntil :one
-- When the last hold ends that covers all calls of an organization to an account; the year 9999 for one without an end.
SELECT coalesce(max(h.ends_at), '0001-01-01 00:00:00+00')::timestamptz AS until FROM flow.pauses_over(@org_id::uuid,
    @domain::text, NULL) h;

-- name: LanesPausedUntil :one
-- When the last pause of people ends that covers calls of an organization to an account in any of some lanes, and what
-- causes such pauses; the year 9999 for one without an end.
SELECT coalesce(max(h.ends_at), '0001-01-01 00:00:00+00')::timestamptz AS until,
    coalesce(array_agg(DISTINCT h.cause ORDER BY h.cause) FILTER (WHERE h.cause IS NOT NULL), '{}')::text[] AS causes
FROM unnest(@lanes::text[]) l CROSS JOIN LATERAL flow.pauses_over(@org_id::uuid, @domain::text, l::flow.lane) h;

-- name: CredentialNames :many
-- Which of these credentials are an organization's own, with their names.
SELECT id, name, deleted_at FROM flow.credential WHERE org_id = @org_id AND id = ANY(@ids::uuid[]);

-- name: LedgerHistory :many
-- The windows of an account in which something was spent or observed, newest first, from one on.
SELECT bucket, window_seconds, starts_at, own, (foreign_spend - unsure)::int AS likely_foreign, cap, observed
    FROM flow.ledger
WHERE domain = @domain AND starts_at > @since::timestamptz
    AND (sqlc.narg('bucket')::text IS NULL OR bucket = sqlc.narg('bucket'))
    AND (sqlc.narg('window_seconds')::int IS NULL OR window_seconds = sqlc.narg('window_seconds'))
    AND (starts_at, bucket, window_seconds) < (@before_starts_at::timestamptz, @before_bucket::text,
        @before_seconds::int)
ORDER BY starts_at DESC, bucket DESC, window_seconds DESC LIMIT @max_rows;

-- name: BatchQueues :many
-- The queues of a batch, one for each task of it that makes calls.
SELECT q.step_no, q.task_no, q.domain, q.bucket, b.definition_id, b.version
FROM flow.lane_batch q JOIN flow.batch b ON b.id = q.batch_id WHERE b.id = @batch_id AND b.org_id = @org_id;

-- name: BatchEstimateKeep :exec
INSERT INTO flow.batch_estimate (batch_id, org_id, made_at, tenancy_id, bucket, calls, day_percent, ends_at, unknown)
VALUES (@batch_id, @org_id, @made_at, @tenancy_id, @bucket, @calls, @day_percent, @ends_at, @unknown);

-- name: BatchEstimateRead :one
SELECT * FROM flow.batch_estimate WHERE batch_id = @batch_id AND (org_id = @org_id) IS TRUE;
