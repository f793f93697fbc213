-- +goose Up
-- How often in a row a receiver that names no time has refused calls of a budget without windows for their rate.
ALTER TABLE flow.budget ADD COLUMN refusals int NOT NULL DEFAULT 0 CHECK (refusals >= 0), ADD COLUMN refused_at timestamptz;
COMMENT ON COLUMN flow.budget.refusals IS 'How often in a row its receiver refused calls for their rate without naming a time, calls that were under way together counted once; 0 after a success, and where windows limit its calls.';
COMMENT ON COLUMN flow.budget.refused_at IS 'When that was counted last: refusals of calls that were claimed before are no further ones; null for never.';

-- +goose Down
ALTER TABLE flow.budget DROP COLUMN refused_at, DROP COLUMN refusals;
