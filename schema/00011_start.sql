CREATE TABLE flow.schedule (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    definition_id uuid NOT NULL REFERENCES flow.definition (id),
    description text NOT NULL CHECK (char_length(description) BETWEEN 1 AND 200),
    cron_expression text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    enabled boolean NOT NULL,
    input_data json,
    metadata json NOT NULL,
    catch_up_seconds int NOT NULL CHECK (catch_up_seconds BETWEEN 0 AND 86400),
    overlap_policy text NOT NULL CHECK (overlap_policy IN ('allow', 'skip')),
    decided_upto timestamptz NOT NULL,
    last_fired_at timestamptz,
    last_batch_id uuid,
    created_by uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock()
) WITH (fillfactor = 80);
CREATE INDEX schedule_by_org ON flow.schedule (org_id, id);
CREATE INDEX schedule_by_definition ON flow.schedule (definition_id);
COMMENT ON TABLE flow.schedule IS 'Flows that start by the clock.';
COMMENT ON COLUMN flow.schedule.id IS 'Made by the service; ids sort by creation.';
COMMENT ON COLUMN flow.schedule.org_id IS 'The organization that owns it (flow.organization).';
COMMENT ON COLUMN flow.schedule.definition_id IS 'What it starts.';
COMMENT ON COLUMN flow.schedule.description IS 'What people call it.';
COMMENT ON COLUMN flow.schedule.cron_expression IS 'Its slots: five cron fields, in its time zone.';
COMMENT ON COLUMN flow.schedule.timezone IS 'The IANA zone of its fields.';
COMMENT ON COLUMN flow.schedule.enabled IS 'False: no slot fires.';
COMMENT ON COLUMN flow.schedule.input_data IS 'The record of each batch; null for an empty one.';
COMMENT ON COLUMN flow.schedule.metadata IS 'The metadata of each batch.';
COMMENT ON COLUMN flow.schedule.catch_up_seconds IS 'How late a missed slot may still fire.';
COMMENT ON COLUMN flow.schedule.overlap_policy IS 'allow, or skip slots while a batch of the schedule is not over.';
COMMENT ON COLUMN flow.schedule.decided_upto IS 'Slots up to this time are decided, or never were its own.';
COMMENT ON COLUMN flow.schedule.last_fired_at IS 'When it last started a batch or failed to; null before that.';
COMMENT ON COLUMN flow.schedule.last_batch_id IS
    'The batch that was started then, which may be deleted since; null where that failed.';
COMMENT ON COLUMN flow.schedule.created_by IS 'The account that created it; its batches name it, too.';
COMMENT ON COLUMN flow.schedule.created_at IS 'When people made it; no slot before that is its own.';
COMMENT ON COLUMN flow.schedule.updated_at IS 'When people last changed it.';

