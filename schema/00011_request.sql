-- +goose Up
-- The answer to a request that carried an idempotency key, kept for a day. It is written in the transaction of what the
-- request did: either both are there or neither. Neither the key nor the body is stored, only keyed hashes of them; key_hash
-- covers the operation and the path, too.
CREATE TABLE flow.idempotency_key (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    body_hash bytea NOT NULL CHECK (octet_length(body_hash) = 32),
    operation text NOT NULL,
    status smallint NOT NULL CHECK (status BETWEEN 200 AND 299),
    answer bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (org_id, key_hash)
);
CREATE INDEX idempotency_key_old ON flow.idempotency_key (created_at);

-- How many requests of a limited operation an organization has made in the window that began at began_at. One row each for
-- ever, changed in place. Unlogged, so that counting waits for no disk: after a crash of the database windows begin anew.
CREATE UNLOGGED TABLE flow.request_count (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    operation text NOT NULL,
    began_at timestamptz NOT NULL,
    used bigint NOT NULL CHECK (used > 0),
    PRIMARY KEY (org_id, operation)
) WITH (fillfactor = 50);

-- Lists of things that come by the million find their page by what they are filtered by.
CREATE INDEX batch_by_status ON flow.batch (org_id, status, id);
CREATE INDEX batch_by_schedule ON flow.batch (schedule_id, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX batch_by_trigger_type ON flow.batch (org_id, trigger_type, id) WHERE trigger_type <> 'api_call';
CREATE INDEX record_set_by_status ON flow.record_set (org_id, status, id);

-- +goose Down
DROP INDEX flow.record_set_by_status, flow.batch_by_trigger_type, flow.batch_by_schedule, flow.batch_by_status;
DROP TABLE flow.request_count, flow.idempotency_key;
