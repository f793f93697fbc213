-- A slice of a retry is a run of records that follow each other in one page,
-- page_off behind its beginning; it begins at first_step, without the tasks of that step (bits by number) that are done
-- since an earlier batch.
CREATE TABLE flow.slice (
    batch_id uuid NOT NULL,
    no int NOT NULL,
    first bigint NOT NULL,
    records int NOT NULL CHECK (records BETWEEN 1 AND 32767),
    page_off int NOT NULL DEFAULT 0,
    tasks_done bigint NOT NULL DEFAULT 0,
    first_step smallint NOT NULL DEFAULT 0,
    detached int NOT NULL DEFAULT 0 CHECK (detached >= 0 AND detached <= records),
    staged smallint NOT NULL DEFAULT 0,
    pending smallint NOT NULL DEFAULT 0,
    needs_reconcile smallint NOT NULL DEFAULT 0,
    failed smallint NOT NULL DEFAULT 0,
    cancelled smallint NOT NULL DEFAULT 0,
    rejected smallint NOT NULL DEFAULT 0,
    unprocessed smallint NOT NULL DEFAULT 0,
    unresolved smallint NOT NULL DEFAULT 0,
    queued smallint NOT NULL DEFAULT 0,
    started smallint NOT NULL DEFAULT 0,
    completed smallint NOT NULL DEFAULT 0,
    accepted smallint NOT NULL DEFAULT 0,
    remaining int NOT NULL DEFAULT 0 CHECK (remaining >= 0),
    step_no smallint NOT NULL DEFAULT 0,
    state text NOT NULL CHECK (state IN ('staged', 'ready', 'waiting', 'calling', 'done')),
    ready boolean NOT NULL GENERATED ALWAYS AS (state = 'ready') STORED,
    PRIMARY KEY (batch_id, no),
    CHECK (least(staged, queued, pending, started, needs_reconcile, completed, failed, cancelled, accepted, rejected,
        unprocessed,
        unresolved) >= 0),
    CHECK (staged + queued + pending + started + needs_reconcile + completed + failed + cancelled + accepted + rejected
        + unprocessed + unresolved = records)
) WITH (fillfactor = 50);
-- The index does not speak of the state itself, so that the end of a slice changes nothing that is indexed.
CREATE INDEX slice_ready ON flow.slice (batch_id, no) WHERE ready;
COMMENT ON TABLE flow.slice IS
    'A run of a batch''s records: one page. Its records stand at one step and move together, but for those detached.';
COMMENT ON COLUMN flow.slice.batch_id IS 'The batch that the records belong to.';
COMMENT ON COLUMN flow.slice.no IS 'Place in the batch, from 0.';
COMMENT ON COLUMN flow.slice.first IS 'Position of its first record in the batch.';
COMMENT ON COLUMN flow.slice.records IS 'How many records it has; the counts below must add up to it.';
COMMENT ON COLUMN flow.slice.page_off IS 'In a retry: how far behind the beginning of its page it begins; 0 otherwise.';
COMMENT ON COLUMN flow.slice.state IS
    'staged: not released; ready: waits for in-process work; waiting: its tasks wait, and nothing is to be done; '
    'calling: its calls are queued or under way; done.';
COMMENT ON COLUMN flow.slice.ready IS 'Whether state is ready.';
COMMENT ON COLUMN flow.slice.first_step IS 'In a retry: the step at which it began; 0 otherwise.';
COMMENT ON COLUMN flow.slice.tasks_done IS
    'In a retry: tasks of first_step that an earlier batch has done, as bits by number.';
COMMENT ON COLUMN flow.slice.step_no IS 'The step at which its records stand, from 0.';
COMMENT ON COLUMN flow.slice.remaining IS
    'Record-task pairs of this step that are not settled yet; of a slice that is waiting, its rows in flow.wait; of '
    'one that is ready, the first of its records whose in-process work is not done, counted from 0.';