CREATE TABLE flow.schedule_fire (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    schedule_id uuid NOT NULL REFERENCES flow.schedule (id) ON DELETE CASCADE,
    slot_at timestamptz NOT NULL,
    manual boolean NOT NULL,
    status text NOT NULL CHECK (status IN ('fired', 'skipped', 'failed')),
    reason text,
    batch_id uuid,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    CHECK ((status = 'fired') = (batch_id IS NOT NULL)),
    CHECK ((status = 'fired') = (reason IS NULL))
);
CREATE UNIQUE INDEX schedule_fire_slot ON flow.schedule_fire (schedule_id, slot_at) WHERE NOT manual;
CREATE INDEX schedule_fire_by_schedule ON flow.schedule_fire (schedule_id, id);
CREATE INDEX schedule_fire_by_status ON flow.schedule_fire (schedule_id, status, id);
CREATE INDEX schedule_fire_by_age ON flow.schedule_fire (created_at);
COMMENT ON TABLE flow.schedule_fire IS 'What became of each slot of a schedule. Rows older than 90 days are deleted.';
COMMENT ON COLUMN flow.schedule_fire.id IS 'Made by the service; ids sort by when slots were decided.';
COMMENT ON COLUMN flow.schedule_fire.org_id IS 'The organization of the schedule.';
COMMENT ON COLUMN flow.schedule_fire.schedule_id IS 'Whose slot it is (flow.schedule).';
COMMENT ON COLUMN flow.schedule_fire.slot_at IS 'The slot; for a run by hand, when it was asked for.';
COMMENT ON COLUMN flow.schedule_fire.manual IS 'True where a person asked for the run.';
COMMENT ON COLUMN flow.schedule_fire.status IS 'fired, skipped or failed.';
COMMENT ON COLUMN flow.schedule_fire.reason IS 'Why there is no batch; null where there is one.';
COMMENT ON COLUMN flow.schedule_fire.batch_id IS 'The batch that was started; null for none.';
COMMENT ON COLUMN flow.schedule_fire.created_at IS 'When it was decided.';

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
CREATE INDEX webhook_by_definition ON flow.webhook (definition_id);
CREATE INDEX webhook_by_deletion ON flow.webhook (deleted_at) WHERE deleted_at IS NOT NULL;
COMMENT ON TABLE flow.webhook IS
    'Addresses at which signed requests start flows. One that was deleted stays until its deliveries are gone, for '
    'those that still wait.';
COMMENT ON COLUMN flow.webhook.id IS
    '128 random bits, which the API writes as 32 hex digits. Its secrets are the row of flow.secret with the same id.';
COMMENT ON COLUMN flow.webhook.org_id IS 'The organization that owns it (flow.organization).';
COMMENT ON COLUMN flow.webhook.place IS 'Sorts by creation, which the id does not.';
COMMENT ON COLUMN flow.webhook.definition_id IS 'What its deliveries start.';
COMMENT ON COLUMN flow.webhook.description IS 'What people call it.';
COMMENT ON COLUMN flow.webhook.mode IS 'What a delivery does: start a batch.';
COMMENT ON COLUMN flow.webhook.provider IS 'How senders sign, and the first part of the address.';
COMMENT ON COLUMN flow.webhook.input_template IS
    'Makes the record of a batch from the payload; null passes the whole payload.';
COMMENT ON COLUMN flow.webhook.dispatch_retry IS
    'How often a start that failed is tried again, and when; null for never.';
COMMENT ON COLUMN flow.webhook.rate_limit IS 'The most deliveries that are accepted in a minute; null for 1000.';
COMMENT ON COLUMN flow.webhook.enabled IS 'False: the address answers 404.';
COMMENT ON COLUMN flow.webhook.secret_version IS
    'The version of its row of flow.secret, by which a process knows that a copy is current.';
COMMENT ON COLUMN flow.webhook.window_began_at IS 'When the minute began in which deliveries are counted.';
COMMENT ON COLUMN flow.webhook.window_used IS 'How many were accepted in it.';
COMMENT ON COLUMN flow.webhook.delivery_count IS 'How many rows flow.webhook_delivery has of it.';
COMMENT ON COLUMN flow.webhook.created_by IS 'The account that created it; its batches name it, too.';
COMMENT ON COLUMN flow.webhook.created_at IS 'When people made it.';
COMMENT ON COLUMN flow.webhook.updated_at IS 'When people last changed it or its secret.';
COMMENT ON COLUMN flow.webhook.deleted_at IS
    'When people deleted it; null for one that is there. Its secrets went then.';

