-- +goose Up
CREATE TYPE flow.job_status AS ENUM ('staged', 'queued', 'pending', 'started', 'needs_reconcile', 'completed', 'failed',
    'cancelled', 'accepted', 'rejected', 'unprocessed', 'unresolved');
CREATE TYPE flow.batch_status AS ENUM ('queued', 'running', 'paused', 'completed', 'partially_failed', 'failed', 'cancelled');
CREATE TYPE flow.lane AS ENUM ('backfill', 'bulk', 'compliance', 'interactive');
CREATE TYPE flow.trigger_type AS ENUM ('api_call', 'schedule', 'webhook', 'event', 'flow', 'retry');

-- The work of one trigger: record_count records, stored as the pages of page_set, through one version of a definition.
CREATE TABLE flow.batch (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    definition_id uuid NOT NULL,
    version int NOT NULL,
    trigger_id uuid NOT NULL UNIQUE,
    trigger_type flow.trigger_type NOT NULL,
    trigger_source text,
    schedule_id uuid,
    metadata text NOT NULL,
    status flow.batch_status NOT NULL DEFAULT 'queued',
    record_count bigint NOT NULL CHECK (record_count >= 0),
    page_set uuid NOT NULL,
    lane flow.lane,
    priority text CHECK (priority IN ('normal', 'high')),
    cancel_reason text,
    scheduled_at timestamptz,
    started_at timestamptz,
    completed_at timestamptz,
    created_by uuid,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    FOREIGN KEY (definition_id, version) REFERENCES flow.definition_version (definition_id, version)
);
CREATE INDEX batch_by_org ON flow.batch (org_id, id);
CREATE INDEX batch_by_definition ON flow.batch (definition_id, id);

-- +goose StatementBegin
CREATE FUNCTION flow.batch_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.status, NEW.status) NOT IN (
        ('queued', 'running'), ('queued', 'paused'), ('queued', 'cancelled'), ('queued', 'completed'),
        ('paused', 'queued'), ('paused', 'running'), ('paused', 'cancelled'),
        ('running', 'paused'), ('running', 'completed'), ('running', 'partially_failed'), ('running', 'failed'), ('running', 'cancelled')
    ) THEN
        RAISE EXCEPTION 'batch % cannot move from % to %', OLD.id, OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER batch_moves BEFORE UPDATE OF status ON flow.batch
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION flow.batch_moves();

-- How many jobs of a batch stand where. Their sum never changes: a record cannot be lost.
CREATE TABLE flow.batch_count (
    batch_id uuid PRIMARY KEY REFERENCES flow.batch (id) ON DELETE CASCADE,
    record_count bigint NOT NULL,
    staged bigint NOT NULL DEFAULT 0,
    queued bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL DEFAULT 0,
    started bigint NOT NULL DEFAULT 0,
    needs_reconcile bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    accepted bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0,
    unprocessed bigint NOT NULL DEFAULT 0,
    unresolved bigint NOT NULL DEFAULT 0,
    CHECK (least(staged, queued, pending, started, needs_reconcile, completed, failed, cancelled, accepted, rejected, unprocessed,
        unresolved) >= 0),
    CHECK (staged + queued + pending + started + needs_reconcile + completed + failed + cancelled + accepted + rejected
        + unprocessed + unresolved = record_count)
) WITH (fillfactor = 50);

-- A run of a batch's records: one page. Like all tables that a batch fills by the thousand it has no foreign key: the check
-- would cost as much as the insert, and nothing but package run writes them. It stands at one step; its records move together, but for the jobs set apart.
CREATE TABLE flow.slice (
    batch_id uuid NOT NULL,
    no int NOT NULL,
    first bigint NOT NULL,
    records int NOT NULL CHECK (records > 0),
    -- staged: not released; ready: waits for in-process work; calling: its calls are queued or under way; done.
    state text NOT NULL CHECK (state IN ('staged', 'ready', 'calling', 'done')),
    step_no smallint NOT NULL DEFAULT 0,
    -- Record-task pairs of this step that are not settled yet.
    remaining int NOT NULL DEFAULT 0 CHECK (remaining >= 0),
    -- Records that go their own way, each with a row in job.
    apart int NOT NULL DEFAULT 0 CHECK (apart >= 0 AND apart <= records),
    staged int NOT NULL DEFAULT 0,
    queued int NOT NULL DEFAULT 0,
    pending int NOT NULL DEFAULT 0,
    started int NOT NULL DEFAULT 0,
    needs_reconcile int NOT NULL DEFAULT 0,
    completed int NOT NULL DEFAULT 0,
    failed int NOT NULL DEFAULT 0,
    cancelled int NOT NULL DEFAULT 0,
    accepted int NOT NULL DEFAULT 0,
    rejected int NOT NULL DEFAULT 0,
    unprocessed int NOT NULL DEFAULT 0,
    unresolved int NOT NULL DEFAULT 0,
    PRIMARY KEY (batch_id, no),
    CHECK (least(staged, queued, pending, started, needs_reconcile, completed, failed, cancelled, accepted, rejected, unprocessed,
        unresolved) >= 0),
    CHECK (staged + queued + pending + started + needs_reconcile + completed + failed + cancelled + accepted + rejected
        + unprocessed + unresolved = records)
) WITH (fillfactor = 50);
CREATE INDEX slice_ready ON flow.slice (batch_id, no) WHERE state = 'ready';

