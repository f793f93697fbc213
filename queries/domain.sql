-- Accounts of providers: their limits, lanes and margins.

-- name: DomainCaps :one
-- The provider's limits of a bucket that were read, by window, and the lowest margin of the organizations that use the
-- account: those with an active credential of it, which the provider has identified and whose newest secret it has not
-- refused, and the one that has it for itself. OFFSET 0 has each looked up, and not all credentials read.
SELECT (SELECT coalesce(array_agg(l.window_seconds ORDER BY l.window_seconds), '{}') FROM flow.domain_limit l
        WHERE l.tenancy_id = @tenancy_id AND l.bucket = @bucket)::int[] AS windows,
    (SELECT coalesce(array_agg(l.cap ORDER BY l.window_seconds), '{}') FROM flow.domain_limit l
        WHERE l.tenancy_id = @tenancy_id AND l.bucket = @bucket)::int[] AS caps,
    (SELECT coalesce(min(m.percent), 100) FROM flow.domain_margin m WHERE m.tenancy_id = @tenancy_id
        AND m.bucket = @bucket
        AND (EXISTS (SELECT FROM flow.domain a WHERE a.tenancy_id = m.tenancy_id AND a.org_id = m.org_id)
            OR EXISTS (SELECT FROM flow.credential c WHERE c.tenancy_id = m.tenancy_id AND c.org_id = m.org_id
                AND c.status = 'active' AND c.deleted_at IS NULL
            AND (c.last_verified IS NOT NULL OR NOT EXISTS (SELECT FROM flow.credential_use u
                WHERE u.credential_id = c.id
                AND u.last_failure_class = 'AUTH_FAILED' AND u.last_failed_at > coalesce(u.last_succeeded_at,
                    '-infinity')))
            OFFSET 0)))::int AS margin,
    coalesce((SELECT d.time_zone FROM flow.domain d WHERE d.tenancy_id = @tenancy_id), '')::text AS time_zone;

-- name: DomainLimitPut :exec
INSERT INTO flow.domain_limit (tenancy_id, bucket, window_seconds, cap, read_at) VALUES (@tenancy_id, @bucket,
    @window_seconds, @cap, flow.clock())
ON CONFLICT (tenancy_id, bucket, window_seconds) DO UPDATE SET cap = excluded.cap, read_at = excluded.read_at;

-- name: DomainGet :one
SELECT * FROM flow.domain WHERE tenancy_id = @tenancy_id;

-- name: DomainAnswered :exec
-- The provider answered a question of ours within so many seconds; the longest counts, and is forgotten little by
-- little.
UPDATE flow.domain SET answers_in = greatest(@answered_in::float8, 0.9 * answers_in) WHERE tenancy_id = @tenancy_id;

-- name: DomainCredential :one
-- A credential by which an account can be asked about itself.
SELECT id FROM flow.credential WHERE tenancy_id = @tenancy_id AND org_id = @org_id AND status = 'active'
    AND deleted_at IS NULL
ORDER BY id LIMIT 1;

-- name: LaneCharge :exec
WITH org AS (
    INSERT INTO flow.budget_org (domain, bucket, org_id, vstart, vtime) VALUES (@domain, @bucket, @org_id, @org_vstart,
        @org_vtime)
    ON CONFLICT (domain, bucket, org_id) DO UPDATE SET vstart = excluded.vstart, vtime = excluded.vtime
)
INSERT INTO flow.budget_org_lane (domain, bucket, org_id, lane, vstart, vtime) VALUES (@domain, @bucket, @org_id, @lane,
    @vstart, @vtime)
ON CONFLICT (domain, bucket, org_id, lane) DO UPDATE SET vstart = excluded.vstart, vtime = excluded.vtime;

-- name: LaneList :many
-- What an organization set for its lanes of an account.
SELECT * FROM flow.domain_lane WHERE org_id = @org_id AND tenancy_id = @tenancy_id;

-- name: LaneSet :one
INSERT INTO flow.domain_lane (org_id, tenancy_id, lane, weight, max_concurrent_calls) VALUES (@org_id, @tenancy_id,
    @lane, @weight, @max_concurrent_calls)
ON CONFLICT (org_id, tenancy_id, lane) DO UPDATE SET weight = excluded.weight,
    max_concurrent_calls = excluded.max_concurrent_calls, updated_at = excluded.updated_at
RETURNING *;

-- name: MarginList :many
-- The margins of an account by bucket: that of the organization (0: none) and the lowest of all that use it, as
-- DomainCaps says.
SELECT m.bucket, coalesce(min(m.percent) FILTER (WHERE EXISTS (SELECT FROM flow.domain a
    WHERE a.tenancy_id = m.tenancy_id AND a.org_id = m.org_id)
        OR EXISTS (SELECT FROM flow.credential c WHERE c.tenancy_id = m.tenancy_id AND c.org_id = m.org_id
            AND c.status = 'active' AND c.deleted_at IS NULL
        AND (c.last_verified IS NOT NULL OR NOT EXISTS (SELECT FROM flow.credential_use u WHERE u.credential_id = c.id
            AND u.last_failure_class = 'AUTH_FAILED' AND u.last_failed_at > coalesce(u.last_succeeded_at,
                '-infinity')))
        OFFSET 0)), 100)::int AS lowest,
    coalesce(max(m.percent) FILTER (WHERE m.org_id = @org_id), 0)::int AS own,
    coalesce(max(m.updated_at) FILTER (WHERE m.org_id = @org_id), '0001-01-01 00:00:00+00')::timestamptz AS updated_at
FROM flow.domain_margin m WHERE m.tenancy_id = @tenancy_id GROUP BY m.bucket;

-- name: MarginSet :exec
INSERT INTO flow.domain_margin (tenancy_id, bucket, org_id, percent) VALUES (@tenancy_id, @bucket, @org_id, @percent)
ON CONFLICT (tenancy_id, bucket, org_id) DO UPDATE SET percent = excluded.percent, updated_at = excluded.updated_at;

-- name: CredentialDomain :one
SELECT c.status, c.tenancy_id, d.time_zone FROM flow.credential c LEFT JOIN flow.domain d ON d.tenancy_id = c.tenancy_id
WHERE c.id = @id AND c.org_id = @org_id AND c.deleted_at IS NULL;

-- name: DomainAnyOrg :one
-- An organization whose credential may ask an account about itself.
SELECT org_id FROM flow.credential
WHERE tenancy_id = @tenancy_id AND (status = 'active' AND deleted_at IS NULL) IS TRUE ORDER BY id LIMIT 1;