COMMENT ON COLUMN flow.slice.detached IS 'How many of its records go their own way, each with a row in flow.job.';
COMMENT ON COLUMN flow.slice.staged IS 'Jobs that are staged now.';
COMMENT ON COLUMN flow.slice.queued IS 'Jobs that are queued now.';
COMMENT ON COLUMN flow.slice.pending IS 'Jobs that are pending now.';
COMMENT ON COLUMN flow.slice.started IS 'Jobs that are started now.';
COMMENT ON COLUMN flow.slice.needs_reconcile IS 'Jobs that are needs_reconcile now.';
COMMENT ON COLUMN flow.slice.completed IS 'Jobs that are completed now.';
COMMENT ON COLUMN flow.slice.failed IS 'Jobs that are failed now.';
COMMENT ON COLUMN flow.slice.cancelled IS 'Jobs that are cancelled now.';
COMMENT ON COLUMN flow.slice.accepted IS 'Jobs that are accepted now.';
COMMENT ON COLUMN flow.slice.rejected IS 'Jobs that are rejected now.';
COMMENT ON COLUMN flow.slice.unprocessed IS 'Jobs that are unprocessed now.';
COMMENT ON COLUMN flow.slice.unresolved IS 'Jobs that are unresolved now.';

-- xid is the transaction that last wrote it.
CREATE VIEW flow.all_slices WITH (security_invoker = true) AS
SELECT batch_id, no, first, records, page_off, tasks_done, first_step, detached, staged, pending, needs_reconcile,
    failed, cancelled, rejected, unprocessed, unresolved, queued, started, completed, accepted, remaining, step_no,
    state, xmin::text::bigint AS xid
FROM flow.slice
UNION ALL
SELECT batch_id, 0, 0::bigint, record_count, 0, 0::bigint, 0::smallint, 0, staged::smallint, pending::smallint,
    needs_reconcile::smallint, failed::smallint, cancelled::smallint, rejected::smallint, unprocessed::smallint,
    unresolved::smallint, queued::smallint, started::smallint, completed::smallint, accepted::smallint,
    CASE WHEN completed_at IS NULL THEN record_count ELSE 0 END, 0::smallint,
    CASE WHEN completed_at IS NULL THEN 'calling' ELSE 'done' END, xmin::text::bigint
FROM flow.batch_count WHERE one_slice;

-- A binary search, because an index on positions would cost every start of a batch for the sake of few reads.
CREATE FUNCTION flow.slice_at(batch uuid, place bigint) RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE
    low int := 0;
    high int := (SELECT max(no) FROM flow.all_slices WHERE batch_id = batch);
    middle int;
BEGIN
    WHILE low < high LOOP
        middle := (low + high + 1) / 2;
        IF (SELECT first FROM flow.all_slices WHERE batch_id = batch AND no = middle) <= place THEN
            low := middle;
        ELSE
            high := middle - 1;
        END IF;
    END LOOP;
    RETURN CASE WHEN high IS NULL THEN NULL ELSE low END;
END $$;
COMMENT ON VIEW flow.all_slices IS
    'All slices: the rows of flow.slice, and those of batches whose only slice stands in flow.batch_count.';
COMMENT ON FUNCTION flow.slice_at(uuid, bigint) IS
    'The number of the slice that holds a position of a batch; null for a batch without slices, the last for a '
    'position past the end.';

CREATE TABLE flow.job (
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    slice_no int NOT NULL,
    detached_step smallint NOT NULL,
    step_no smallint NOT NULL,
    remaining smallint NOT NULL DEFAULT 0 CHECK (remaining >= 0),
    status flow.job_status NOT NULL,
    ready boolean NOT NULL DEFAULT false,
    end_status flow.job_status,
    attempts int NOT NULL DEFAULT 1,
    error text,
    started_at timestamptz,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (batch_id, position)
) WITH (fillfactor = 80);
CREATE INDEX job_by_slice ON flow.job (batch_id, slice_no, position);
CREATE INDEX job_ready ON flow.job (batch_id, position) WHERE ready;
COMMENT ON TABLE flow.job IS
    'A record that something detached from its slice: a retry, a rejection, an error. All others are what their slice '
    'is.';
COMMENT ON COLUMN flow.job.batch_id IS 'The batch of the record.';
COMMENT ON COLUMN flow.job.position IS
    'Place of the record in its batch, from 0; its job is named <batch_id>.<position>.';
COMMENT ON COLUMN flow.job.slice_no IS 'The slice that the record left.';
COMMENT ON COLUMN flow.job.detached_step IS
    'The last step in which parts of its slice speak of it; -1 where it left before the first.';