-- A record that something set apart from its slice: a retry, a rejection, an error. All others are what their slice is.
CREATE TABLE flow.job (
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    slice_no int NOT NULL,
    -- The last step in which parts of its slice speak of it (-1 where it left before the first), and the one at which it
    -- stands now.
    apart_step smallint NOT NULL,
    step_no smallint NOT NULL,
    -- Tasks of the current step that are not settled yet.
    remaining smallint NOT NULL DEFAULT 0 CHECK (remaining >= 0),
    status flow.job_status NOT NULL,
    -- True while in-process work is to be done for this job alone.
    ready boolean NOT NULL DEFAULT false,
    -- What the job ends as once the other tasks of its step are settled; null while nothing failed.
    doomed flow.job_status,
    attempts int NOT NULL DEFAULT 1,
    error text,
    started_at timestamptz,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (batch_id, position)
) WITH (fillfactor = 80);
CREATE INDEX job_by_slice ON flow.job (batch_id, slice_no, position);
CREATE INDEX job_ready ON flow.job (batch_id, position) WHERE ready;

-- +goose StatementBegin
CREATE FUNCTION flow.job_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (CASE OLD.status
        WHEN 'staged' THEN NEW.status IN ('queued', 'unprocessed')
        WHEN 'queued' THEN NEW.status IN ('pending', 'started', 'completed', 'failed', 'unprocessed')
        WHEN 'pending' THEN NEW.status IN ('queued', 'completed', 'failed', 'unprocessed')
        WHEN 'started' THEN NEW.status IN ('queued', 'needs_reconcile', 'completed', 'failed', 'cancelled', 'accepted', 'rejected', 'unprocessed')
        WHEN 'needs_reconcile' THEN NEW.status IN ('queued', 'completed', 'failed', 'accepted', 'rejected', 'unprocessed', 'unresolved')
        WHEN 'unresolved' THEN NEW.status IN ('queued', 'completed', 'failed', 'accepted', 'rejected', 'unprocessed')
        ELSE false
    END) THEN
        RAISE EXCEPTION 'job %.% cannot move from % to %', OLD.batch_id, OLD.position, OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER job_moves BEFORE UPDATE OF status ON flow.job
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION flow.job_moves();

-- What tasks did to the records of a slice: outputs, attempts and errors, one row per settlement, later ones first in force.
CREATE TABLE flow.fragment (
    batch_id uuid NOT NULL,
    slice_no int NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    body bytea NOT NULL,
    PRIMARY KEY (batch_id, slice_no, step_no, task_no, seq)
);
ALTER TABLE flow.fragment ALTER COLUMN body SET STORAGE EXTERNAL;

-- A budget: one operation type of one provider account, or all calls of one unmetered credential or host.
-- Its row is the lock under which calls are claimed.
CREATE TABLE flow.budget (
    domain text NOT NULL,
    bucket text NOT NULL,
    service_id text NOT NULL,
    metered boolean NOT NULL,
    time_zone text NOT NULL DEFAULT 'UTC',
    max_in_flight int NOT NULL,
    next_call_at timestamptz,
    PRIMARY KEY (domain, bucket)
) WITH (fillfactor = 50);

-- A lane of a budget. vtime is its share in weighted fair queueing: the lane with the least goes first. vstart is where its
-- last charge began.
CREATE TABLE flow.budget_lane (
    domain text NOT NULL,
    bucket text NOT NULL,
    lane flow.lane NOT NULL,
    weight int NOT NULL CHECK (weight BETWEEN 1 AND 100),
    vtime bigint NOT NULL DEFAULT 0,
    vstart bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, bucket, lane),
    FOREIGN KEY (domain, bucket) REFERENCES flow.budget (domain, bucket) ON DELETE CASCADE
) WITH (fillfactor = 50);

-- Spend per window. used = own + foreign; foreign is what the provider counted beyond our own calls.
CREATE TABLE flow.ledger (
    domain text NOT NULL,
    bucket text NOT NULL,
    window_seconds int NOT NULL CHECK (window_seconds IN (60, 3600, 86400)),
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL CHECK (ends_at > starts_at),
    own int NOT NULL DEFAULT 0 CHECK (own >= 0),
    foreign_spend int NOT NULL DEFAULT 0 CHECK (foreign_spend >= 0),
    observed int,
    observed_at timestamptz,
    PRIMARY KEY (domain, bucket, window_seconds, starts_at)
) WITH (fillfactor = 50);
CREATE INDEX ledger_old ON flow.ledger (ends_at);