-- No foreign key to the webhook: who adds a delivery holds its lock, and it goes only when it has no deliveries, so
-- nothing is left to check for each row.
CREATE TABLE flow.webhook_delivery (
    webhook_id uuid NOT NULL,
    id uuid NOT NULL,
    org_id uuid NOT NULL,
    message_id text NOT NULL,
    received_at timestamptz NOT NULL,
    duplicates bigint NOT NULL DEFAULT 0,
    content_type text,
    content_encoding text,
    body bytea NOT NULL,
    size_bytes int NOT NULL,
    packed boolean NOT NULL,
    status text NOT NULL CHECK (status IN ('accepted', 'dispatched', 'failed', 'dead')),
    attempts int NOT NULL DEFAULT 0,
    next_at timestamptz,
    last_error text,
    batch_id uuid,
    CHECK (status = 'dispatched' OR batch_id IS NULL),
    CHECK ((status IN ('accepted', 'failed')) = (next_at IS NOT NULL)),
    PRIMARY KEY (org_id, webhook_id, id)
);
-- Compressing bodies would cost more of an acknowledgement than writing them.
ALTER TABLE flow.webhook_delivery ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX webhook_delivery_message ON flow.webhook_delivery (message_id, webhook_id);
CREATE INDEX webhook_delivery_dead ON flow.webhook_delivery (org_id, webhook_id, id) WHERE status = 'dead';
-- The only one that begins with the webhook: with another, Postgres takes that for what waits once most webhooks have
-- few deliveries, and reads all of one that has many.
CREATE INDEX webhook_delivery_waiting ON flow.webhook_delivery (webhook_id, next_at, id) WHERE next_at IS NOT NULL;
COMMENT ON TABLE flow.webhook_delivery IS
    'Messages that were acknowledged. Rows older than 90 days are deleted, unless they still wait.';
COMMENT ON COLUMN flow.webhook_delivery.webhook_id IS 'Where it arrived (flow.webhook).';
COMMENT ON COLUMN flow.webhook_delivery.id IS 'Made by the service; ids sort by arrival.';
COMMENT ON COLUMN flow.webhook_delivery.org_id IS 'The organization of the webhook.';
COMMENT ON COLUMN flow.webhook_delivery.message_id IS 'What the sender calls the message; one with the same is a copy.';
COMMENT ON COLUMN flow.webhook_delivery.received_at IS 'When its first copy arrived.';
COMMENT ON COLUMN flow.webhook_delivery.duplicates IS 'How many more copies arrived.';
COMMENT ON COLUMN flow.webhook_delivery.content_type IS 'As the sender wrote it; null for none.';
COMMENT ON COLUMN flow.webhook_delivery.content_encoding IS 'As the sender wrote it; null for none.';
COMMENT ON COLUMN flow.webhook_delivery.body IS 'The bytes that were signed, as they are or packed.';
COMMENT ON COLUMN flow.webhook_delivery.size_bytes IS 'How many bytes were signed.';
COMMENT ON COLUMN flow.webhook_delivery.packed IS
    'True where body is compressed (s2), false where it is as it was sent.';
COMMENT ON COLUMN flow.webhook_delivery.status IS
    'accepted: its batch is still to be started. failed: that was tried, and will be again. dispatched: there is a '
    'batch. dead: there is none, and will be none unless a person has it replayed.';
COMMENT ON COLUMN flow.webhook_delivery.attempts IS
    'How often a start was tried, since the last replay if there was one.';
COMMENT ON COLUMN flow.webhook_delivery.next_at IS 'When the start is tried next; null where it is over.';
COMMENT ON COLUMN flow.webhook_delivery.last_error IS 'Why the last start failed; null where none did.';
COMMENT ON COLUMN flow.webhook_delivery.batch_id IS
    'The batch of one that is dispatched, where it has an id of its own: most have that of the delivery. Null '
    'otherwise.';

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
COMMENT ON COLUMN flow.event_subscription.org_id IS
    'The organization that owns it (flow.organization), and whose events it hears of.';
COMMENT ON COLUMN flow.event_subscription.definition_id IS 'What it starts.';
COMMENT ON COLUMN flow.event_subscription.description IS 'What people call it.';
COMMENT ON COLUMN flow.event_subscription.event_kind IS 'Which events it hears of.';
COMMENT ON COLUMN flow.event_subscription.filter IS
    'An expression that an event must satisfy to start anything; null for none.';
