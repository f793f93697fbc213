-- +goose Up
-- What is counted, or passed over, of all jobs of an organization is a sum over its batches: it needs no more than this.
DROP INDEX flow.batch_by_org;
CREATE INDEX batch_by_org ON flow.batch (org_id, id) INCLUDE (record_count);

-- +goose Down
DROP INDEX flow.batch_by_org;
CREATE INDEX batch_by_org ON flow.batch (org_id, id);
