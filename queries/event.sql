-- name: EventEmit :many
-- A row for each subscription that hears of these events, in their order, and who those are. Where nobody does, a look
-- into an index is all.
INSERT INTO flow.event_delivery (subscription_id, org_id, event_id, event_kind, depth, root_id, payload, created_at)
SELECT s.id, s.org_id, e.id, s.event_kind, e.depth, e.root_id, e.payload, (SELECT flow.clock())
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@org_ids::uuid[]) AS org_id, unnest(@kinds::text[]) AS kind,
    unnest(@depths::smallint[]) AS depth, unnest(@root_ids::uuid[]) AS root_id,
        unnest(@payloads::text[])::json AS payload, generate_series(1, cardinality(@ids::uuid[])) AS no) e
JOIN flow.event_subscription s ON s.org_id = e.org_id AND s.event_kind = e.kind AND s.enabled
ORDER BY e.no, s.id
RETURNING subscription_id;

-- name: EventBatchesEnded :many
-- As EventEmit, of batches that are over in this transaction. The end of one that no chain led to begins one; that of
-- one that was there in a time that a restore has lost goes on with one, so that what comes of it is known to have
-- perhaps come before.
INSERT INTO flow.event_delivery (subscription_id, org_id, event_id, event_kind, depth, root_id, payload, created_at)
SELECT s.id, s.org_id, e.id, s.event_kind, b.event_depth,
    coalesce(b.root_id, CASE WHEN b.created_at <= @lost_until::timestamptz THEN b.id END, e.id), flow.batch_event(b.id),
    (SELECT flow.clock())
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@batch_ids::uuid[]) AS batch_id) e
JOIN flow.batch b ON b.id = e.batch_id
JOIN flow.batch_count c ON c.batch_id = b.id
CROSS JOIN LATERAL ( -- by the index, whatever the planner thinks of few batches and few subscriptions
    SELECT l.id, l.org_id, l.event_kind FROM flow.event_subscription l
    WHERE l.org_id = b.org_id AND l.event_kind = 'batch.' || c.status::text AND l.enabled OFFSET 0
) s
ORDER BY b.id, s.id
RETURNING subscription_id;

-- name: EventWaited :one
-- Which of these events tasks wait for. From here on nobody begins to wait in their organizations until the transaction
-- ends.
SELECT flow.event_waited(@org_ids::uuid[], @kinds::text[])::boolean[] AS waited;

-- name: EventBatchesWaited :one
-- As EventWaited, of batches that are over in this transaction.
SELECT flow.event_waited(array_agg(b.org_id ORDER BY e.place), array_agg('batch.' || b.status::text
    ORDER BY e.place))::boolean[] AS waited
FROM (SELECT unnest(@batch_ids::uuid[]) AS id, generate_series(1, cardinality(@batch_ids::uuid[])) AS place) e
    JOIN flow.batch_count b ON b.batch_id = e.id;

-- name: EventArrive :exec
-- Leaves events, in their order, for the tasks that wait.
INSERT INTO flow.event_arrival (org_id, event_id, event_kind, payload, occurred_at)
SELECT e.org_id, e.id, e.kind, e.payload, (SELECT flow.clock())
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@org_ids::uuid[]) AS org_id, unnest(@kinds::text[]) AS kind,
    unnest(@payloads::text[])::json AS payload,
        generate_series(1, cardinality(@ids::uuid[])) AS place) e
ORDER BY e.place;

-- name: EventBatchesArrive :many
-- As EventArrive, of batches that are over in this transaction; says in which organizations.
INSERT INTO flow.event_arrival (org_id, event_id, event_kind, payload, occurred_at)
SELECT b.org_id, e.id, 'batch.' || b.status::text, flow.batch_event(b.batch_id), (SELECT flow.clock())
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@batch_ids::uuid[]) AS batch_id) e JOIN flow.batch_count b
    ON b.batch_id = e.batch_id
ORDER BY b.batch_id
RETURNING org_id;

-- name: EventSubscriptionAdd :exec
INSERT INTO flow.event_subscription (id, org_id, definition_id, description, event_kind, filter, input_template,
    enabled, created_by, created_at, updated_at)
