-- +goose Up
COMMENT ON TABLE flow.budget_lane IS 'Lanes as the release before organizations had lanes of their own keeps them; it may still run. Nothing else reads or writes it, and the next release drops it: see flow.budget_org_lane.';
COMMENT ON TABLE flow.budget_org IS 'Where the organizations of a budget stand in fair queueing: equal shares. Written with an organization''s first call.';

-- +goose Down
COMMENT ON TABLE flow.budget_org IS 'Where the organizations that share a budget stand in fair queueing: equal shares. Written once two of them have sent.';
COMMENT ON TABLE flow.budget_lane IS 'The lanes of a budget, as weighted fair queueing sees them.';
