-- +goose Up
-- Tasks that wait for an event. Who causes an event shares the gate of its organization (an advisory lock until the end of the transaction)
-- and then looks for waits; who begins to wait has the gate alone. So each of the two comes whole before the other, and in that order
-- their numbers are drawn.
ALTER TABLE flow.wait ADD COLUMN event_kind text, ADD COLUMN match_key bytea, ADD COLUMN event_no bigint;
CREATE INDEX wait_by_event ON flow.wait (org_id, event_kind, match_key, no) WHERE event_kind IS NOT NULL AND event_no IS NULL;
CREATE INDEX wait_by_arrival ON flow.wait (event_no) WHERE event_no IS NOT NULL;
COMMENT ON COLUMN flow.wait.event_kind IS 'The kind of event that ends it before its time; null for none.';
COMMENT ON COLUMN flow.wait.match_key IS 'Digest of what a field of the event must equal for the record, with the place of the field; null where every event has to be looked at.';
COMMENT ON COLUMN flow.wait.event_no IS 'The event that ended it (flow.event_arrival); null until then.';

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
COMMENT ON TABLE flow.event_arrival IS 'Events that tasks may wait for: written by the transaction that caused them where any did, deleted once all that wait have been asked and have gone on.';
COMMENT ON COLUMN flow.event_arrival.no IS 'Drawn while the cause shares the gate: greater than those of the waits that it can end.';
COMMENT ON COLUMN flow.event_arrival.org_id IS 'The organization in which it happened.';
COMMENT ON COLUMN flow.event_arrival.event_id IS 'The event, the same for all who hear of it.';
COMMENT ON COLUMN flow.event_arrival.event_kind IS 'What happened.';
COMMENT ON COLUMN flow.event_arrival.payload IS 'What there is to say of it, as the kind has it.';
COMMENT ON COLUMN flow.event_arrival.occurred_at IS 'When it happened.';
COMMENT ON COLUMN flow.event_arrival.done_upto IS 'The waits up to this number have been asked.';
COMMENT ON COLUMN flow.event_arrival.delivered IS 'All have been asked.';

-- +goose StatementBegin
-- Which of these events somebody waits for. The look is a statement of its own, so that it sees what was committed before the gates
-- were had.
CREATE FUNCTION flow.event_waited(org_ids uuid[], kinds text[]) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
    org uuid;
    waited boolean[];
BEGIN
    FOR org IN SELECT DISTINCT o FROM unnest(org_ids) o ORDER BY o LOOP
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('event ' || org, 0));
    END LOOP;
    SELECT array_agg(EXISTS (SELECT FROM flow.wait w WHERE w.org_id = e.org_id AND w.event_kind = e.kind AND w.event_no IS NULL) ORDER BY e.place) INTO waited
    FROM unnest(org_ids, kinds) WITH ORDINALITY AS e (org_id, kind, place);
    RETURN waited;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The payload of the event that a batch is over.
CREATE FUNCTION flow.batch_event(batch uuid) RETURNS json LANGUAGE sql STABLE AS $$
SELECT json_build_object('batch_id', b.id, 'definition_id', b.definition_id, 'definition_version', b.version,
    'status', b.status, 'record_count', b.record_count, 'job_counts', json_build_object('staged', c.staged, 'queued', c.queued, 'pending', c.pending,
        'started', c.started, 'needs_reconcile', c.needs_reconcile, 'completed', c.completed, 'failed', c.failed, 'cancelled', c.cancelled,
        'accepted', c.accepted, 'rejected', c.rejected, 'unprocessed', c.unprocessed, 'unresolved', c.unresolved),
    'trigger_type', b.trigger_type, 'trigger_source', b.trigger_source, 'retry_of', b.retry_of, 'metadata', b.metadata::json)
FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.id = batch
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION flow.event_waited, flow.batch_event;
DROP TABLE flow.event_arrival;
ALTER TABLE flow.wait DROP COLUMN event_kind, DROP COLUMN match_key, DROP COLUMN event_no;