COMMENT ON COLUMN flow.job.step_no IS 'The step at which it stands now, from 0.';
COMMENT ON COLUMN flow.job.remaining IS 'Tasks of the current step that are not settled yet: calls and waits.';
COMMENT ON COLUMN flow.job.status IS 'Where it stands; a trigger refuses moves that are not drawn in batch/status.go.';
COMMENT ON COLUMN flow.job.ready IS 'True while in-process work is to be done for this job alone.';
COMMENT ON COLUMN flow.job.end_status IS
    'What it ends as once the other tasks of its step are settled; null while nothing failed.';
COMMENT ON COLUMN flow.job.attempts IS 'How often it was tried, over all of its calls and runs.';
COMMENT ON COLUMN flow.job.error IS
    'Why it failed or was rejected, as JSON that the API shows; null for none. May hold what a provider said of a '
    'record.';
COMMENT ON COLUMN flow.job.started_at IS 'When its first task began; null before.';
COMMENT ON COLUMN flow.job.updated_at IS 'When it moved last.';

CREATE FUNCTION flow.job_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (CASE OLD.status
        WHEN 'staged' THEN NEW.status IN ('queued', 'unprocessed')
        WHEN 'queued' THEN NEW.status IN ('pending', 'started', 'completed', 'failed', 'unprocessed')
        WHEN 'pending' THEN NEW.status IN ('queued', 'completed', 'failed', 'unprocessed')
        WHEN 'started' THEN NEW.status IN ('queued', 'needs_reconcile', 'completed', 'failed', 'cancelled', 'accepted',
            'rejected', 'unprocessed')
        WHEN 'needs_reconcile' THEN NEW.status IN ('queued', 'completed', 'failed', 'accepted', 'rejected',
            'unprocessed', 'unresolved')
        WHEN 'unresolved' THEN NEW.status IN ('queued', 'completed', 'failed', 'accepted', 'rejected', 'unprocessed')
        ELSE false
    END) THEN
        RAISE EXCEPTION 'job %.% cannot move from % to %', OLD.batch_id, OLD.position, OLD.status,
            NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION flow.job_moves() IS 'Refuses moves of a job''s status that are not drawn.';
CREATE TRIGGER job_moves BEFORE UPDATE OF status ON flow.job
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION flow.job_moves();

-- From from_off of slice_no up to, but not including, to_off of last_no: a start queues a million records as one row,
-- and a call that takes whole slices holds them as one. What left a slice can only be left out of a range within it.
CREATE TABLE flow.part (
    id bigint GENERATED ALWAYS AS IDENTITY,
    batch_id uuid NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    slice_no int NOT NULL,
    from_off int NOT NULL,
    last_no int NOT NULL,
    to_off int NOT NULL,
    detached boolean NOT NULL DEFAULT false,
    element int NOT NULL DEFAULT 0 CHECK (element >= 0),
    elements int NOT NULL DEFAULT 0 CHECK (elements >= 0),
    attempt int NOT NULL DEFAULT 1,
    ready_at timestamptz NOT NULL DEFAULT '-infinity',
    queued_at timestamptz,
    keyed_since timestamptz,
    call_id uuid,
    call_seq int,
    left_out int[],
    claim_no bigint,
    CHECK (from_off >= 0 AND (last_no > slice_no OR (last_no = slice_no AND to_off > from_off)) AND to_off > 0),
    CHECK (NOT detached OR to_off = from_off + 1),
    CHECK (last_no = slice_no OR NOT detached AND left_out IS NULL),
    -- The slice stands before the id, so that one index finds a part and all of a slice.
    PRIMARY KEY (batch_id, slice_no, id)
) WITH (fillfactor = 70);
CREATE INDEX part_ready ON flow.part (batch_id, step_no, task_no, ready_at, slice_no, from_off) WHERE call_id IS NULL;
CREATE INDEX part_by_call ON flow.part (call_id) WHERE call_id IS NOT NULL;
-- A slice finds the parts that begin before it here, all others by the primary key.
CREATE INDEX part_across ON flow.part (batch_id, slice_no) WHERE last_no > slice_no;
COMMENT ON TABLE flow.part IS
    'A range of a batch''s records, over one slice or several that follow each other, that waits for a call of a task '
    'or is covered by one.';
