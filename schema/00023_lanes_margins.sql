-- +goose Up
CREATE TABLE flow.domain_margin (
    tenancy_id text NOT NULL,
    bucket text NOT NULL,
    org_id uuid NOT NULL,
    percent int NOT NULL CHECK (percent BETWEEN 1 AND 100),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (tenancy_id, bucket, org_id),
    FOREIGN KEY (org_id, tenancy_id) REFERENCES flow.tenant (org_id, tenancy_id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.domain_margin IS 'The share of a bucket''s caps that an organization lets be spent. The lowest of all organizations that use the account binds; none is 100.';
COMMENT ON COLUMN flow.domain_margin.tenancy_id IS 'The account.';
COMMENT ON COLUMN flow.domain_margin.bucket IS 'The budget of the account.';
COMMENT ON COLUMN flow.domain_margin.org_id IS 'The organization that set it.';
COMMENT ON COLUMN flow.domain_margin.percent IS 'Percent of the provider''s caps, rounded down to whole calls.';
COMMENT ON COLUMN flow.domain_margin.updated_at IS 'When it was set last.';

CREATE TABLE flow.domain_lane (
    org_id uuid NOT NULL,
    tenancy_id text NOT NULL,
    lane flow.lane NOT NULL,
    weight int NOT NULL CHECK (weight BETWEEN 1 AND 100),
    max_concurrent_calls int CHECK (max_concurrent_calls BETWEEN 1 AND 100),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (org_id, tenancy_id, lane),
    FOREIGN KEY (org_id, tenancy_id) REFERENCES flow.tenant (org_id, tenancy_id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.domain_lane IS 'What an organization set for its lanes of an account. Lanes without a row have the weights of the program and no limit of their own.';
COMMENT ON COLUMN flow.domain_lane.org_id IS 'The organization.';
COMMENT ON COLUMN flow.domain_lane.tenancy_id IS 'The account.';
COMMENT ON COLUMN flow.domain_lane.lane IS 'Which of the organization''s lanes.';
COMMENT ON COLUMN flow.domain_lane.weight IS 'Its share beside the other lanes of the organization.';
COMMENT ON COLUMN flow.domain_lane.max_concurrent_calls IS 'How many of its calls may be under way at once in each bucket; null for as many as the budget allows.';
COMMENT ON COLUMN flow.domain_lane.updated_at IS 'When it was set last.';

CREATE TABLE flow.budget_org (
    domain text NOT NULL,
    bucket text NOT NULL,
    org_id uuid NOT NULL,
    vtime bigint NOT NULL DEFAULT 0,
    vstart bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, bucket, org_id),
    FOREIGN KEY (domain, bucket) REFERENCES flow.budget (domain, bucket) ON DELETE CASCADE
) WITH (fillfactor = 50);
COMMENT ON TABLE flow.budget_org IS 'Where the organizations that share a budget stand in fair queueing: equal shares. Written once two of them have sent.';
COMMENT ON COLUMN flow.budget_org.domain IS 'The account, or whom an unmetered budget is for.';
COMMENT ON COLUMN flow.budget_org.bucket IS 'Which of the account''s budgets.';
COMMENT ON COLUMN flow.budget_org.org_id IS 'The organization.';
COMMENT ON COLUMN flow.budget_org.vtime IS 'The virtual time at which its last charge ended: the organization with the least goes first.';
COMMENT ON COLUMN flow.budget_org.vstart IS 'The virtual time at which its last charge began.';

CREATE TABLE flow.budget_org_lane (
    domain text NOT NULL,
    bucket text NOT NULL,
    org_id uuid NOT NULL,
    lane flow.lane NOT NULL,
    vtime bigint NOT NULL DEFAULT 0,
    vstart bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, bucket, org_id, lane),
    FOREIGN KEY (domain, bucket) REFERENCES flow.budget (domain, bucket) ON DELETE CASCADE
) WITH (fillfactor = 50);
COMMENT ON TABLE flow.budget_org_lane IS 'Where the lanes of an organization in a budget stand in weighted fair queueing. Written with a lane''s first call.';
COMMENT ON COLUMN flow.budget_org_lane.domain IS 'The account, or whom an unmetered budget is for.';
COMMENT ON COLUMN flow.budget_org_lane.bucket IS 'Which of the account''s budgets.';
COMMENT ON COLUMN flow.budget_org_lane.org_id IS 'The organization.';
COMMENT ON COLUMN flow.budget_org_lane.lane IS 'Which of the organization''s lanes.';
COMMENT ON COLUMN flow.budget_org_lane.vtime IS 'The virtual time at which its last charge ended: of an organization''s lanes the one with the least goes first.';
COMMENT ON COLUMN flow.budget_org_lane.vstart IS 'The virtual time at which its last charge began.';

-- Each organization that has work in a budget goes on where the lanes stood that it shared with others.
INSERT INTO flow.budget_org_lane (domain, bucket, org_id, lane, vtime, vstart)
SELECT DISTINCT l.domain, l.bucket, q.org_id, l.lane, l.vtime, l.vstart
FROM flow.budget_lane l JOIN flow.lane_batch q ON q.domain = l.domain AND q.bucket = l.bucket AND q.lane = l.lane;
COMMENT ON TABLE flow.budget_lane IS 'Lanes as the release before this one keeps them, which may still run. Nothing else reads it; the next release drops it.';

-- The queues of a budget are found by organization, then by lane.
CREATE INDEX lane_batch_by_org ON flow.lane_batch (domain, bucket, org_id, lane, high DESC, batch_id) WHERE open AND ready_parts > 0;
DROP INDEX flow.lane_batch_ready;

ALTER TABLE flow.ledger ADD COLUMN drift int, ADD COLUMN alarm_drift int;
COMMENT ON COLUMN flow.ledger.drift IS 'By how many calls the provider''s last reading was above (or below, negative) what stood here, as far as calls too young for it do not explain that.';
COMMENT ON COLUMN flow.ledger.alarm_drift IS 'The greatest drift of the window that was beyond the tolerance of 20% of its cap; null where none was.';

-- +goose Down
ALTER TABLE flow.ledger DROP COLUMN alarm_drift, DROP COLUMN drift;
CREATE INDEX lane_batch_ready ON flow.lane_batch (domain, bucket, lane, high DESC, batch_id) WHERE open AND ready_parts > 0;
DROP INDEX flow.lane_batch_by_org;
COMMENT ON TABLE flow.budget_lane IS NULL;
DROP TABLE flow.budget_org_lane, flow.budget_org, flow.domain_lane, flow.domain_margin;
