CREATE TYPE flow.batch_status AS ENUM ('queued', 'running', 'paused', 'completed', 'partially_failed', 'failed',
    'cancelled');
COMMENT ON TYPE flow.batch_status IS 'Where a batch stands. queued, running and paused are live.';

CREATE TYPE flow.job_status AS ENUM ('staged', 'queued', 'pending', 'started', 'needs_reconcile', 'completed', 'failed',
    'cancelled', 'accepted', 'rejected', 'unprocessed', 'unresolved');
COMMENT ON TYPE flow.job_status IS
    'Where a job stands: twelve states, of which completed, failed, cancelled, accepted, rejected and unprocessed are '
    'ends, and unresolved waits for a person.';

CREATE TYPE flow.lane AS ENUM ('backfill', 'bulk', 'compliance', 'interactive');
COMMENT ON TYPE flow.lane IS 'A share of a bucket by weighted fair queueing.';

-- Neither a batch nor what belongs to it has foreign keys: they would lock a row of its organization and of its
-- definition for each start, and cost more than the insert of a batch of one record. Nothing but package run writes
-- them. A retry works on records of another batch again: retry_root is the first batch of those that retry each other's
-- records, retry_no their order.
CREATE TABLE flow.batch (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    version int NOT NULL,
    trigger_type text NOT NULL CHECK (trigger_type IN ('api_call', 'schedule', 'webhook', 'event', 'flow', 'retry')),
    trigger_source text,
    event_depth smallint NOT NULL DEFAULT 0,
    root_id uuid,
    retry_of uuid,
    retry_root uuid,
    retry_no int NOT NULL DEFAULT 0,
    metadata text,
    record_count bigint NOT NULL CHECK (record_count >= 0),
    page_set uuid,
    lane flow.lane,
    scheduled_at timestamptz,
    created_by uuid,
    created_at timestamptz NOT NULL,
    trace bytea,
    page_bytes int,
    page bytea,
    CHECK ((retry_of IS NULL) = (retry_root IS NULL)),
    CHECK ((page IS NULL) = (page_bytes IS NULL)),
    CHECK (page IS NULL OR page_set IS NULL),
    CHECK (metadata IS NOT NULL OR trigger_type = 'webhook')
);
-- A small page of a batch that has no other stands here: a row of flow.page and its entry in an index less for each
-- start. It is small because lists read whole rows.
ALTER TABLE flow.batch ALTER COLUMN page SET STORAGE EXTERNAL;
CREATE INDEX batch_by_definition ON flow.batch (definition_id, id);
-- Lists of things that come by the million find their page by what they are filtered by. It is text because who is
-- bound by a policy finds nothing by an enum, whose operators may tell of rows.
CREATE INDEX batch_by_trigger_type ON flow.batch (org_id, trigger_type, id) WHERE trigger_type <> 'api_call';
CREATE UNIQUE INDEX batch_by_retry_root ON flow.batch (retry_root, retry_no) WHERE retry_root IS NOT NULL;
CREATE INDEX batch_by_time ON flow.batch (org_id, created_at);
-- What is counted, or passed over, of all jobs of an organization is a sum over its batches: it needs no more than
-- this.
CREATE INDEX batch_by_org ON flow.batch (org_id, id) INCLUDE (record_count);
COMMENT ON TABLE flow.batch IS
    'The work of one trigger, whose id it has: records, stored as pages, through one version of a definition. Written '
    'once; what changes of it is in batch_count.';
COMMENT ON COLUMN flow.batch.id IS
    'Its first part orders batches by their start; a job is named after it and its position.';
COMMENT ON COLUMN flow.batch.org_id IS 'The organization that triggered it.';
COMMENT ON COLUMN flow.batch.definition_id IS 'What is done with the records.';
COMMENT ON COLUMN flow.batch.version IS 'Which version of the definition; never changes.';
COMMENT ON COLUMN flow.batch.trigger_type IS 'What started it.';
COMMENT ON COLUMN flow.batch.trigger_source IS
    'What exactly started it, for a retry the earlier batch; null where the type says all.';
COMMENT ON COLUMN flow.batch.event_depth IS
    'How many starts by events lie between the one that somebody else made and this one; the event of a batch carries '
    'it on.';
COMMENT ON COLUMN flow.batch.root_id IS
    'The root cause: the batch or the event at the head of the chain of starts by events and flows that led to it; '
    'null where nothing did.';
COMMENT ON COLUMN flow.batch.retry_of IS 'The batch whose records it works on again; null for all but retries.';
COMMENT ON COLUMN flow.batch.retry_root IS
    'The first batch of those that retry each other''s records: its row orders them. Null for all but retries.';
COMMENT ON COLUMN flow.batch.retry_no IS 'Place among the retries of the same root; 0 for all others.';
COMMENT ON COLUMN flow.batch.metadata IS
    'A JSON object of the trigger''s, as text: key order and digits stay as they were sent. Null for that of a webhook '
    'whose batch has the id of its delivery: flow.batch_metadata makes it.';
