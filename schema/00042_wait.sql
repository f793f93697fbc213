-- +goose Up
-- Tasks that wait. A slice whose members all wait for the same times waits as a whole; any other record that waits is set apart.
CREATE SEQUENCE flow.wait_no;
CREATE TABLE flow.wait (
    no bigint PRIMARY KEY DEFAULT nextval('flow.wait_no'),
    org_id uuid NOT NULL,
    batch_id uuid NOT NULL,
    slice_no int NOT NULL,
    position bigint,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    began_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL
);
CREATE INDEX wait_by_batch ON flow.wait (batch_id, ends_at, no);
COMMENT ON SEQUENCE flow.wait_no IS 'Orders what waits.';
COMMENT ON TABLE flow.wait IS 'What a task waits for, one row for each record, or for a whole slice. It goes in the transaction that lets the record go on; those of a batch that is over are cleared in pieces.';
COMMENT ON COLUMN flow.wait.no IS 'Drawn by the transaction that begins to wait.';
COMMENT ON COLUMN flow.wait.org_id IS 'The organization that owns the batch (flow.organization).';
COMMENT ON COLUMN flow.wait.batch_id IS 'The batch of which records wait (flow.batch).';
COMMENT ON COLUMN flow.wait.slice_no IS 'The slice of the record, or that waits (flow.slice).';
COMMENT ON COLUMN flow.wait.position IS 'The record that waits, which is set apart (flow.job); null where all members of the slice do.';
COMMENT ON COLUMN flow.wait.step_no IS 'The step at which they stand.';
COMMENT ON COLUMN flow.wait.task_no IS 'The task of the step that waits.';
COMMENT ON COLUMN flow.wait.began_at IS 'Since when.';
COMMENT ON COLUMN flow.wait.ends_at IS 'When the wait is over at the latest.';

-- NOT VALID: what stands there has one of the older states, and need not be read again.
ALTER TABLE flow.slice DROP CONSTRAINT slice_state_check,
    ADD CONSTRAINT slice_state_check CHECK (state IN ('staged', 'ready', 'waiting', 'calling', 'done')) NOT VALID;
COMMENT ON COLUMN flow.slice.state IS 'staged: not released; ready: waits for in-process work; waiting: its tasks wait, and nothing is to be done; calling: its calls are queued or under way; done.';
COMMENT ON COLUMN flow.slice.remaining IS 'Record-task pairs of this step that are not settled yet; of a slice that is waiting, its rows in flow.wait.';
COMMENT ON COLUMN flow.job.remaining IS 'Tasks of the current step that are not settled yet: calls or, before these, waits.';

-- +goose Down
ALTER TABLE flow.slice DROP CONSTRAINT slice_state_check,
    ADD CONSTRAINT slice_state_check CHECK (state IN ('staged', 'ready', 'calling', 'done')) NOT VALID;
DROP TABLE flow.wait;
DROP SEQUENCE flow.wait_no;
