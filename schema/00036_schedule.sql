-- +goose Up
-- Schedules start flows at the slots that a cron expression names.
CREATE TABLE flow.schedule (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    definition_id uuid NOT NULL REFERENCES flow.definition (id),
    description text NOT NULL CHECK (char_length(description) BETWEEN 1 AND 200),
    cron_expression text NOT NULL,
    enabled boolean NOT NULL,
    input_data json,
    metadata json NOT NULL,
    catch_up_seconds int NOT NULL CHECK (catch_up_seconds BETWEEN 0 AND 86400),
    overlap_policy text NOT NULL CHECK (overlap_policy IN ('allow', 'skip')),
    decided_upto timestamptz NOT NULL,
    last_fired_at timestamptz,
    last_batch_id uuid REFERENCES flow.batch (id),
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
COMMENT ON COLUMN flow.schedule.cron_expression IS 'Its slots: five cron fields, in UTC.';
COMMENT ON COLUMN flow.schedule.enabled IS 'False: no slot fires.';
COMMENT ON COLUMN flow.schedule.input_data IS 'The record of each batch; null for an empty one.';
COMMENT ON COLUMN flow.schedule.metadata IS 'The metadata of each batch.';
COMMENT ON COLUMN flow.schedule.catch_up_seconds IS 'How late a missed slot may still fire.';
COMMENT ON COLUMN flow.schedule.overlap_policy IS 'allow, or skip slots while a batch of the schedule is not over.';
COMMENT ON COLUMN flow.schedule.decided_upto IS 'Slots up to this time are decided, or never were its own.';
COMMENT ON COLUMN flow.schedule.last_fired_at IS 'When it last started a batch or failed to; null before that.';
COMMENT ON COLUMN flow.schedule.last_batch_id IS 'The batch that was started then; null where that failed.';
COMMENT ON COLUMN flow.schedule.created_by IS 'The account that created it; its batches name it, too.';
COMMENT ON COLUMN flow.schedule.created_at IS 'When people made it; no slot before that is its own.';
COMMENT ON COLUMN flow.schedule.updated_at IS 'When people last changed it.';

-- Batches of schedules that are not over: a slot may wait for none.
CREATE INDEX batch_live_by_schedule ON flow.batch (schedule_id) WHERE schedule_id IS NOT NULL AND status IN ('queued', 'running', 'paused');

CREATE TABLE flow.schedule_fire (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    schedule_id uuid NOT NULL REFERENCES flow.schedule (id) ON DELETE CASCADE,
    slot_at timestamptz NOT NULL,
    manual boolean NOT NULL,
    status text NOT NULL CHECK (status IN ('fired', 'skipped', 'failed')),
    reason text,
    batch_id uuid REFERENCES flow.batch (id),
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

-- +goose Down
DROP INDEX flow.batch_live_by_schedule;
DROP TABLE flow.schedule_fire, flow.schedule;
