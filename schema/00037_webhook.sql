-- +goose Up
-- Webhooks start flows by signed requests of external senders.
CREATE TABLE flow.webhook (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    place uuid NOT NULL,
    definition_id uuid NOT NULL REFERENCES flow.definition (id),
    description text NOT NULL CHECK (char_length(description) BETWEEN 1 AND 200),
    mode text NOT NULL CHECK (mode = 'trigger'),
    provider text NOT NULL CHECK (provider = 'standard'),
    input_template json,
    dispatch_retry json,
    rate_limit int CHECK (rate_limit BETWEEN 1 AND 1000000),
    enabled boolean NOT NULL,
    secret_version bigint NOT NULL,
    window_began_at timestamptz NOT NULL,
    window_used int NOT NULL DEFAULT 0,
    delivery_count bigint NOT NULL DEFAULT 0 CHECK (delivery_count >= 0),
    created_by uuid NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted_at timestamptz
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX webhook_by_org ON flow.webhook (org_id, place) WHERE deleted_at IS NULL;
CREATE INDEX webhook_by_definition ON flow.webhook (definition_id) WHERE deleted_at IS NULL;
CREATE INDEX webhook_by_deletion ON flow.webhook (deleted_at) WHERE deleted_at IS NOT NULL;
COMMENT ON TABLE flow.webhook IS 'Addresses at which signed requests start flows. One that was deleted stays until its deliveries are gone, for those that still wait.';
COMMENT ON COLUMN flow.webhook.id IS '128 random bits, which the API writes as 32 hex digits. Its secrets are the row of flow.secret with the same id.';
COMMENT ON COLUMN flow.webhook.org_id IS 'The organization that owns it (flow.organization).';
COMMENT ON COLUMN flow.webhook.place IS 'Sorts by creation, which the id does not.';
COMMENT ON COLUMN flow.webhook.definition_id IS 'What its deliveries start.';
COMMENT ON COLUMN flow.webhook.description IS 'What people call it.';
COMMENT ON COLUMN flow.webhook.mode IS 'What a delivery does: start a batch.';
COMMENT ON COLUMN flow.webhook.provider IS 'How senders sign, and the first part of the address.';
COMMENT ON COLUMN flow.webhook.input_template IS 'Makes the record of a batch from the payload; null passes the whole payload.';
COMMENT ON COLUMN flow.webhook.dispatch_retry IS 'How often a start that failed is tried again, and when; null for never.';
COMMENT ON COLUMN flow.webhook.rate_limit IS 'The most deliveries that are accepted in a minute; null for 1000.';
COMMENT ON COLUMN flow.webhook.enabled IS 'False: the address answers 404.';
COMMENT ON COLUMN flow.webhook.secret_version IS 'The version of its row of flow.secret, by which a process knows that a copy is current.';
COMMENT ON COLUMN flow.webhook.window_began_at IS 'When the minute began in which deliveries are counted.';
COMMENT ON COLUMN flow.webhook.window_used IS 'How many were accepted in it.';
COMMENT ON COLUMN flow.webhook.delivery_count IS 'How many rows flow.webhook_delivery has of it.';
COMMENT ON COLUMN flow.webhook.created_by IS 'The account that created it; its batches name it, too.';
COMMENT ON COLUMN flow.webhook.created_at IS 'When people made it.';
COMMENT ON COLUMN flow.webhook.updated_at IS 'When people last changed it or its secret.';
COMMENT ON COLUMN flow.webhook.deleted_at IS 'When people deleted it; null for one that is there. Its secrets went then.';

CREATE TABLE flow.webhook_delivery (
    webhook_id uuid NOT NULL REFERENCES flow.webhook (id),
    id uuid NOT NULL,
    org_id uuid NOT NULL,
    message_id text NOT NULL,
    received_at timestamptz NOT NULL,
    duplicates bigint NOT NULL DEFAULT 0,
    content_type text,
    content_encoding text,
    body bytea NOT NULL,
    size_bytes int NOT NULL,
    status text NOT NULL CHECK (status IN ('accepted', 'dispatched', 'failed', 'dead')),
    attempts int NOT NULL DEFAULT 0,
    next_at timestamptz,
    last_error text,
    batch_id uuid REFERENCES flow.batch (id),
    PRIMARY KEY (webhook_id, id),
    CHECK ((status = 'dispatched') = (batch_id IS NOT NULL)),
    CHECK ((status IN ('accepted', 'failed')) = (next_at IS NOT NULL))
);
-- Compressing bodies would cost more of an acknowledgement than writing them.
ALTER TABLE flow.webhook_delivery ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX webhook_delivery_message ON flow.webhook_delivery (webhook_id, message_id);
CREATE INDEX webhook_delivery_by_status ON flow.webhook_delivery (webhook_id, status, id);
CREATE INDEX webhook_delivery_waiting ON flow.webhook_delivery (webhook_id, next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX webhook_delivery_by_age ON flow.webhook_delivery (received_at);
COMMENT ON TABLE flow.webhook_delivery IS 'Messages that were acknowledged. Rows older than 90 days are deleted, unless they still wait.';
COMMENT ON COLUMN flow.webhook_delivery.webhook_id IS 'Where it arrived (flow.webhook).';
COMMENT ON COLUMN flow.webhook_delivery.id IS 'Made by the service; ids sort by arrival.';
COMMENT ON COLUMN flow.webhook_delivery.org_id IS 'The organization of the webhook.';
COMMENT ON COLUMN flow.webhook_delivery.message_id IS 'What the sender calls the message; one with the same is a copy.';
COMMENT ON COLUMN flow.webhook_delivery.received_at IS 'When its first copy arrived.';
COMMENT ON COLUMN flow.webhook_delivery.duplicates IS 'How many more copies arrived.';
COMMENT ON COLUMN flow.webhook_delivery.content_type IS 'As the sender wrote it; null for none.';
COMMENT ON COLUMN flow.webhook_delivery.content_encoding IS 'As the sender wrote it; null for none.';
COMMENT ON COLUMN flow.webhook_delivery.body IS 'The bytes that were signed.';
COMMENT ON COLUMN flow.webhook_delivery.size_bytes IS 'How many those are.';
COMMENT ON COLUMN flow.webhook_delivery.status IS 'accepted: its batch is still to be started. failed: that was tried, and will be again. dispatched: there is a batch. dead: there is none, and will be none unless a person has it replayed.';
COMMENT ON COLUMN flow.webhook_delivery.attempts IS 'How often a start was tried, since the last replay if there was one.';
COMMENT ON COLUMN flow.webhook_delivery.next_at IS 'When the start is tried next; null where it is over.';
COMMENT ON COLUMN flow.webhook_delivery.last_error IS 'Why the last start failed; null where none did.';
COMMENT ON COLUMN flow.webhook_delivery.batch_id IS 'The batch that was started; null for none.';

-- +goose Down
DROP TABLE flow.webhook_delivery, flow.webhook;
