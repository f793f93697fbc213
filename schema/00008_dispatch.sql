-- +goose Up
-- A part is a range of records of consecutive slices: from from_off of slice_no up to, but not including, to_off of last_no.
-- A start queues a million records as one row, and a call that takes whole slices holds them as one.
ALTER TABLE flow.part ADD COLUMN last_no int;
UPDATE flow.part SET last_no = slice_no;
ALTER TABLE flow.part ALTER COLUMN last_no SET NOT NULL,
    DROP CONSTRAINT part_check, DROP CONSTRAINT part_check1,
    ADD CHECK (from_off >= 0 AND (last_no > slice_no OR (last_no = slice_no AND to_off > from_off)) AND to_off > 0),
    ADD CHECK (NOT apart OR to_off = from_off + 1),
    -- What left a slice can only be left out of a range within it.
    ADD CHECK (last_no = slice_no OR NOT apart AND left_out IS NULL);
-- A slice finds the parts that begin before it here, all others by part_by_slice.
CREATE INDEX part_across ON flow.part (batch_id, slice_no) WHERE last_no > slice_no;

-- A call has its exclusive key for as long as it is open. That the index does not speak of the state leaves it out of the way of
-- all the calls that have no such key.
UPDATE flow.call SET exclusive_key = NULL WHERE state NOT IN ('intent', 'unknown', 'awaiting');
DROP INDEX flow.call_exclusive;
CREATE UNIQUE INDEX call_exclusive ON flow.call (domain, exclusive_key) WHERE exclusive_key IS NOT NULL;

-- +goose Down
DROP INDEX flow.call_exclusive;
CREATE UNIQUE INDEX call_exclusive ON flow.call (domain, exclusive_key) WHERE state IN ('intent', 'unknown', 'awaiting') AND exclusive_key IS NOT NULL;
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, attempt, ready_at, call_id, call_seq)
SELECT p.batch_id, p.step_no, p.task_no, s.no, s.no, CASE WHEN s.no = p.slice_no THEN p.from_off ELSE 0 END,
    CASE WHEN s.no = p.last_no THEN p.to_off ELSE s.records END, p.attempt, p.ready_at, p.call_id, p.call_seq
FROM flow.part p JOIN flow.slice s ON s.batch_id = p.batch_id AND s.no BETWEEN p.slice_no AND p.last_no
WHERE p.last_no > p.slice_no;
DELETE FROM flow.part WHERE last_no > slice_no;
DROP INDEX flow.part_across;
ALTER TABLE flow.part DROP COLUMN last_no, ADD CHECK (from_off >= 0 AND to_off > from_off), ADD CHECK (NOT apart OR to_off = from_off + 1);
