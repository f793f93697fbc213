-- +goose Up
-- How many changes there were of a batch, raised under its lock: what they leave in fragments is numbered by it, so that
-- readers can tell in which order things came that different tasks did.
ALTER TABLE flow.batch_count ADD COLUMN change_no bigint NOT NULL DEFAULT 0;
-- The change in which a call took the part. Null where the order cannot be in doubt: its step has one task that makes calls.
ALTER TABLE flow.part ADD COLUMN claim_no bigint;

-- +goose Down
ALTER TABLE flow.part DROP COLUMN claim_no;
ALTER TABLE flow.batch_count DROP COLUMN change_no;
