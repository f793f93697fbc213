-- +goose Up
-- What waits for an account is summed up by task without a look at each batch. A process of the release before leaves these null;
-- who reads them asks the batch then.
ALTER TABLE flow.lane_batch ADD COLUMN definition_id uuid, ADD COLUMN version int;
COMMENT ON COLUMN flow.lane_batch.definition_id IS 'The definition of the batch; null in a queue of before there was this column.';
COMMENT ON COLUMN flow.lane_batch.version IS 'The version of the definition; null in a queue of before there was this column.';

-- Which holds cover a queue is said here alone. It is one SELECT and stable, so that Postgres puts it into the query that asks.
-- +goose StatementBegin
CREATE FUNCTION flow.holds_over(org uuid, account text, in_lane flow.lane) RETURNS SETOF flow.pause LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT h.* FROM flow.pause h
    WHERE h.org_id = org AND h.status = 'active' AND h.scope IN ('global', 'domain', 'lane') AND h.ends_at > (SELECT flow.clock())
        AND (h.domain IS NULL OR h.domain = account) AND (h.lane IS NULL OR h.lane = in_lane)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION flow.holds_over(uuid, text, flow.lane) IS 'The holds of people that cover the calls of an organization to a Domain in a lane, but for those of batches: a batch says itself that it is paused.';

-- +goose Down
DROP FUNCTION flow.holds_over(uuid, text, flow.lane);
ALTER TABLE flow.lane_batch DROP COLUMN definition_id, DROP COLUMN version;