-- The queue of one call task of one batch within a lane. Steering a batch touches these few rows, never its slices.
CREATE TABLE flow.lane_batch (
    batch_id uuid NOT NULL REFERENCES flow.batch (id) ON DELETE CASCADE,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    org_id uuid NOT NULL,
    domain text NOT NULL,
    bucket text NOT NULL,
    lane flow.lane NOT NULL,
    high boolean NOT NULL DEFAULT false,
    -- open: may be claimed; closed: the batch was cancelled.
    open boolean NOT NULL DEFAULT true,
    ready_parts int NOT NULL DEFAULT 0 CHECK (ready_parts >= 0),
    ready_records bigint NOT NULL DEFAULT 0 CHECK (ready_records >= 0),
    PRIMARY KEY (batch_id, step_no, task_no),
    FOREIGN KEY (domain, bucket) REFERENCES flow.budget (domain, bucket)
) WITH (fillfactor = 50);
CREATE INDEX lane_batch_ready ON flow.lane_batch (domain, bucket, lane, high DESC, batch_id) WHERE open AND ready_parts > 0;

-- One request to a provider, written before it is sent. It is open until its outcome is known.
CREATE TABLE flow.call (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    domain text NOT NULL,
    bucket text NOT NULL,
    lane flow.lane NOT NULL,
    action_id text NOT NULL,
    credential_id uuid,
    -- intent: may be under way; unknown: nobody knows whether it arrived; awaiting: accepted, the result comes later;
    -- settled, refused: over; unresolved: only a person can tell.
    state text NOT NULL CHECK (state IN ('intent', 'unknown', 'awaiting', 'settled', 'refused', 'unresolved')),
    owner text NOT NULL,
    attempt int NOT NULL DEFAULT 1,
    records int NOT NULL,
    digest text NOT NULL,
    first_key text,
    last_key text,
    -- The task's settings as rendered for this call, without the rows.
    params text NOT NULL,
    outcome_check text NOT NULL,
    exclusive_key text,
    reference text,
    claimed_at timestamptz NOT NULL,
    send_before timestamptz NOT NULL,
    answered_at timestamptz,
    next_check_at timestamptz,
    checks int NOT NULL DEFAULT 0,
    -- The windows that this call counts in, as start times by window length.
    counts_in jsonb NOT NULL,
    note text
) WITH (fillfactor = 70);
CREATE INDEX call_open ON flow.call (domain, bucket, send_before) WHERE state IN ('intent', 'unknown', 'awaiting');
CREATE INDEX call_recent ON flow.call (domain, bucket, claimed_at);
CREATE UNIQUE INDEX call_exclusive ON flow.call (domain, exclusive_key) WHERE state IN ('intent', 'unknown', 'awaiting') AND exclusive_key IS NOT NULL;
CREATE UNIQUE INDEX call_reference ON flow.call (domain, bucket, reference) WHERE reference IS NOT NULL;

-- A range of a slice's records that waits for a call of a task (call_id null) or is covered by one.
CREATE TABLE flow.part (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch_id uuid NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    slice_no int NOT NULL,
    from_off int NOT NULL,
    to_off int NOT NULL,
    -- True for one record that goes its own way.
    apart boolean NOT NULL DEFAULT false,
    attempt int NOT NULL DEFAULT 1,
    ready_at timestamptz NOT NULL DEFAULT '-infinity',
    call_id uuid,
    -- Place within the call, and the offsets of the range that are not in it.
    call_seq int,
    left_out int[],
    CHECK (from_off >= 0 AND to_off > from_off),
    CHECK (NOT apart OR to_off = from_off + 1)
) WITH (fillfactor = 70);
CREATE INDEX part_ready ON flow.part (batch_id, step_no, task_no, ready_at, slice_no, from_off) WHERE call_id IS NULL;
CREATE INDEX part_by_call ON flow.part (call_id) WHERE call_id IS NOT NULL;
CREATE INDEX part_by_slice ON flow.part (batch_id, slice_no);

-- A hold: work that it covers is not claimed. Bucket holds come from the dispatcher alone.
CREATE TABLE flow.pause (
    id uuid PRIMARY KEY,
    org_id uuid,
    scope text NOT NULL CHECK (scope IN ('global', 'domain', 'lane', 'bucket', 'batch')),
    domain text,
    lane flow.lane,
    bucket text,
    batch_id uuid,
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'released')),
    cause text NOT NULL,
    reason text,
    created_by uuid,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    released_at timestamptz,
    released_by uuid,
    extensions text NOT NULL DEFAULT '[]'
);
CREATE INDEX pause_active ON flow.pause (domain, bucket) WHERE status = 'active';
CREATE UNIQUE INDEX pause_one_backoff ON flow.pause (domain, bucket) WHERE status = 'active' AND scope = 'bucket';

-- +goose Down
DROP TABLE flow.pause, flow.part, flow.call, flow.lane_batch, flow.ledger, flow.budget_lane, flow.budget, flow.fragment, flow.job,
    flow.slice, flow.batch_count, flow.batch;
DROP FUNCTION flow.batch_moves, flow.job_moves;
DROP TYPE flow.job_status, flow.batch_status, flow.lane, flow.trigger_type;