COMMENT ON COLUMN flow.batch.record_count IS 'How many jobs it has; never changes.';
COMMENT ON COLUMN flow.batch.page_set IS
    'The set of pages with its records, or the batch whose row has the only one, which a retry shares with the earlier '
    'batch; null where its own row has it.';
COMMENT ON COLUMN flow.batch.lane IS 'The lane that the trigger asked for; null where definition or catalog decide.';
COMMENT ON COLUMN flow.batch.scheduled_at IS 'When it is to begin; null for at once.';
COMMENT ON COLUMN flow.batch.created_by IS 'The account that triggered it; null for work without a caller.';
COMMENT ON COLUMN flow.batch.created_at IS 'When the trigger was accepted.';
COMMENT ON COLUMN flow.batch.trace IS
    'The ids of the trace and of the span that started it, 16 and 8 bytes; null where those are not sampled.';
COMMENT ON COLUMN flow.batch.page_bytes IS 'Size of the rows of page before compression; null for none.';
COMMENT ON COLUMN flow.batch.page IS
    'Its records, as in flow.page.body, where they are few and small; null where they stand there. Customer data.';

CREATE FUNCTION flow.batch_metadata(b flow.batch) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(b.metadata, '{"webhook_id":"' || b.trigger_source || '","delivery_id":"' || b.id::text || '"}')
$$;
COMMENT ON FUNCTION flow.batch_metadata(flow.batch) IS
    'The metadata of a batch, a JSON object as text. What a webhook gives is made of its id and of that of the '
    'delivery.';

-- Most batches have one slice, all of whose records go into their first call together and end with it: that slice
-- stands in one_slice alone, and flow.all_slices makes it of the counters, because a row with its index entry, written
-- three times, would cost such a batch as much as its counters do. Whoever does more with it than to claim or to settle
-- it as a whole writes it to flow.slice first. What its task did stands here, too, where that is small. A call that has
-- all of its records is counted with what comes of it, or once it takes longer than most: until then they are queued.
-- change_no is raised under the lock of the batch; what a change leaves in fragments is numbered by it, so that readers
-- can tell in which order things came that different tasks did. What most changes touch stands together, at the end:
-- the log of an update holds what lies between the first and the last byte that it changes.
CREATE TABLE flow.batch_count (
    batch_id uuid NOT NULL,
    org_id uuid NOT NULL,
    schedule_id uuid,
    priority text CHECK (priority IN ('normal', 'high')),
    pacing jsonb,
    paced_at timestamptz,
    pace_next_at timestamptz,
    cancel_reason text,
    paused_from flow.batch_status,
    stopped_at timestamptz,
    one_slice boolean NOT NULL DEFAULT false,
    record_count int NOT NULL,
    staged int NOT NULL DEFAULT 0,
    pending int NOT NULL DEFAULT 0,
    needs_reconcile int NOT NULL DEFAULT 0,
    failed int NOT NULL DEFAULT 0,
    cancelled int NOT NULL DEFAULT 0,
    rejected int NOT NULL DEFAULT 0,
    unprocessed int NOT NULL DEFAULT 0,
    unresolved int NOT NULL DEFAULT 0,
    change_no bigint NOT NULL DEFAULT 0,
    queued int NOT NULL DEFAULT 0,
    started int NOT NULL DEFAULT 0,
    completed int NOT NULL DEFAULT 0,
    accepted int NOT NULL DEFAULT 0,
    status flow.batch_status NOT NULL DEFAULT 'queued',
    started_at timestamptz,
    completed_at timestamptz,
    updated_at timestamptz NOT NULL,
    fragment bytea,
    CHECK ((pacing IS NULL) = (pace_next_at IS NULL)),
    CHECK (least(staged, queued, pending, started, needs_reconcile, completed, failed, cancelled, accepted, rejected,
        unprocessed,
        unresolved) >= 0),
    CHECK (staged + queued + pending + started + needs_reconcile + completed + failed + cancelled + accepted + rejected
        + unprocessed + unresolved = record_count)
) WITH (fillfactor = 90);
-- Most batches are completed and never leave that: an entry for each would be written and kept, and they are found
-- among all.
CREATE INDEX batch_count_by_status ON flow.batch_count (org_id, status, batch_id) WHERE status <> 'completed';
CREATE INDEX batch_count_by_schedule ON flow.batch_count (schedule_id, batch_id) WHERE schedule_id IS NOT NULL;
-- A slot may wait for those that are not over.
CREATE INDEX batch_count_live_by_schedule ON flow.batch_count (schedule_id)
    WHERE schedule_id IS NOT NULL AND status IN ('queued', 'running', 'paused');
ALTER TABLE flow.batch_count ADD PRIMARY KEY (batch_id);
COMMENT ON TABLE flow.batch_count IS
    'What changes of a batch: its status, how its work goes on, how many jobs stand where. Whoever changes a batch '
    'locks this row. A constraint keeps the sum of the counters: a change that loses a record does not commit.';
