-- +goose Up
-- When a batch's failure threshold stopped it: nothing more of it is sent, and it ends as failed once nothing is open.
ALTER TABLE flow.batch ADD COLUMN stopped_at timestamptz;

-- +goose Down
ALTER TABLE flow.batch DROP COLUMN stopped_at;
