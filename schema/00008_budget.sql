CREATE TABLE flow.budget (
    domain text NOT NULL,
    bucket text NOT NULL,
    service_id text NOT NULL,
    metered boolean NOT NULL,
    time_zone text NOT NULL DEFAULT 'UTC',
    max_in_flight int NOT NULL,
    next_call_at timestamptz,
    refusals int NOT NULL DEFAULT 0 CHECK (refusals >= 0),
    refused_at timestamptz,
    limits jsonb,
    PRIMARY KEY (domain, bucket)
) WITH (fillfactor = 50);
COMMENT ON TABLE flow.budget IS
    'A budget: one operation type of one Domain, or all calls of one unmetered credential, host or organization. '
    'Claims lock its row.';
COMMENT ON COLUMN flow.budget.domain IS
    'The Domain; for unmetered calls credential:, host: or organization: and what they are counted by.';
COMMENT ON COLUMN flow.budget.bucket IS
    'The operation type of the Domain; for unmetered calls the service, for those of an account of an imported '
    'platform the platform.';
COMMENT ON COLUMN flow.budget.service_id IS 'The service of the catalog that says what a call may cost.';
COMMENT ON COLUMN flow.budget.metered IS 'True where windows limit its calls; false where only max_in_flight does.';
COMMENT ON COLUMN flow.budget.time_zone IS 'The IANA zone in which its windows begin.';
COMMENT ON COLUMN flow.budget.max_in_flight IS 'How many calls of a lane may be under way at once.';
COMMENT ON COLUMN flow.budget.next_call_at IS
    'Before which time no further call goes out, where the catalog asks for a pause between calls; null for none.';
COMMENT ON COLUMN flow.budget.refusals IS
    'How often in a row its receiver refused calls for their rate without naming a time, calls that were under way '
    'together counted once; 0 after a success, and where windows limit its calls.';
COMMENT ON COLUMN flow.budget.limits IS
    'Windows and calls at once that the owner of the credential has set, which no provider states: a copy of '
    'flow.credential.limits, or flow.tenant.limits, so that claims read it with the row that they lock; null for none.';
COMMENT ON COLUMN flow.budget.refused_at IS
    'When that was counted last: refusals of calls that were claimed before are no further ones; null for never.';

CREATE TABLE flow.budget_org (
    domain text NOT NULL,
    bucket text NOT NULL,
    org_id uuid NOT NULL,
    vtime bigint NOT NULL DEFAULT 0,
    vstart bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, bucket, org_id),
    FOREIGN KEY (domain, bucket) REFERENCES flow.budget (domain, bucket) ON DELETE CASCADE
) WITH (fillfactor = 50);
COMMENT ON TABLE flow.budget_org IS
    'Where the organizations of a budget stand in fair queueing: equal shares. Written with an organization''s first '
    'call.';
COMMENT ON COLUMN flow.budget_org.domain IS 'The account, or whom an unmetered budget is for.';
COMMENT ON COLUMN flow.budget_org.bucket IS 'Which of the account''s budgets.';
COMMENT ON COLUMN flow.budget_org.org_id IS 'The organization.';
COMMENT ON COLUMN flow.budget_org.vtime IS
    'The virtual time at which its last charge ended: the organization with the least goes first.';
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
COMMENT ON TABLE flow.budget_org_lane IS
    'Where the lanes of an organization in a budget stand in weighted fair queueing. Written with a lane''s first '
    'call.';
COMMENT ON COLUMN flow.budget_org_lane.domain IS 'The account, or whom an unmetered budget is for.';
COMMENT ON COLUMN flow.budget_org_lane.bucket IS 'Which of the account''s budgets.';
COMMENT ON COLUMN flow.budget_org_lane.org_id IS 'The organization.';
COMMENT ON COLUMN flow.budget_org_lane.lane IS 'Which of the organization''s lanes.';
COMMENT ON COLUMN flow.budget_org_lane.vtime IS
    'The virtual time at which its last charge ended: of an organization''s lanes the one with the least goes first.';
COMMENT ON COLUMN flow.budget_org_lane.vstart IS 'The virtual time at which its last charge began.';

