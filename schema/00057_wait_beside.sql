-- +goose Up
-- Calls are made beside the waits of their step. A process of an older version would make them again when the wait is over: it cannot read
-- a wait without a slice, and leaves it to the others.
ALTER TABLE flow.wait ALTER COLUMN slice_no DROP NOT NULL;
CREATE INDEX wait_beside ON flow.wait (batch_id, position) WHERE slice_no IS NULL;
COMMENT ON COLUMN flow.wait.slice_no IS 'The slice of the record, or that waits (flow.slice); null where the calls of the step were queued with the wait: otherwise they are when it is over.';
COMMENT ON COLUMN flow.job.remaining IS 'Tasks of the current step that are not settled yet: calls and waits.';

-- +goose Down
COMMENT ON COLUMN flow.job.remaining IS 'Tasks of the current step that are not settled yet: calls or, before these, waits.';
UPDATE flow.wait w SET slice_no = j.slice_no FROM flow.job j WHERE w.slice_no IS NULL AND j.batch_id = w.batch_id AND j.position = w.position;
COMMENT ON COLUMN flow.wait.slice_no IS 'The slice of the record, or that waits (flow.slice).';
DROP INDEX flow.wait_beside;
ALTER TABLE flow.wait ALTER COLUMN slice_no SET NOT NULL;
