-- +goose Up
-- A reading of the provider's counters may miss calls that were answered after the time that it holds, however long before they
-- were claimed. Quick ones are found by when they were claimed.
CREATE INDEX call_slow ON flow.call (domain, bucket, answered_at) WHERE answered_at - claimed_at > interval '1 second';

-- +goose Down
DROP INDEX flow.call_slow;