COMMENT ON COLUMN flow.part.id IS 'Nothing but a name, which no other part has.';
COMMENT ON COLUMN flow.part.batch_id IS 'The batch of the records.';
COMMENT ON COLUMN flow.part.step_no IS 'The step of the task.';
COMMENT ON COLUMN flow.part.task_no IS 'Place of the task in its step.';
COMMENT ON COLUMN flow.part.slice_no IS 'The slice in which it begins.';
COMMENT ON COLUMN flow.part.from_off IS 'Place in that slice at which it begins.';
COMMENT ON COLUMN flow.part.last_no IS 'The slice in which it ends.';
COMMENT ON COLUMN flow.part.to_off IS 'Place in that slice before which it ends.';
COMMENT ON COLUMN flow.part.detached IS 'True for one record that goes its own way.';
COMMENT ON COLUMN flow.part.element IS 'For a for_each task: which element it is for, from 0.';
COMMENT ON COLUMN flow.part.elements IS
    'For a for_each task that was in a call: how many elements there are; 0 before.';
COMMENT ON COLUMN flow.part.attempt IS 'Which attempt the next, or present, call for it is, from 1.';
COMMENT ON COLUMN flow.part.ready_at IS
    'Before which time it is not claimed again; -infinity, or long ago, where nothing delays it. What is known not to '
    'have been sent has a time that is no earlier than when that was found out.';
COMMENT ON COLUMN flow.part.keyed_since IS
    'When the first call with the idempotency key of its record was claimed that may have arrived; null for none.';
COMMENT ON COLUMN flow.part.queued_at IS
    'Since when it waits, or from when on it may be claimed again; null for what waits since its batch began.';
COMMENT ON COLUMN flow.part.call_id IS 'The call that covers it; null while it waits.';
COMMENT ON COLUMN flow.part.call_seq IS 'Its place among the parts of the call; null while it waits.';
COMMENT ON COLUMN flow.part.left_out IS 'Places in the range that are not part of the call; null for none.';
COMMENT ON COLUMN flow.part.claim_no IS
    'The change of the batch in which a call took it; null where the order cannot be in doubt.';

-- Later rows are first in force. The service compresses them.
CREATE TABLE flow.fragment (
    batch_id uuid NOT NULL,
    slice_no int NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    skipped int NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (batch_id, slice_no, step_no, task_no, seq)
);
ALTER TABLE flow.fragment ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX fragment_skipped_idx ON flow.fragment (batch_id) WHERE skipped > 0;
COMMENT ON TABLE flow.fragment IS
    'What tasks did to the records of a slice: outputs, attempts and errors. One compressed row per settlement; '
    'customer data.';
COMMENT ON COLUMN flow.fragment.batch_id IS 'The batch of the slice.';
COMMENT ON COLUMN flow.fragment.slice_no IS 'The slice of the records.';
COMMENT ON COLUMN flow.fragment.step_no IS 'The step of the task.';
COMMENT ON COLUMN flow.fragment.task_no IS 'Place of the task in its step, from 0.';
COMMENT ON COLUMN flow.fragment.seq IS 'Later ones are in force before earlier ones.';
COMMENT ON COLUMN flow.fragment.skipped IS 'How many of its records the condition of the task left out.';
COMMENT ON COLUMN flow.fragment.body IS 'A format byte and the compressed entries; package run owns the format.';

-- What stands with the counters came before all others.
CREATE VIEW flow.all_fragments WITH (security_invoker = true) AS
SELECT batch_id, slice_no, step_no, task_no, seq, skipped, body FROM flow.fragment
UNION ALL
SELECT batch_id, 0, 0::smallint, 0::smallint, 0::bigint, 0, fragment FROM flow.batch_count WHERE fragment IS NOT NULL;
COMMENT ON VIEW flow.all_fragments IS
    'All fragments: the rows of flow.fragment, and those that stand in flow.batch_count.';

CREATE TABLE flow.element (
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    element int NOT NULL,
    output text NOT NULL,
    PRIMARY KEY (batch_id, position, step_no, task_no, element)
);
COMMENT ON TABLE flow.element IS
    'Outputs of a for_each task''s elements, of records that are not through with the task. Customer data, deleted at '
    'its end.';
COMMENT ON COLUMN flow.element.batch_id IS 'The batch of the record.';
COMMENT ON COLUMN flow.element.position IS 'Place of the record in its batch.';
COMMENT ON COLUMN flow.element.step_no IS 'The step of the task.';
COMMENT ON COLUMN flow.element.task_no IS 'Place of the task in its step.';
COMMENT ON COLUMN flow.element.element IS 'Which of the elements, from 0.';
COMMENT ON COLUMN flow.element.output IS 'What the call for it gave, as JSON text.';