CREATE TABLE flow.domain_margin (
    tenancy_id text NOT NULL,
    bucket text NOT NULL,
    org_id uuid NOT NULL,
    percent int NOT NULL CHECK (percent BETWEEN 1 AND 100),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (tenancy_id, bucket, org_id),
    FOREIGN KEY (org_id, tenancy_id) REFERENCES flow.tenant (org_id, tenancy_id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.domain_margin IS
    'The share of a bucket''s caps that an organization lets be spent. The lowest of all organizations that use the '
    'account binds; none is 100.';
COMMENT ON COLUMN flow.domain_margin.tenancy_id IS 'The account.';
COMMENT ON COLUMN flow.domain_margin.bucket IS 'The budget of the account.';
COMMENT ON COLUMN flow.domain_margin.org_id IS 'The organization that set it.';
COMMENT ON COLUMN flow.domain_margin.percent IS
    'Percent of the provider''s caps, rounded down to whole calls, at least one.';
COMMENT ON COLUMN flow.domain_margin.updated_at IS 'When it was set last.';

CREATE TABLE flow.domain_lane (
    org_id uuid NOT NULL,
    tenancy_id text NOT NULL,
    lane flow.lane NOT NULL,
    weight int NOT NULL CHECK (weight BETWEEN 1 AND 100),
    max_concurrent_calls int CHECK (max_concurrent_calls BETWEEN 1 AND 100),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (tenancy_id, org_id, lane),
    FOREIGN KEY (org_id, tenancy_id) REFERENCES flow.tenant (org_id, tenancy_id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.domain_lane IS
    'What an organization set for its lanes of an account. Lanes without a row have the weights of the program and no '
    'limit of their own.';
COMMENT ON COLUMN flow.domain_lane.org_id IS 'The organization.';
COMMENT ON COLUMN flow.domain_lane.tenancy_id IS 'The account.';
COMMENT ON COLUMN flow.domain_lane.lane IS 'Which of the organization''s lanes.';
COMMENT ON COLUMN flow.domain_lane.weight IS 'Its share beside the other lanes of the organization.';
COMMENT ON COLUMN flow.domain_lane.max_concurrent_calls IS
    'How many of its calls may be under way at once in each bucket; null for as many as the budget allows.';
COMMENT ON COLUMN flow.domain_lane.updated_at IS 'When it was set last.';

CREATE TABLE flow.ledger (
    domain text NOT NULL,
    bucket text NOT NULL,
    window_seconds int NOT NULL CHECK (window_seconds BETWEEN 60 AND 86400),
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL CHECK (ends_at > starts_at),
    own int NOT NULL DEFAULT 0 CHECK (own >= 0),
    foreign_spend int NOT NULL DEFAULT 0 CHECK (foreign_spend >= 0),
    unsure int NOT NULL DEFAULT 0 CHECK (unsure >= 0),
    by_credential jsonb NOT NULL DEFAULT '{}',
    cap int,
    observed int,
    observed_at timestamptz,
    drift int,
    alarm_drift int,
    PRIMARY KEY (domain, bucket, window_seconds, starts_at)
) WITH (fillfactor = 50);
CREATE INDEX ledger_old ON flow.ledger (ends_at);
-- Claims and projections look for the open windows of a budget: few of all that it had, and few of all that are open.
CREATE INDEX ledger_open ON flow.ledger (domain, bucket, ends_at);
-- The history of an account is read newest first.
CREATE INDEX ledger_history ON flow.ledger (domain, starts_at, bucket, window_seconds);
COMMENT ON TABLE flow.ledger IS
    'Spend by Domain, bucket, window length and window start. No debit for a call to come raises own + foreign_spend '
    'above the cap; one for a question that was asked already may.';
COMMENT ON COLUMN flow.ledger.domain IS 'The Domain of the budget.';
COMMENT ON COLUMN flow.ledger.bucket IS 'The bucket of the budget.';
COMMENT ON COLUMN flow.ledger.window_seconds IS 'Length of the window; windows that roll are in flow.rolling.';
COMMENT ON COLUMN flow.ledger.starts_at IS 'When the window begins, by the provider''s clock.';
COMMENT ON COLUMN flow.ledger.ends_at IS
    'When the window ends; a day with a daylight-saving change has 23 or 25 hours.';
COMMENT ON COLUMN flow.ledger.own IS 'Calls of ours that count in it or may yet turn out to.';
COMMENT ON COLUMN flow.ledger.foreign_spend IS
    'The most that the provider can have counted beyond our own calls: other clients of the account.';
COMMENT ON COLUMN flow.ledger.unsure IS
    'How much of foreign_spend may be own calls that were too young for the last reading. Claims count it, what is '
    'shown does not.';
COMMENT ON COLUMN flow.ledger.by_credential IS
    'How many of the own calls which credential spent, by its id. Calls without a credential are in none.';
COMMENT ON COLUMN flow.ledger.cap IS
    'The effective cap when the window was last debited or observed; null where the provider counts a window that has '
    'no cap.';
COMMENT ON COLUMN flow.ledger.observed IS 'What the provider''s counter said last; null where it was never read.';
COMMENT ON COLUMN flow.ledger.observed_at IS
    'As of when the provider said so: when it answered, where it does not tell; null where it was never read.';
COMMENT ON COLUMN flow.ledger.drift IS
    'By how many calls the provider''s last reading was above (or below, negative) what stood here, as far as calls '
    'too young for it do not explain that.';
COMMENT ON COLUMN flow.ledger.alarm_drift IS
    'The greatest drift of the window that was beyond the tolerance of 20% of its cap; null where none was.';

CREATE TABLE flow.rolling (
    domain text NOT NULL,
    bucket text NOT NULL,
    window_seconds int NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    cell bigint NOT NULL,
    ends_at timestamptz NOT NULL,
    own int NOT NULL DEFAULT 0 CHECK (own >= 0),
    foreign_spend int NOT NULL DEFAULT 0 CHECK (foreign_spend >= 0),
    PRIMARY KEY (domain, bucket, window_seconds, cell)
) WITH (fillfactor = 50);
CREATE INDEX rolling_old ON flow.rolling (ends_at);
COMMENT ON TABLE flow.rolling IS
    'Spend in windows that roll: a log of calls by when they can have arrived at the latest, in cells of a twentieth '
    'of the length. What counts of all cells at a time is never raised above the cap by a debit for a call to come.';
COMMENT ON COLUMN flow.rolling.domain IS 'The Domain of the budget.';
COMMENT ON COLUMN flow.rolling.bucket IS 'Which of its budgets.';
COMMENT ON COLUMN flow.rolling.window_seconds IS 'Length of the window.';
COMMENT ON COLUMN flow.rolling.cell IS 'Number of the cell, counted from the beginning of 1970.';
COMMENT ON COLUMN flow.rolling.ends_at IS
    'From when on nothing of the cell counts any more: its end and the length of the window.';
COMMENT ON COLUMN flow.rolling.own IS 'Calls of ours that can have arrived in the cell at the latest.';
COMMENT ON COLUMN flow.rolling.foreign_spend IS
    'What the provider had counted beyond our own calls when it told so in the time of the cell.';

CREATE FUNCTION flow.rolling_used(of_domain text, of_bucket text, seconds int,
    at timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(sum(r.own + r.foreign_spend), 0) FROM flow.rolling r
    WHERE r.domain = of_domain AND r.bucket = of_bucket AND r.window_seconds = seconds AND r.ends_at > at
$$;
COMMENT ON FUNCTION flow.rolling_used(text, text, int, timestamptz) IS 'What counts in a rolling window at a time.';

CREATE FUNCTION flow.tally(a jsonb, b jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(t.key, t.calls) FILTER (WHERE t.calls > 0), '{}')
        FROM (SELECT e.key, sum(e.value::bigint) AS calls FROM (SELECT * FROM jsonb_each_text(a) UNION ALL SELECT *
            FROM jsonb_each_text(b)) e GROUP BY e.key) t
    );
END $$;
COMMENT ON FUNCTION flow.tally(jsonb, jsonb) IS
    'Adds up two objects of numbers key by key; keys whose sum is not above 0 go.';