VALUES (@id, @org_id, @definition_id, @description, @event_kind, sqlc.narg('filter'), sqlc.narg('input_template'),
    @enabled, @created_by, @now, @now);

-- name: EventSubscriptionGet :one
SELECT * FROM flow.event_subscription WHERE org_id = @org_id AND id = @id;

-- name: EventSubscriptionList :many
-- In insertion order, between two ids.
SELECT * FROM flow.event_subscription
WHERE org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('definition_id')::uuid IS NULL OR definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('event_kind')::text IS NULL OR event_kind = sqlc.narg('event_kind'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY id LIMIT @max_rows OFFSET @skip;

-- name: EventSubscriptionListNewest :many
-- EventSubscriptionList from the newest on.
SELECT * FROM flow.event_subscription
WHERE org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('definition_id')::uuid IS NULL OR definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('event_kind')::text IS NULL OR event_kind = sqlc.narg('event_kind'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'))
ORDER BY id DESC LIMIT @max_rows OFFSET @skip;

-- name: EventSubscriptionCount :one
SELECT count(*) FROM flow.event_subscription
WHERE org_id = @org_id AND id BETWEEN @least AND @most
    AND (sqlc.narg('definition_id')::uuid IS NULL OR definition_id = sqlc.narg('definition_id'))
    AND (sqlc.narg('event_kind')::text IS NULL OR event_kind = sqlc.narg('event_kind'))
    AND (sqlc.narg('created_after')::timestamptz IS NULL OR created_at >= sqlc.narg('created_after'))
    AND (sqlc.narg('created_before')::timestamptz IS NULL OR created_at < sqlc.narg('created_before'));

-- name: EventSubscriptionLock :one
-- Locks a subscription of an organization. What starts its batches waits.
SELECT * FROM flow.event_subscription WHERE org_id = @org_id AND id = @id FOR NO KEY UPDATE;

-- name: EventSubscriptionLockDue :one
-- Locks a subscription to which events may have come.
SELECT * FROM flow.event_subscription WHERE id = @id FOR NO KEY UPDATE;

-- name: EventSubscriptionUpdate :exec
UPDATE flow.event_subscription SET definition_id = @definition_id, description = @description, event_kind = @event_kind,
    filter = sqlc.narg('filter'),
    input_template = sqlc.narg('input_template'), enabled = @enabled, updated_at = @now
WHERE org_id = @org_id AND id = @id;

-- name: EventSubscriptionDelete :exec
DELETE FROM flow.event_subscription WHERE org_id = @org_id AND id = @id;

-- name: EventSubscriptionNote :exec
-- What became of events: how many started a batch, how many should have, and why the last of those did not.
UPDATE flow.event_subscription SET started_count = started_count + @started::bigint, failed_count = failed_count
    + @failed::bigint,
    last_started_at = CASE WHEN @started::bigint > 0 THEN @now::timestamptz ELSE last_started_at END,
    last_failed_at = CASE WHEN @failed::bigint > 0 THEN @now::timestamptz ELSE last_failed_at END,
    last_error = coalesce(sqlc.narg('last_error')::text, last_error)
WHERE id = @id;

-- name: EventSubscriptionNames :one
-- Whether a subscription names the definition.
SELECT EXISTS (SELECT FROM flow.event_subscription WHERE org_id = @org_id AND definition_id = @definition_id);

-- name: EventDeliveries :many
-- The oldest events that have not reached a subscription.
SELECT id, event_id, event_kind, depth, root_id, payload FROM flow.event_delivery
    WHERE subscription_id = @subscription_id ORDER BY id LIMIT @max_rows;

-- name: EventDeliveryDelete :execrows
DELETE FROM flow.event_delivery WHERE id = ANY(@ids::bigint[]);

-- name: EventDeliveryClear :execrows
-- Events for a subscription that hears of nothing.
DELETE FROM flow.event_delivery d WHERE d.id IN (
    SELECT o.id FROM flow.event_delivery o WHERE o.subscription_id = @subscription_id ORDER BY o.id LIMIT @max_rows);
