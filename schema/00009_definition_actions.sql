-- +goose Up
-- What the actions of a version were when it was stored, by id: {"call": ..., "bulk": ...}. It tells how records of its
-- batches end, and whether a task made calls, once the catalog has lost the action or made another kind of it.
ALTER TABLE flow.definition_version ADD COLUMN actions json NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE flow.definition_version DROP COLUMN actions;
