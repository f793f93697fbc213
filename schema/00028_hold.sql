-- +goose Up
-- A batch that people pause goes back to exactly where it stood.
ALTER TABLE flow.batch ADD COLUMN paused_from flow.batch_status;
COMMENT ON COLUMN flow.batch.paused_from IS 'The status of a paused batch before it was paused, to which its release restores it; null unless it is paused.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION flow.batch_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.status, NEW.status) NOT IN (
        ('queued', 'running'), ('queued', 'paused'), ('queued', 'cancelled'), ('queued', 'completed'),
        ('paused', 'queued'), ('paused', 'running'), ('paused', 'cancelled'),
        ('running', 'paused'), ('running', 'completed'), ('running', 'partially_failed'), ('running', 'failed'), ('running', 'cancelled')
    ) OR (OLD.status = 'paused' AND NEW.status NOT IN (OLD.paused_from, 'cancelled')) THEN
        RAISE EXCEPTION 'batch % cannot move from % to %', OLD.id, OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    NEW.paused_from := CASE WHEN NEW.status = 'paused' THEN OLD.status END;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- The queues of a paused batch stay where they are in the order, and are passed over by the index.
ALTER TABLE flow.lane_batch ADD COLUMN paused boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN flow.lane_batch.paused IS 'True while the batch is paused: nothing of the queue is claimed.';
DROP INDEX flow.lane_batch_by_org;
CREATE INDEX lane_batch_by_org ON flow.lane_batch (domain, bucket, org_id, lane, paused, high DESC, batch_id) WHERE open AND ready_parts > 0;

-- When a hold ends, so that one that never does compares like the others.
ALTER TABLE flow.pause ADD COLUMN ends_at timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(expires_at, '9999-12-31 00:00:00+00')) STORED;
COMMENT ON COLUMN flow.pause.ends_at IS 'expires_at, or the end of the year 9999 for a hold without one: from then on it covers nothing.';

-- The holds of people: all but those of scope bucket. A paused batch has exactly one.
CREATE UNIQUE INDEX pause_one_batch ON flow.pause (batch_id) WHERE status = 'active' AND scope = 'batch';
-- What claims read.
CREATE INDEX pause_of_people ON flow.pause (org_id) WHERE status = 'active' AND scope IN ('global', 'domain', 'lane');
-- What lists read.
CREATE INDEX pause_by_org ON flow.pause (org_id, created_at, id);
CREATE INDEX pause_by_end ON flow.pause (org_id, ends_at, id);
CREATE INDEX pause_by_scope ON flow.pause (org_id, scope, created_at, id);
CREATE INDEX pause_by_org_active ON flow.pause (org_id, created_at, id) WHERE status = 'active';
CREATE INDEX pause_by_domain ON flow.pause (domain, created_at, id);

-- +goose Down
DROP INDEX flow.pause_by_domain, flow.pause_by_org_active, flow.pause_by_scope, flow.pause_by_end, flow.pause_by_org, flow.pause_of_people,
    flow.pause_one_batch, flow.lane_batch_by_org;
CREATE INDEX lane_batch_by_org ON flow.lane_batch (domain, bucket, org_id, lane, high DESC, batch_id) WHERE open AND ready_parts > 0;
ALTER TABLE flow.pause DROP COLUMN ends_at;
ALTER TABLE flow.lane_batch DROP COLUMN paused;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION flow.batch_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.status, NEW.status) NOT IN (
        ('queued', 'running'), ('queued', 'paused'), ('queued', 'cancelled'), ('queued', 'completed'),
        ('paused', 'queued'), ('paused', 'running'), ('paused', 'cancelled'),
        ('running', 'paused'), ('running', 'completed'), ('running', 'partially_failed'), ('running', 'failed'), ('running', 'cancelled')
    ) THEN
        RAISE EXCEPTION 'batch % cannot move from % to %', OLD.id, OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER TABLE flow.batch DROP COLUMN paused_from;
