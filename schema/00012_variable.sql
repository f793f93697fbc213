-- +goose Up
-- A definition that was deleted is kept for the history of its batches, and is not found by anything else.
ALTER TABLE flow.definition ADD COLUMN deleted_at timestamptz;
CREATE INDEX batch_live ON flow.batch (definition_id) WHERE status IN ('queued', 'running', 'paused');

-- +goose Down
DROP INDEX flow.batch_live;
ALTER TABLE flow.definition DROP COLUMN deleted_at;