COMMENT ON COLUMN flow.event_subscription.input_template IS
    'Makes the record of a batch from the payload; null passes the whole payload.';
COMMENT ON COLUMN flow.event_subscription.enabled IS
    'False: it hears of nothing, and what it has heard of starts nothing.';
COMMENT ON COLUMN flow.event_subscription.started_count IS 'How many batches it started.';
COMMENT ON COLUMN flow.event_subscription.failed_count IS
    'How many events that passed the filter, or could not be filtered, started none.';
COMMENT ON COLUMN flow.event_subscription.last_started_at IS 'When it last started a batch; null before that.';
COMMENT ON COLUMN flow.event_subscription.last_failed_at IS
    'When an event last started none though it should have; null before that.';
COMMENT ON COLUMN flow.event_subscription.last_error IS 'Why it did not.';
COMMENT ON COLUMN flow.event_subscription.created_by IS 'The account that created it; its batches name it, too.';
COMMENT ON COLUMN flow.event_subscription.created_at IS 'When people made it.';
COMMENT ON COLUMN flow.event_subscription.updated_at IS 'When people last changed it.';

-- There is no foreign key to the subscription: what causes an event must neither wait for a person who deletes one nor
-- fail for it.
CREATE TABLE flow.event_delivery (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id uuid NOT NULL,
    org_id uuid NOT NULL,
    event_id uuid NOT NULL,
    event_kind text NOT NULL,
    depth smallint NOT NULL,
    root_id uuid NOT NULL,
    payload json NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX event_delivery_queue ON flow.event_delivery (subscription_id, id);
COMMENT ON TABLE flow.event_delivery IS
    'Events that have not reached a subscription yet: written by the transaction that caused them, deleted by the one '
    'that starts a batch or decides that there is none.';
COMMENT ON COLUMN flow.event_delivery.id IS
    'Drawn while the cause holds its locks, so that what comes of another event has the greater one.';
COMMENT ON COLUMN flow.event_delivery.subscription_id IS
    'Who hears of it (flow.event_subscription; one that was deleted leaves rows that are cleared).';
COMMENT ON COLUMN flow.event_delivery.org_id IS 'The organization in which it happened.';
COMMENT ON COLUMN flow.event_delivery.event_id IS 'The event, the same for all who hear of it.';
COMMENT ON COLUMN flow.event_delivery.event_kind IS 'What happened.';
COMMENT ON COLUMN flow.event_delivery.depth IS 'The event_depth of the batch that caused it; 0 where none did.';
COMMENT ON COLUMN flow.event_delivery.root_id IS
    'The root cause (as in flow.batch); the event itself where it begins a chain.';
COMMENT ON COLUMN flow.event_delivery.payload IS 'What there is to say of it, as the kind has it.';
COMMENT ON COLUMN flow.event_delivery.created_at IS 'When it happened.';

CREATE SEQUENCE flow.wait_no;
COMMENT ON SEQUENCE flow.wait_no IS 'Orders what waits.';

-- A slice whose members all wait for the same times waits as a whole; any other record that waits is detached.
CREATE TABLE flow.wait (
    no bigint PRIMARY KEY DEFAULT nextval('flow.wait_no'),
    org_id uuid NOT NULL,
    batch_id uuid NOT NULL,
    slice_no int NOT NULL,
    position bigint,
    beside boolean NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    began_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    event_kind text,
    match_key bytea,
    event_no bigint,
    child uuid
);
CREATE INDEX wait_by_batch ON flow.wait (batch_id, ends_at, no);
CREATE INDEX wait_by_event ON flow.wait (org_id, event_kind, match_key, no) WHERE event_kind IS NOT NULL
    AND event_no IS NULL;
CREATE INDEX wait_by_arrival ON flow.wait (event_no) WHERE event_no IS NOT NULL;
CREATE INDEX wait_by_child ON flow.wait (child) WHERE child IS NOT NULL;
CREATE INDEX wait_beside ON flow.wait (batch_id, position) WHERE beside;
COMMENT ON TABLE flow.wait IS
    'What a task waits for, one row for each record, or for a whole slice. It goes in the transaction that lets the '
    'record go on; those of a batch that is over are cleared in pieces.';
COMMENT ON COLUMN flow.wait.no IS 'Drawn by the transaction that begins to wait.';
COMMENT ON COLUMN flow.wait.org_id IS 'The organization that owns the batch (flow.organization).';
COMMENT ON COLUMN flow.wait.batch_id IS 'The batch of which records wait (flow.batch).';
COMMENT ON COLUMN flow.wait.slice_no IS 'The slice of the record, or that waits (flow.slice).';
COMMENT ON COLUMN flow.wait.position IS
    'The record that waits, which is detached (flow.job); null where all members of the slice do.';
COMMENT ON COLUMN flow.wait.beside IS 'True where the calls of the step were queued with the wait.';
COMMENT ON COLUMN flow.wait.step_no IS 'The step at which they stand.';
COMMENT ON COLUMN flow.wait.task_no IS 'The task of the step that waits.';
COMMENT ON COLUMN flow.wait.began_at IS 'Since when.';
COMMENT ON COLUMN flow.wait.ends_at IS 'When the wait is over at the latest.';
COMMENT ON COLUMN flow.wait.event_kind IS 'The kind of event that ends it before its time; null for none.';
COMMENT ON COLUMN flow.wait.match_key IS
    'Digest of what a field of the event must equal for the record, with the place of the field; null where every '
    'event has to be looked at.';
COMMENT ON COLUMN flow.wait.event_no IS 'The event that ended it (flow.event_arrival); null until then.';
COMMENT ON COLUMN flow.wait.child IS
    'The batch whose end it waits for (flow.batch), which brings ends_at forward; null for none.';

-- Who causes an event shares the gate of its organization (an advisory lock until the end of the transaction) and then
-- looks for waits; who begins to wait has the gate alone. So each of the two comes whole before the other, and in that
-- order their numbers are drawn.
CREATE TABLE flow.event_arrival (
    no bigint PRIMARY KEY DEFAULT nextval('flow.wait_no'),
    org_id uuid NOT NULL,
    event_id uuid NOT NULL,
    event_kind text NOT NULL,
    payload json NOT NULL,
    occurred_at timestamptz NOT NULL,
    done_upto bigint NOT NULL DEFAULT 0,
    delivered boolean NOT NULL DEFAULT false
);
CREATE INDEX event_arrival_queue ON flow.event_arrival (org_id, no) WHERE NOT delivered;
COMMENT ON TABLE flow.event_arrival IS
    'Events that tasks may wait for: written by the transaction that caused them where any did, deleted once all that '
    'wait have been asked and have gone on.';
COMMENT ON COLUMN flow.event_arrival.no IS
    'Drawn while the cause shares the gate: greater than those of the waits that it can end.';
COMMENT ON COLUMN flow.event_arrival.org_id IS 'The organization in which it happened.';
COMMENT ON COLUMN flow.event_arrival.event_id IS 'The event, the same for all who hear of it.';
COMMENT ON COLUMN flow.event_arrival.event_kind IS 'What happened.';
COMMENT ON COLUMN flow.event_arrival.payload IS 'What there is to say of it, as the kind has it.';
COMMENT ON COLUMN flow.event_arrival.occurred_at IS 'When it happened.';
COMMENT ON COLUMN flow.event_arrival.done_upto IS 'The waits up to this number have been asked.';
COMMENT ON COLUMN flow.event_arrival.delivered IS 'All have been asked.';

-- The look is a statement of its own, so that it sees what was committed before the gates were had.
CREATE FUNCTION flow.event_waited(org_ids uuid[], kinds text[]) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
    org uuid;
    waited boolean[];
BEGIN
    FOR org IN SELECT DISTINCT o FROM unnest(org_ids) o ORDER BY o LOOP
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('event ' || org, 0));
    END LOOP;
    SELECT array_agg(EXISTS (SELECT FROM flow.wait w WHERE w.org_id = e.org_id AND w.event_kind = e.kind
        AND w.event_no IS NULL) ORDER BY e.place) INTO waited
    FROM unnest(org_ids, kinds) WITH ORDINALITY AS e (org_id, kind, place);
    RETURN waited;
