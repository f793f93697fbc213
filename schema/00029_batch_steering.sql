-- +goose Up
-- A batch can be paced: so many records at each tick. Every queue of it has an allowance, which claims use up and ticks renew.
ALTER TABLE flow.batch ADD COLUMN pacing jsonb, ADD COLUMN paced_at timestamptz, ADD COLUMN pace_next_at timestamptz,
    ADD CHECK ((pacing IS NULL) = (pace_next_at IS NULL));
COMMENT ON COLUMN flow.batch.pacing IS 'The pacing policy, as the API shows it; null where the batch is not paced.';
COMMENT ON COLUMN flow.batch.paced_at IS 'The last tick, of whatever policy; kept when pacing ends, so that a new policy does not release too soon.';
COMMENT ON COLUMN flow.batch.pace_next_at IS 'The next tick; null where the batch is not paced.';

ALTER TABLE flow.lane_batch ADD COLUMN allowance bigint CHECK (allowance >= 0), ADD COLUMN lapses_at timestamptz,
    ADD CHECK ((allowance IS NULL) = (lapses_at IS NULL));
COMMENT ON COLUMN flow.lane_batch.allowance IS 'How many more records may be claimed before lapses_at; null where the batch is not paced.';
COMMENT ON COLUMN flow.lane_batch.lapses_at IS 'From when on nothing may be claimed until the next tick; null where the batch is not paced.';

-- +goose Down
ALTER TABLE flow.lane_batch DROP COLUMN allowance, DROP COLUMN lapses_at;
ALTER TABLE flow.batch DROP COLUMN pacing, DROP COLUMN paced_at, DROP COLUMN pace_next_at;