-- They are those of the steps before step_no and of the tasks of it that were done, off records further on. What is
-- deeper is older.
CREATE TABLE flow.inherited (
    batch_id uuid NOT NULL,
    slice_no int NOT NULL,
    depth int NOT NULL,
    from_batch uuid NOT NULL,
    from_slice int NOT NULL,
    off int NOT NULL,
    step_no smallint NOT NULL,
    tasks_done bigint NOT NULL,
    PRIMARY KEY (batch_id, slice_no, depth)
);
COMMENT ON TABLE flow.inherited IS
    'Where the outputs are that a slice of a retry had before it began: in fragments of an earlier batch.';
COMMENT ON COLUMN flow.inherited.batch_id IS 'The retry.';
COMMENT ON COLUMN flow.inherited.slice_no IS 'The slice of the retry.';
COMMENT ON COLUMN flow.inherited.depth IS '0 for the batch that is retried, more for those before it.';
COMMENT ON COLUMN flow.inherited.from_batch IS 'The earlier batch that has the fragments.';
COMMENT ON COLUMN flow.inherited.from_slice IS 'The slice there.';
COMMENT ON COLUMN flow.inherited.off IS 'How many records further on they stand there.';
COMMENT ON COLUMN flow.inherited.step_no IS 'The step before which everything is taken over.';
COMMENT ON COLUMN flow.inherited.tasks_done IS 'Tasks of that step that are taken over as well, as bits by number.';

CREATE TABLE flow.kept_key (
    batch_id uuid NOT NULL,
    slice_no int NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    key_batch uuid NOT NULL,
    PRIMARY KEY (batch_id, slice_no, step_no, task_no)
);
COMMENT ON TABLE flow.kept_key IS
    'Tasks of slices of a retry whose calls have the idempotency keys of an earlier batch: one of those may have '
    'arrived.';
COMMENT ON COLUMN flow.kept_key.batch_id IS 'The retry.';
COMMENT ON COLUMN flow.kept_key.slice_no IS 'The slice of the retry.';
COMMENT ON COLUMN flow.kept_key.step_no IS 'The step at which the slice began.';
COMMENT ON COLUMN flow.kept_key.task_no IS 'Place of the task in its step, from 0.';
COMMENT ON COLUMN flow.kept_key.key_batch IS 'The batch that made the keys.';

CREATE TABLE flow.ended_run (
    org_id uuid NOT NULL,
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    run int NOT NULL CHECK (run > 0),
    step_no smallint NOT NULL,
    note text,
    ended_at timestamptz NOT NULL,
    PRIMARY KEY (org_id, batch_id, position, run)
);
COMMENT ON TABLE flow.ended_run IS
    'A run of a job that is over because a person had the job run again. The last run of a job has no row.';
COMMENT ON COLUMN flow.ended_run.org_id IS 'The organization of the batch.';
COMMENT ON COLUMN flow.ended_run.batch_id IS 'The batch of the job.';
COMMENT ON COLUMN flow.ended_run.position IS 'Place of the job in its batch.';
COMMENT ON COLUMN flow.ended_run.run IS 'Counts from 1; what the execution <job_id>.<run> shows.';
COMMENT ON COLUMN flow.ended_run.step_no IS 'The step at which the run was given up.';
COMMENT ON COLUMN flow.ended_run.note IS 'What the person said; null for nothing.';
COMMENT ON COLUMN flow.ended_run.ended_at IS 'When the job was put back into its queue.';

COMMENT ON COLUMN flow.all_slices.xid IS
    'The transaction that last wrote the row in which it stands: another one where it has changed.';
-- What the views have of the tables is called by the same names.
DO $$
DECLARE c record;
BEGIN
    FOR c IN
        SELECT w.view, v.attname AS name, col_description(r.attrelid, r.attnum) AS says
        FROM (VALUES ('flow.all_slices', 'flow.slice'), ('flow.all_fragments', 'flow.fragment')) AS w (view, table_of)
        JOIN pg_attribute r ON r.attrelid = w.table_of::regclass AND r.attnum > 0
        JOIN pg_attribute v ON v.attname = r.attname AND v.attrelid = w.view::regclass
    LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', c.view, c.name, c.says);
    END LOOP;
END $$;
