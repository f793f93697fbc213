-- +goose Up
-- Projections must not count calls as ready that wait for their next attempt. They count these only in queues that have some.
ALTER TABLE flow.lane_batch ADD COLUMN delayed_until timestamptz;
COMMENT ON COLUMN flow.lane_batch.delayed_until IS 'Until when parts of the queue may wait for their next attempt: the latest ready_at that any of them ever had; null where none had one.';
UPDATE flow.lane_batch l SET delayed_until = p.ready_at
FROM (SELECT batch_id, step_no, task_no, max(ready_at) AS ready_at FROM flow.part WHERE call_id IS NULL GROUP BY batch_id, step_no, task_no) p
WHERE p.batch_id = l.batch_id AND p.step_no = l.step_no AND p.task_no = l.task_no AND p.ready_at > flow.clock();

-- +goose Down
ALTER TABLE flow.lane_batch DROP COLUMN delayed_until;
