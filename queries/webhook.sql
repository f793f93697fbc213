-- name: WebhookAdd :exec
INSERT INTO flow.webhook (id, org_id, place, definition_id, description, mode, provider, input_template, dispatch_retry,
    rate_limit, enabled,
    secret_version, window_began_at, created_by, created_at, updated_at)
VALUES (@id, @org_id, @place, @definition_id, @description, @mode, @provider, sqlc.narg('input_template'),
    sqlc.narg('dispatch_retry'),
    sqlc.narg('rate_limit'), @enabled, @secret_version, @now, @created_by, @now, @now);

-- name: WebhookGet :one
-- IS TRUE keeps all but the key out of the choice of an index.
SELECT * FROM flow.webhook WHERE id = @id AND (org_id = @org_id AND deleted_at IS NULL) IS TRUE;

-- name: WebhookList :many
-- In insertion order, between two places.
SELECT * FROM flow.webhook
WHERE org_id = @org_id AND place BETWEEN @least AND @most AND deleted_at IS NULL
    AND (sqlc.narg('definition_id')::uuid IS NULL OR definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY place LIMIT @max_rows;

-- name: WebhookListNewest :many
-- WebhookList from the newest on.
SELECT * FROM flow.webhook
WHERE org_id = @org_id AND place BETWEEN @least AND @most AND deleted_at IS NULL
    AND (sqlc.narg('definition_id')::uuid IS NULL OR definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY place DESC LIMIT @max_rows;

-- name: WebhookCount :one
SELECT count(*) FROM flow.webhook
WHERE org_id = @org_id AND place BETWEEN @least AND @most AND deleted_at IS NULL
    AND (sqlc.narg('definition_id')::uuid IS NULL OR definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'));

-- name: WebhookLock :one
-- Locks a webhook of an organization. Deliveries to it wait.
SELECT * FROM flow.webhook WHERE id = @id AND (org_id = @org_id AND deleted_at IS NULL) IS TRUE FOR NO KEY UPDATE;

-- name: WebhookUpdate :exec
UPDATE flow.webhook SET definition_id = @definition_id, description = @description,
    input_template = sqlc.narg('input_template'),
    dispatch_retry = sqlc.narg('dispatch_retry'), rate_limit = sqlc.narg('rate_limit'), enabled = @enabled,
        updated_at = @now
WHERE org_id = @org_id AND id = @id;

-- name: WebhookRotate :exec
UPDATE flow.webhook SET secret_version = @secret_version, updated_at = @now WHERE org_id = @org_id AND id = @id;

-- name: WebhookDelete :exec
UPDATE flow.webhook SET enabled = false, updated_at = @now, deleted_at = @now WHERE org_id = @org_id AND id = @id;

-- name: WebhookNames :one
-- Whether a webhook names the definition, and whether deliveries that one which was deleted had accepted wait for its
-- start.
SELECT coalesce(bool_or(w.deleted_at IS NULL), false)::boolean AS named,
    coalesce(bool_or(w.deleted_at IS NOT NULL AND EXISTS (SELECT FROM flow.webhook_delivery d WHERE d.webhook_id = w.id
        AND d.next_at IS NOT NULL)), false)::boolean AS waits
FROM flow.webhook w WHERE w.org_id = @org_id AND w.definition_id = @definition_id;

-- name: WebhookFind :one
-- What stands at an address, and the time. Version 0: nothing does, or it is switched off.
SELECT flow.clock()::timestamptz AS now, coalesce(w.org_id, '00000000-0000-0000-0000-000000000000')::uuid AS org_id,
    coalesce(w.secret_version, 0)::bigint AS secret_version
FROM (SELECT @id::uuid AS id) asked
    LEFT JOIN LATERAL (
        SELECT h.org_id, h.secret_version FROM flow.webhook h JOIN flow.organization o ON o.id = h.org_id
        WHERE h.id = asked.id AND (h.enabled AND h.deleted_at IS NULL) IS TRUE AND o.status = 'active'
    ) w ON true;

-- name: WebhookAccept :many
-- Adds deliveries of different messages, or counts copies of those that are known, and wakes the dispatch, unless their
-- batches are started in the same transaction, with the ids of the deliveries: all of it, under the lock of a webhook
-- that is switched on, or nothing where its secrets are others, the time is not between two times, or its minute has no
-- room for so many; copies need none, however low the limit has become. Returns a row for each message; one without a
-- delivery where nothing was done, and none where there is no such webhook, or its organization is not active. That a
-- message is known the unique index says, whatever the planner knows of the table, and whoever wrote it down while this
-- statement waited for the lock. They come in the order of their messages, in which starts lock deliveries, too.
WITH hook AS MATERIALIZED (
    SELECT w.id, w.org_id, w.secret_version, coalesce(w.rate_limit, @default_rate::int) AS most, w.window_began_at,
        w.window_used
    FROM flow.webhook w WHERE w.id = @id AND (w.enabled AND w.deleted_at IS NULL) IS TRUE
        AND EXISTS (SELECT FROM flow.organization o WHERE o.id = w.org_id AND o.status = 'active' OFFSET 0)
    FOR NO KEY UPDATE
), clocked AS MATERIALIZED (
    SELECT h.*, flow.clock() AS now FROM hook h
), spanned AS MATERIALIZED ( -- one that has ended, or begins far ahead because the clock was set back, is a new one
    SELECT c.id, c.org_id, c.secret_version, c.most, c.now, CASE WHEN o.over THEN c.now
        ELSE c.window_began_at END AS began,
        CASE WHEN o.over THEN 0 ELSE c.window_used END AS used
    FROM clocked c, LATERAL (SELECT abs(extract(epoch FROM c.now - c.window_began_at)) >= 60 AS over) o
), taken AS (
    SELECT * FROM spanned m
    WHERE m.secret_version = @secret_version::bigint AND m.now BETWEEN @earliest::timestamptz AND @latest::timestamptz
        AND (@needed::int = 0 OR m.most - m.used >= @needed)
), added AS (
    INSERT INTO flow.webhook_delivery AS d (webhook_id, id, org_id, message_id, received_at, duplicates, content_type,
        content_encoding,
        body, packed, size_bytes, status, attempts, next_at)
    SELECT t.id, n.id, t.org_id, n.message_id, t.now, n.copies, nullif(n.content_type, ''), nullif(n.content_encoding,
        ''),
        n.body, n.packed, n.size_bytes, CASE WHEN @started::boolean THEN 'dispatched' ELSE 'accepted' END,
            @started::int,
        CASE WHEN NOT @started THEN t.now END
    FROM taken t, (SELECT unnest(@ids::uuid[]) AS id,
        unnest(@message_ids::text[]) AS message_id, unnest(@copies::bigint[]) AS copies,
        unnest(@content_types::text[]) AS content_type, unnest(@content_encodings::text[]) AS content_encoding,
        unnest(@bodies::bytea[]) AS body, unnest(@packed::boolean[]) AS packed, unnest(@sizes::int[]) AS size_bytes) n
    ON CONFLICT (webhook_id, message_id) DO UPDATE SET duplicates = d.duplicates + 1 + excluded.duplicates
    RETURNING d.id, d.message_id, d.xmax = 0 AS new -- xmax: what is changed has it of its lock
), counted AS (
    UPDATE flow.webhook w SET window_began_at = t.began, window_used = t.used + n.new, delivery_count = w.delivery_count
        + n.new
    FROM taken t, (SELECT count(*) FILTER (WHERE a.new) AS new FROM added a) n
    WHERE w.id = t.id AND n.new > 0
    RETURNING NOT @started AND flow.wake(@due_kind::text, w.id::text, t.now, @lease_seconds::float8) AS startable
)
SELECT m.secret_version, m.now::timestamptz AS now, m.began::timestamptz AS began, m.used::bigint AS used,
    m.most::bigint AS most,
    coalesce(a.id, '00000000-0000-0000-0000-000000000000')::uuid AS delivery_id, coalesce(a.message_id,
        '')::text AS message_id,
    coalesce(a.new, false)::boolean AS new, coalesce((SELECT c.startable FROM counted c), false)::boolean AS startable
FROM spanned m LEFT JOIN added a ON true;

-- name: WebhookStart :one
-- A webhook and the version of its flow, where that can be started, and nobody changes it just now: it waits for
-- nobody.
SELECT sqlc.embed(w), d.version FROM flow.webhook w JOIN flow.definition d ON d.org_id = w.org_id
    AND d.id = w.definition_id
WHERE w.id = @id AND d.deleted_at IS NULL AND d.status = 'active'
FOR KEY SHARE OF d SKIP LOCKED;

-- name: WebhookForDispatch :one
-- Also one that was deleted: what it has accepted is still dispatched.
SELECT * FROM flow.webhook WHERE id = @id;

-- name: DeliveryKnown :many
-- Which of these messages have a delivery.
SELECT o.message_id FROM unnest(@message_ids::text[]) AS m(message_id)
    CROSS JOIN LATERAL (
        SELECT d.message_id FROM flow.webhook_delivery d WHERE d.webhook_id = @webhook_id
            AND d.message_id = m.message_id OFFSET 0
    ) o;

-- name: DeliveryWaiting :many
-- Deliveries whose start is due, the longest due first: some, of at most max_bytes together, but one at least.
SELECT d.* FROM (
    SELECT w.org_id, w.id, sum(w.size_bytes) OVER (ORDER BY w.next_at, w.id) - w.size_bytes AS earlier FROM (
        SELECT e.org_id, e.id, e.next_at, e.size_bytes FROM flow.webhook_delivery e
        WHERE e.webhook_id = @webhook_id AND e.next_at <= (SELECT flow.clock()) ORDER BY e.next_at, e.id LIMIT @max_rows
    ) w
) p
CROSS JOIN LATERAL (
    SELECT * FROM flow.webhook_delivery x WHERE x.org_id = p.org_id AND x.webhook_id = @webhook_id
        AND x.id = p.id OFFSET 0
) d
WHERE p.earlier < @max_bytes::bigint ORDER BY d.next_at, d.id;

-- name: DeliveryNext :one
-- When the next start is due; null for none.
SELECT next_at FROM flow.webhook_delivery WHERE webhook_id = @webhook_id AND next_at IS NOT NULL ORDER BY next_at, id
    LIMIT 1;

-- name: DeliveryLockWaiting :many
-- Locks those of the deliveries that still wait for their start, in the order in which copies of them are counted.
WITH locked AS MATERIALIZED (
    SELECT d.id, d.attempts, d.message_id, d.received_at, d.next_at
    FROM (SELECT @org_id::uuid AS org_id, @webhook_id::uuid AS webhook_id, unnest(@ids::uuid[]) AS id) n
    JOIN flow.webhook_delivery d ON d.org_id = n.org_id AND d.webhook_id = n.webhook_id AND d.id = n.id
    ORDER BY d.message_id COLLATE "C" FOR NO KEY UPDATE OF d
)
SELECT l.id, l.attempts, l.received_at, (SELECT flow.clock())::timestamptz AS now FROM locked l
    WHERE l.next_at IS NOT NULL
    ORDER BY l.message_id COLLATE "C";

-- name: DeliveryDispatched :exec
UPDATE flow.webhook_delivery d SET status = 'dispatched', attempts = attempts + 1, next_at = NULL, last_error = NULL,
    batch_id = nullif(n.batch_id, d.id)
FROM (SELECT @org_id::uuid AS org_id, @webhook_id::uuid AS webhook_id, unnest(@ids::uuid[]) AS id,
    unnest(@batch_ids::uuid[]) AS batch_id) n
WHERE d.org_id = n.org_id AND d.webhook_id = n.webhook_id AND d.id = n.id;

-- name: DeliveryFailed :exec
-- Without a next time it is dead.
UPDATE flow.webhook_delivery SET status = CASE WHEN sqlc.narg('next_at')::timestamptz IS NULL THEN 'dead'
    ELSE 'failed' END, attempts = attempts + 1,
    next_at = sqlc.narg('next_at'), last_error = @last_error::text
WHERE org_id = @org_id AND webhook_id = @webhook_id AND id = @id;

-- name: DeliveryList :many
-- In the order of arrival, between two ids.
SELECT id, message_id, received_at, status, duplicates, content_type, size_bytes, batch_id, attempts, last_error
    FROM flow.webhook_delivery
WHERE webhook_id = @webhook_id AND org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('status') IS NULL OR sqlc.narg('status') NOT IN ('accepted', 'failed')
        OR next_at IS NOT NULL) -- they have an index
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR received_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR received_at < sqlc.narg('created_before'))
ORDER BY id LIMIT @max_rows;

-- name: DeliveryListNewest :many
-- DeliveryList from the newest on.
SELECT id, message_id, received_at, status, duplicates, content_type, size_bytes, batch_id, attempts, last_error
    FROM flow.webhook_delivery
WHERE webhook_id = @webhook_id AND org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('status') IS NULL OR sqlc.narg('status') NOT IN ('accepted', 'failed')
        OR next_at IS NOT NULL) -- they have an index
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR received_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR received_at < sqlc.narg('created_before'))
ORDER BY id DESC LIMIT @max_rows;

