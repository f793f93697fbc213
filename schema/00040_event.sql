-- +goose Up
-- Event subscriptions start flows when something happens in the organization.
ALTER TABLE flow.batch ADD COLUMN event_depth smallint NOT NULL DEFAULT 0;
COMMENT ON COLUMN flow.batch.event_depth IS 'How many starts by events lie between the one that somebody else made and this one; the event of a batch carries it on.';

CREATE TABLE flow.event_subscription (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    definition_id uuid NOT NULL REFERENCES flow.definition (id),
    description text NOT NULL CHECK (char_length(description) BETWEEN 1 AND 200),
    event_kind text NOT NULL,
    filter text,
    input_template json,
    enabled boolean NOT NULL,
    started_count bigint NOT NULL DEFAULT 0,
    failed_count bigint NOT NULL DEFAULT 0,
    last_started_at timestamptz,
    last_failed_at timestamptz,
    last_error text,
    created_by uuid NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CHECK ((last_failed_at IS NULL) = (last_error IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX event_subscription_by_org ON flow.event_subscription (org_id, id);
CREATE INDEX event_subscription_by_definition ON flow.event_subscription (definition_id);
CREATE INDEX event_subscription_by_kind ON flow.event_subscription (org_id, event_kind) WHERE enabled;
COMMENT ON TABLE flow.event_subscription IS 'Flows that start when something happens in their organization.';
COMMENT ON COLUMN flow.event_subscription.id IS 'Made by the service; ids sort by creation.';
COMMENT ON COLUMN flow.event_subscription.org_id IS 'The organization that owns it (flow.organization), and whose events it hears of.';
COMMENT ON COLUMN flow.event_subscription.definition_id IS 'What it starts.';
COMMENT ON COLUMN flow.event_subscription.description IS 'What people call it.';
COMMENT ON COLUMN flow.event_subscription.event_kind IS 'Which events it hears of.';
COMMENT ON COLUMN flow.event_subscription.filter IS 'An expression that an event must satisfy to start anything; null for none.';
COMMENT ON COLUMN flow.event_subscription.input_template IS 'Makes the record of a batch from the payload; null passes the whole payload.';
COMMENT ON COLUMN flow.event_subscription.enabled IS 'False: it hears of nothing, and what it has heard of starts nothing.';
COMMENT ON COLUMN flow.event_subscription.started_count IS 'How many batches it started.';
COMMENT ON COLUMN flow.event_subscription.failed_count IS 'How many events that passed the filter, or could not be filtered, started none.';
COMMENT ON COLUMN flow.event_subscription.last_started_at IS 'When it last started a batch; null before that.';
COMMENT ON COLUMN flow.event_subscription.last_failed_at IS 'When an event last started none though it should have; null before that.';
COMMENT ON COLUMN flow.event_subscription.last_error IS 'Why it did not.';
COMMENT ON COLUMN flow.event_subscription.created_by IS 'The account that created it; its batches name it, too.';
COMMENT ON COLUMN flow.event_subscription.created_at IS 'When people made it.';
COMMENT ON COLUMN flow.event_subscription.updated_at IS 'When people last changed it.';

-- There is no foreign key to the subscription: what causes an event must neither wait for a person who deletes one nor fail for it.
CREATE TABLE flow.event_delivery (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id uuid NOT NULL,
    org_id uuid NOT NULL,
    event_id uuid NOT NULL,
    event_kind text NOT NULL,
    depth smallint NOT NULL,
    payload json NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX event_delivery_queue ON flow.event_delivery (subscription_id, id);
COMMENT ON TABLE flow.event_delivery IS 'Events that have not reached a subscription yet: written by the transaction that caused them, deleted by the one that starts a batch or decides that there is none.';
COMMENT ON COLUMN flow.event_delivery.id IS 'Drawn while the cause holds its locks, so that what comes of another event has the greater one.';
COMMENT ON COLUMN flow.event_delivery.subscription_id IS 'Who hears of it (flow.event_subscription; one that was deleted leaves rows that are cleared).';
COMMENT ON COLUMN flow.event_delivery.org_id IS 'The organization in which it happened.';
COMMENT ON COLUMN flow.event_delivery.event_id IS 'The event, the same for all who hear of it.';
COMMENT ON COLUMN flow.event_delivery.event_kind IS 'What happened.';
COMMENT ON COLUMN flow.event_delivery.depth IS 'The event_depth of the batch that caused it; 0 where none did.';
COMMENT ON COLUMN flow.event_delivery.payload IS 'What there is to say of it, as the kind has it.';
COMMENT ON COLUMN flow.event_delivery.created_at IS 'When it happened.';

-- +goose Down
DROP TABLE flow.event_delivery, flow.event_subscription;
ALTER TABLE flow.batch DROP COLUMN event_depth;
