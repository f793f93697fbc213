-- +goose Up
-- How many calls an organization made in a day (UTC), and how many records they carried. The claim of calls counts them, so
-- that every row of flow.call is in here, and stays when that is deleted. All zeros stand for no definition (calls that carry no
-- record, such as lookups) and for no credential.
CREATE TABLE flow.usage (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    day date NOT NULL,
    definition_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    action_id text NOT NULL,
    calls bigint NOT NULL CHECK (calls >= 0),
    records bigint NOT NULL CHECK (records >= 0),
    PRIMARY KEY (org_id, day, definition_id, credential_id, action_id)
) WITH (fillfactor = 50);
CREATE INDEX usage_old ON flow.usage (day);

-- Sums over the batches of a time need no more than this.
CREATE INDEX batch_by_time ON flow.batch (org_id, created_at) INCLUDE (definition_id, version, record_count);

-- +goose Down
DROP INDEX flow.batch_by_time;
DROP TABLE flow.usage;
