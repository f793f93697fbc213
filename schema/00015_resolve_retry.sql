-- +goose Up
-- How many records of a call people have settled one by one; they are out of its parts. It counts the changes of those too:
-- who read the parts before sees by it that they are others now.
ALTER TABLE flow.call ADD COLUMN resolved int NOT NULL DEFAULT 0;

-- What a person said of a record whose call's outcome nobody knew. call_row is the place of the record in the call.
CREATE TABLE flow.resolution (
    call_id uuid NOT NULL,
    call_row int NOT NULL,
    org_id uuid NOT NULL,
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('accepted', 'rejected', 'requeue')),
    note text,
    account_id uuid,
    created_at timestamptz NOT NULL,
    -- What the provider said later, where that differs: accepted, rejected, not_arrived.
    contradiction text,
    PRIMARY KEY (call_id, call_row)
);

-- A run of a job that is over because the job was put back into its queue by a person: the job goes on in the next run. The
-- last run of a job has no row.
CREATE TABLE flow.ended_run (
    org_id uuid NOT NULL,
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    run int NOT NULL CHECK (run > 0),
    -- The step at which it ended.
    step_no smallint NOT NULL,
    note text,
    ended_at timestamptz NOT NULL,
    PRIMARY KEY (org_id, batch_id, position, run)
);

-- A retry works on records of another batch again. retry_root is the first batch of those that retry each other's records,
-- retry_no their order.
ALTER TABLE flow.batch ADD COLUMN retry_of uuid, ADD COLUMN retry_root uuid, ADD COLUMN retry_no int NOT NULL DEFAULT 0,
    ADD CHECK ((retry_of IS NULL) = (retry_root IS NULL));
CREATE UNIQUE INDEX batch_by_retry_root ON flow.batch (retry_root, retry_no) WHERE retry_root IS NOT NULL;

-- A slice of a retry is a run of records that follow each other in one page, page_off behind its beginning. It begins at
-- first_step, without the tasks of that step (bits by number) that are done since an earlier batch.
ALTER TABLE flow.slice ADD COLUMN page_off int NOT NULL DEFAULT 0, ADD COLUMN first_step smallint NOT NULL DEFAULT 0,
    ADD COLUMN tasks_done bigint NOT NULL DEFAULT 0;

-- Where the outputs are that a slice of a retry had before it began: in the fragments of a slice of an earlier batch, of the
-- steps before step_no and the tasks of it that were done, off records further on. What is deeper is older.
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

-- +goose Down
DROP TABLE flow.inherited, flow.ended_run, flow.resolution;
ALTER TABLE flow.slice DROP COLUMN page_off, DROP COLUMN first_step, DROP COLUMN tasks_done;
ALTER TABLE flow.batch DROP COLUMN retry_of, DROP COLUMN retry_root, DROP COLUMN retry_no;
ALTER TABLE flow.call DROP COLUMN resolved;
