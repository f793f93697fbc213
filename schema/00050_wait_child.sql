-- +goose Up
-- Tasks that wait for the end of a batch that they started.
ALTER TABLE flow.wait ADD COLUMN child uuid;
CREATE INDEX wait_by_child ON flow.wait (child) WHERE child IS NOT NULL;
COMMENT ON COLUMN flow.wait.child IS 'The batch whose end it waits for (flow.batch), which brings ends_at forward; null for none.';

-- +goose Down
ALTER TABLE flow.wait DROP COLUMN child;
