-- What was spent of budgets, by window.

-- name: LedgerRead :many
SELECT * FROM flow.ledger WHERE domain = @domain AND bucket = @bucket AND ends_at > @since ORDER BY window_seconds,
    starts_at;

-- name: LedgerDebit :execrows
-- Debits every window, each only if its cap holds; the caller rolls back unless every row is written.
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, own, cap, by_credential)
SELECT @domain, @bucket, d.seconds, d.starts_at, d.ends_at, @calls::int, d.cap, @by_credential::jsonb
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at,
    unnest(@ends::timestamptz[]) AS ends_at,
        unnest(@caps::int[]) AS cap) d
WHERE @calls <= d.cap
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET own = l.own + excluded.own, cap = excluded.cap,
    by_credential = flow.tally(l.by_credential, excluded.by_credential)
WHERE l.own + l.foreign_spend + excluded.own <= (
    SELECT (@caps::int[])[array_position(@seconds::int[], l.window_seconds)]);

-- name: RollingRead :many
-- What counts of the rolling windows of a budget.
SELECT window_seconds, cell, own, foreign_spend FROM flow.rolling WHERE domain = @domain AND bucket = @bucket
    AND ends_at > @now::timestamptz;

-- name: RollingDebit :execrows
-- Debits a rolling window whose cap holds; the caller rolls back unless the row is written.
INSERT INTO flow.rolling AS r (domain, bucket, window_seconds, cell, ends_at, own)
SELECT @domain, @bucket, d.seconds, @cell::bigint, @ends_at::timestamptz, @calls::int
    FROM (SELECT @window_seconds::int AS seconds) d
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
DELETE FROM flow.rolling WHERE domain = @domain AND bucket = @bucket AND window_seconds = @window_seconds
    AND cell < @cell;

-- name: RollingRelease :exec
UPDATE flow.rolling r SET own = greatest(0, r.own - d.calls)
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@cells::bigint[]) AS cell, unnest(@calls::int[]) AS calls) d
WHERE r.domain = @domain AND r.bucket = @bucket AND r.window_seconds = d.seconds AND r.cell = d.cell;

-- name: RollingAdd :exec
-- Puts calls into cells whatever the caps are: those that were debited in others, and those that were made already. own
-- and foreign_spend are added up.
INSERT INTO flow.rolling AS r (domain, bucket, window_seconds, cell, ends_at, own, foreign_spend)
SELECT @domain, @bucket, unnest(@seconds::int[]), unnest(@cells::bigint[]), unnest(@ends::timestamptz[]),
    unnest(@own::int[]), unnest(@foreign_spend::int[])
ON CONFLICT (domain, bucket, window_seconds, cell) DO UPDATE SET own = r.own + excluded.own,
    foreign_spend = r.foreign_spend + excluded.foreign_spend;

-- name: LedgerRelease :exec
UPDATE flow.ledger l SET own = greatest(0, l.own - d.calls), by_credential = flow.tally(l.by_credential, d.less::jsonb)
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at,
    unnest(@calls::int[]) AS calls, unnest(@less::text[]) AS less) d
WHERE l.domain = @domain AND l.bucket = @bucket AND l.window_seconds = d.seconds AND l.starts_at = d.starts_at;

-- name: LedgerObserve :exec
-- Takes over what the provider counted. The caller holds the budget's lock.
INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, foreign_spend, unsure, observed,
    observed_at, drift, alarm_drift, cap)
VALUES (@domain, @bucket, @window_seconds, @starts_at, @ends_at, @foreign_spend, @unsure, @observed, @observed_at,
    @drift, @alarm_drift, sqlc.narg('cap'))
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET
    foreign_spend = excluded.foreign_spend, unsure = excluded.unsure, observed = excluded.observed,
        observed_at = excluded.observed_at,
    cap = coalesce(excluded.cap, ledger.cap), drift = excluded.drift, alarm_drift = excluded.alarm_drift;

-- name: LedgerIsOpen :one
-- Whether credentials spent of an account in a window that is not over: questions of the service's own call for no
-- further reading.
SELECT EXISTS (SELECT FROM flow.budget b CROSS JOIN LATERAL (
    SELECT FROM flow.ledger w WHERE w.domain = b.domain AND w.bucket = b.bucket AND w.by_credential <> '{}'
        AND w.ends_at > (SELECT flow.clock()) LIMIT 1
) l WHERE b.domain = @domain);

-- name: LedgerAlign :exec
-- Makes windows with what may count in them. One that is there already never counts less than before.
INSERT INTO flow.ledger AS l (domain, bucket, window_seconds, starts_at, ends_at, own, foreign_spend, cap,
    by_credential)
SELECT @domain, @bucket, d.seconds, d.starts_at, d.ends_at, d.own, d.foreign_spend, d.cap, d.by_credential::jsonb
FROM (SELECT unnest(@seconds::int[]) AS seconds, unnest(@starts::timestamptz[]) AS starts_at,
    unnest(@ends::timestamptz[]) AS ends_at,
        unnest(@own::int[]) AS own, unnest(@foreign_spend::int[]) AS foreign_spend, unnest(@caps::int[]) AS cap,
        unnest(@by_credential::text[]) AS by_credential) d
ON CONFLICT (domain, bucket, window_seconds, starts_at) DO UPDATE SET own = greatest(l.own, excluded.own),
    ends_at = excluded.ends_at,
    by_credential = CASE WHEN excluded.own > l.own THEN excluded.by_credential ELSE l.by_credential END,
    foreign_spend = greatest(l.foreign_spend, excluded.foreign_spend), cap = excluded.cap;
