-- +goose Up
-- Of a task with for_each: which element the part is for, from 0, and, once it was in a call, how many there are.
ALTER TABLE flow.part ADD COLUMN element int NOT NULL DEFAULT 0 CHECK (element >= 0),
    ADD COLUMN elements int NOT NULL DEFAULT 0 CHECK (elements >= 0);

-- The outputs of the elements of records that are not through with their task. They go when the task ends.
CREATE TABLE flow.element (
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    element int NOT NULL,
    output text NOT NULL,
    PRIMARY KEY (batch_id, position, step_no, task_no, element)
);

-- +goose Down
DROP TABLE flow.element;
ALTER TABLE flow.part DROP COLUMN elements, DROP COLUMN element;