-- name: DeliveryTotal :one
-- As DeliveryCounts, of a time.
SELECT count(*) FROM flow.webhook_delivery
WHERE webhook_id = @webhook_id AND org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('status') IS NULL OR sqlc.narg('status') NOT IN ('accepted', 'failed')
        OR next_at IS NOT NULL) -- they have an index
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR received_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR received_at < sqlc.narg('created_before'));

-- name: DeliveryCounts :one
-- How many deliveries of a webhook started no batch, by status.
SELECT count(*) FILTER (WHERE d.status = 'accepted') AS accepted, count(*) FILTER (WHERE d.status = 'failed') AS failed,
    count(*) FILTER (WHERE d.status = 'dead') AS dead
FROM (
    SELECT w.status FROM flow.webhook_delivery w WHERE w.org_id = @org_id AND w.webhook_id = @webhook_id
        AND w.next_at IS NOT NULL
    UNION ALL SELECT o.status FROM flow.webhook_delivery o WHERE o.org_id = @org_id AND o.webhook_id = @webhook_id
        AND o.status = 'dead'
) d;

-- name: DeliveryGet :one
SELECT * FROM flow.webhook_delivery WHERE webhook_id = @webhook_id AND org_id = @org_id AND id = @id;

-- name: DeliveryLock :one
-- What there is of a delivery, and its lock; starts of it wait.
SELECT id, status FROM flow.webhook_delivery WHERE webhook_id = @webhook_id AND org_id = @org_id AND id = @id
    FOR NO KEY UPDATE;