END $$;
COMMENT ON FUNCTION flow.event_waited(uuid[], text[]) IS
    'Which of these events, each of an organization and a kind, somebody waits for. A wait that begins in another '
    'transaction is seen, or sees the event: both pass the gate of the organization, which stays shut for the other '
    'until the transaction ends.';

CREATE FUNCTION flow.batch_event(batch uuid) RETURNS json LANGUAGE sql STABLE AS $$
SELECT json_build_object('batch_id', b.id, 'definition_id', b.definition_id, 'definition_version', b.version,
    'status', c.status, 'record_count', b.record_count, 'job_counts', json_build_object('staged', c.staged, 'queued',
        c.queued, 'pending', c.pending,
        'started', c.started, 'needs_reconcile', c.needs_reconcile, 'completed', c.completed, 'failed', c.failed,
            'cancelled', c.cancelled,
        'accepted', c.accepted, 'rejected', c.rejected, 'unprocessed', c.unprocessed, 'unresolved', c.unresolved),
    'trigger_type', b.trigger_type, 'trigger_source', b.trigger_source, 'retry_of', b.retry_of, 'metadata',
        flow.batch_metadata(b)::json)
FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.id = batch
$$;
COMMENT ON FUNCTION flow.batch_event(uuid) IS 'The payload of an event that says how a batch ended.';

