-- +goose Up
-- What a message costs until it is acknowledged.

-- Who adds a delivery holds the lock of its webhook, which goes only when it has no deliveries: nothing is left to check for each row.
ALTER TABLE flow.webhook_delivery DROP CONSTRAINT webhook_delivery_webhook_id_fkey;

-- Only what is over grows old.
DROP INDEX flow.webhook_delivery_by_age;
CREATE INDEX webhook_delivery_by_age ON flow.webhook_delivery (received_at) WHERE next_at IS NULL;

-- A process from before this does not count what it unpacks, so that it can neither start a flow with a packed body nor give one up.
ALTER TABLE flow.webhook_delivery ADD COLUMN unpacked integer, ADD CONSTRAINT webhook_delivery_unpacked CHECK (unpacked = attempts) NOT VALID;
COMMENT ON COLUMN flow.webhook_delivery.unpacked IS 'How many of its attempts have unpacked body, which is compressed (s2): all of them. Null where body is as it was sent.';
COMMENT ON COLUMN flow.webhook_delivery.body IS 'The bytes that were signed, as they are or packed.';
COMMENT ON COLUMN flow.webhook_delivery.size_bytes IS 'How many bytes were signed.';

-- +goose Down
COMMENT ON COLUMN flow.webhook_delivery.body IS 'The bytes that were signed.';
COMMENT ON COLUMN flow.webhook_delivery.size_bytes IS 'How many those are.';
ALTER TABLE flow.webhook_delivery DROP COLUMN unpacked;
DROP INDEX flow.webhook_delivery_by_age;
CREATE INDEX webhook_delivery_by_age ON flow.webhook_delivery (received_at);
ALTER TABLE flow.webhook_delivery ADD FOREIGN KEY (webhook_id) REFERENCES flow.webhook (id);