-- name: DeliveryReplay :one
UPDATE flow.webhook_delivery SET status = 'accepted', attempts = 0, next_at = flow.clock(), last_error = NULL
WHERE org_id = @org_id AND webhook_id = @webhook_id AND id = @id
RETURNING id, message_id, received_at, status, duplicates, content_type, size_bytes, batch_id, attempts, last_error;

-- name: HousekeepNextWebhook :one
-- A webhook whose oldest delivery that is over is old.
SELECT w.id FROM flow.webhook w
CROSS JOIN LATERAL (
    SELECT d.received_at FROM flow.webhook_delivery d WHERE d.org_id = w.org_id AND d.webhook_id = w.id
        AND d.next_at IS NULL ORDER BY d.id LIMIT 1
) oldest
WHERE oldest.received_at < flow.kept_since(w.org_id, 'deliveries', @keep_seconds) LIMIT 1;

-- name: HousekeepDeliveries :one
-- Those of one webhook, whose lock is taken first, as by those that accept messages. They arrived in the order of their
-- ids.
WITH hook AS MATERIALIZED (
    SELECT w.org_id, w.id FROM flow.webhook w WHERE w.id = @webhook_id FOR NO KEY UPDATE
), gone AS (
    DELETE FROM flow.webhook_delivery d USING (
        SELECT o.org_id, o.webhook_id, o.id FROM hook, flow.webhook_delivery o
        WHERE o.org_id = hook.org_id AND o.webhook_id = hook.id AND o.next_at IS NULL
        ORDER BY o.id LIMIT @max_rows
    ) old
    WHERE d.org_id = old.org_id AND d.webhook_id = old.webhook_id AND d.id = old.id AND d.next_at IS NULL
        AND d.received_at < flow.kept_since(d.org_id, 'deliveries', @keep_seconds)
    RETURNING d.id
), counted AS (
    UPDATE flow.webhook w SET delivery_count = w.delivery_count - (SELECT count(*) FROM gone) FROM hook
        WHERE w.id = hook.id
)
SELECT count(*) FROM gone;

-- name: HousekeepWebhooks :execrows
-- Deleted webhooks that have no deliveries left.
DELETE FROM flow.webhook w USING (
    SELECT o.id FROM flow.webhook o
    WHERE o.deleted_at < (SELECT flow.clock()) - interval '90 days' AND NOT EXISTS (SELECT FROM flow.webhook_delivery d
        WHERE d.org_id = o.org_id AND d.webhook_id = o.id)
    ORDER BY o.deleted_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
) old
WHERE w.id = old.id;