-- Who starts batches of a chain holds its row until the end of the transaction, so that the count is exact.
CREATE TABLE flow.chain (
    root_id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    starts int NOT NULL,
    refused int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX chain_by_age ON flow.chain (created_at);
COMMENT ON TABLE flow.chain IS
    'What came of one root cause by events and flows. An event that begins a chain has a row once a batch that it '
    'started starts others. Rows older than 90 days are deleted.';
COMMENT ON COLUMN flow.chain.root_id IS 'The batch or the event at the head (as in flow.batch).';
COMMENT ON COLUMN flow.chain.org_id IS 'Its organization.';
COMMENT ON COLUMN flow.chain.starts IS
    'How many batches events and flows started of it, without those that an event at the head started itself.';
COMMENT ON COLUMN flow.chain.refused IS
    'How many were refused because there were as many as the organization may have.';
COMMENT ON COLUMN flow.chain.created_at IS 'When it was first counted.';

CREATE TABLE flow.refused_start (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    definition_id uuid NOT NULL REFERENCES flow.definition (id),
    version int NOT NULL,
    trigger_type text NOT NULL,
    trigger_source text NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    created_by uuid NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX refused_start_by_org ON flow.refused_start (org_id, id);
CREATE INDEX refused_start_by_age ON flow.refused_start (created_at);
COMMENT ON TABLE flow.refused_start IS
    'Starts that were refused because too many in a row, or of one root cause, led to them. Rows older than 90 days '
    'are deleted.';
COMMENT ON COLUMN flow.refused_start.id IS 'The trigger, as the API names it; sorts among the ids of batches by time.';
COMMENT ON COLUMN flow.refused_start.org_id IS 'The organization whose flow was not started.';
COMMENT ON COLUMN flow.refused_start.definition_id IS 'What was to be started.';
COMMENT ON COLUMN flow.refused_start.version IS 'The version of the definition at that time.';
COMMENT ON COLUMN flow.refused_start.trigger_type IS 'What was to start it.';
COMMENT ON COLUMN flow.refused_start.trigger_source IS
    'What exactly was to start it: for an event the subscription, which may be gone since.';
COMMENT ON COLUMN flow.refused_start.reason IS 'Why it was refused, for people.';
COMMENT ON COLUMN flow.refused_start.created_by IS 'The account that its batch would name.';
COMMENT ON COLUMN flow.refused_start.created_at IS 'The time of the service at which the event was decided.';

-- What is left of a quota is asked for by its name, so what each counts stands in one place. Each branch goes by an
-- index of its own.
CREATE FUNCTION flow.quota_used(org uuid, quota text, upto bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    CASE quota
    WHEN 'open_batches' THEN
        RETURN (SELECT count(*) FROM (SELECT FROM flow.batch_count b WHERE b.org_id = org AND b.status IN ('queued',
            'running', 'paused')
            LIMIT upto) x);
    WHEN 'open_record_sets' THEN
        RETURN (SELECT count(*) FROM (SELECT FROM flow.record_set s WHERE s.org_id = org AND s.status = 'open'
            AND s.staging_expires_at > (SELECT flow.clock()) LIMIT upto) x);
    WHEN 'stored_bytes' THEN
        RETURN (SELECT coalesce(sum(s.row_bytes), 0) FROM flow.record_set s WHERE s.org_id = org);
    WHEN 'credentials' THEN
        RETURN (SELECT count(*) FROM (SELECT FROM flow.credential c WHERE c.org_id = org AND c.deleted_at IS NULL
            LIMIT upto) x);
    WHEN 'definitions' THEN
        RETURN (SELECT count(*) FROM (SELECT FROM flow.definition d WHERE d.org_id = org AND d.deleted_at IS NULL
            LIMIT upto) x);
    WHEN 'schedules' THEN
        RETURN (SELECT count(*) FROM (SELECT FROM flow.schedule s WHERE s.org_id = org LIMIT upto) x);
    WHEN 'webhooks' THEN
        RETURN (SELECT count(*) FROM (SELECT FROM flow.webhook w WHERE w.org_id = org AND w.deleted_at IS NULL
            LIMIT upto) x);
    WHEN 'subscriptions' THEN
        RETURN (SELECT count(*) FROM (SELECT FROM flow.event_subscription s WHERE s.org_id = org LIMIT upto) x);
    END CASE;
END $$;
COMMENT ON FUNCTION flow.quota_used(uuid, text, bigint) IS
    'How much of a quota an organization uses. What has rows of its own is counted up to a number only; null counts '
    'all.';

-- Most batches are small, are over before anybody could ask, and have no row here.
CREATE TABLE flow.batch_estimate (
    batch_id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    made_at timestamptz NOT NULL,
    tenancy_id text NOT NULL,
    bucket text NOT NULL,
    calls bigint NOT NULL,
    day_percent double precision,
    ends_at timestamptz,
    unknown text,
    CHECK ((ends_at IS NULL) = (unknown IS NOT NULL))
);
COMMENT ON TABLE flow.batch_estimate IS
    'What the start of a large batch was told that it would take, to be held against what came. Written once.';
COMMENT ON COLUMN flow.batch_estimate.batch_id IS 'The batch that was started.';
COMMENT ON COLUMN flow.batch_estimate.org_id IS 'The organization that started it.';
COMMENT ON COLUMN flow.batch_estimate.made_at IS 'When it was reckoned.';
COMMENT ON COLUMN flow.batch_estimate.tenancy_id IS 'The account whose budget takes longest.';
COMMENT ON COLUMN flow.batch_estimate.bucket IS 'That budget.';
COMMENT ON COLUMN flow.batch_estimate.calls IS 'How many calls the records would take.';
COMMENT ON COLUMN flow.batch_estimate.day_percent IS
    'Their share of what was left of the day, in percent; null where the budget has no cap for a day.';
COMMENT ON COLUMN flow.batch_estimate.ends_at IS
    'When the batch would be done at the latest; null where nobody could say.';
COMMENT ON COLUMN flow.batch_estimate.unknown IS 'Why nobody could say; null where somebody could.';