COMMENT ON COLUMN flow.batch_count.batch_id IS 'Whose state it is.';
COMMENT ON COLUMN flow.batch_count.org_id IS 'The organization that triggered it, for the index.';
COMMENT ON COLUMN flow.batch_count.schedule_id IS 'The schedule that started it; null for none.';
COMMENT ON COLUMN flow.batch_count.status IS
    'Where it stands; a trigger refuses moves that are not drawn in batch/status.go.';
COMMENT ON COLUMN flow.batch_count.paused_from IS
    'The status of a paused batch before it was paused, to which its release restores it; null unless it is paused.';
COMMENT ON COLUMN flow.batch_count.priority IS 'normal or high: high goes before others of its lane; null for normal.';
COMMENT ON COLUMN flow.batch_count.pacing IS
    'The pacing policy, as the API shows it; null where the batch is not paced.';
COMMENT ON COLUMN flow.batch_count.paced_at IS
    'The last tick, of whatever policy; kept when pacing ends, so that a new policy does not release too soon.';
COMMENT ON COLUMN flow.batch_count.pace_next_at IS 'The next tick; null where the batch is not paced.';
COMMENT ON COLUMN flow.batch_count.cancel_reason IS 'What the person who cancelled it said; null otherwise.';
COMMENT ON COLUMN flow.batch_count.started_at IS 'When its first job began; null before.';
COMMENT ON COLUMN flow.batch_count.stopped_at IS
    'When its failure threshold stopped it: nothing more is sent, and it ends as failed once nothing is open.';
COMMENT ON COLUMN flow.batch_count.completed_at IS 'When its last job ended; null before.';
COMMENT ON COLUMN flow.batch_count.updated_at IS 'When status or settings changed last.';
COMMENT ON COLUMN flow.batch_count.one_slice IS
    'Whether the batch has one slice, which has no row in flow.slice: its counts are those of this row.';
COMMENT ON COLUMN flow.batch_count.fragment IS
    'What the first task of the only slice did, as in flow.fragment.body, where a small one says all of it; null for '
    'none. Customer data.';
COMMENT ON COLUMN flow.batch_count.record_count IS 'What all the others must add up to.';
COMMENT ON COLUMN flow.batch_count.staged IS 'Jobs that are staged now.';
COMMENT ON COLUMN flow.batch_count.queued IS 'Jobs that are queued now.';
COMMENT ON COLUMN flow.batch_count.pending IS 'Jobs that are pending now.';
COMMENT ON COLUMN flow.batch_count.started IS 'Jobs that are started now.';
COMMENT ON COLUMN flow.batch_count.needs_reconcile IS 'Jobs that are needs_reconcile now.';
COMMENT ON COLUMN flow.batch_count.completed IS 'Jobs that are completed now.';
COMMENT ON COLUMN flow.batch_count.failed IS 'Jobs that are failed now.';
COMMENT ON COLUMN flow.batch_count.cancelled IS 'Jobs that are cancelled now.';
COMMENT ON COLUMN flow.batch_count.accepted IS 'Jobs that are accepted now.';
COMMENT ON COLUMN flow.batch_count.rejected IS 'Jobs that are rejected now.';
COMMENT ON COLUMN flow.batch_count.unprocessed IS 'Jobs that are unprocessed now.';
COMMENT ON COLUMN flow.batch_count.unresolved IS 'Jobs that are unresolved now.';
COMMENT ON COLUMN flow.batch_count.change_no IS
    'How many changes there were of the batch: orders what different tasks did. Streams number events by it.';

CREATE FUNCTION flow.batch_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.status, NEW.status) NOT IN (
        ('queued', 'running'), ('queued', 'paused'), ('queued', 'cancelled'), ('queued', 'completed'),
            ('queued', 'partially_failed'),
        ('queued', 'failed'),
        ('paused', 'queued'), ('paused', 'running'), ('paused', 'cancelled'),
        ('running', 'paused'), ('running', 'completed'), ('running', 'partially_failed'), ('running', 'failed'),
            ('running', 'cancelled')
    ) OR (OLD.status = 'paused' AND NEW.status NOT IN (OLD.paused_from, 'cancelled')) THEN
        RAISE EXCEPTION 'batch % cannot move from % to %', OLD.batch_id, OLD.status,
            NEW.status USING ERRCODE = 'check_violation';
    END IF;
    NEW.paused_from := CASE WHEN NEW.status = 'paused' THEN OLD.status END;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION flow.batch_moves() IS 'Refuses moves of a batch''s status that are not drawn.';
CREATE TRIGGER batch_moves BEFORE UPDATE OF status ON flow.batch_count
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION flow.batch_moves();

CREATE TABLE flow.batch_vars (
    batch_id uuid PRIMARY KEY,
    vars text NOT NULL
);
COMMENT ON TABLE flow.batch_vars IS
    'What expressions of a batch see as vars, fixed at its start; no row where its definition names no variable set.';
COMMENT ON COLUMN flow.batch_vars.batch_id IS 'The batch whose expressions see them.';
COMMENT ON COLUMN flow.batch_vars.vars IS 'A JSON object of every variable and its value, as text.';
