-- +goose Up
COMMENT ON COLUMN flow.ledger.observed_at IS 'As of when the provider said so: when it answered, where it does not tell; null where it was never read.';
COMMENT ON COLUMN ops.budget_window.observed_at IS 'As of when the provider said so: when it answered, where it does not tell; null where it was never read.';

-- +goose Down
COMMENT ON COLUMN flow.ledger.observed_at IS 'As of when the provider said so; null where it was never read.';
COMMENT ON COLUMN ops.budget_window.observed_at IS 'As of when the provider said so; null where it was never read.';
