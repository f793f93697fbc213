-- +goose Up
-- A store keeps records by key. fields: [{name, type}] in their order; layers: from the lowest precedence to the highest. They
-- are json, not jsonb: order stays as it was written. A deleted store is found by nothing but the work that clears it.
CREATE TABLE flow.store (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 63),
    fields json NOT NULL,
    layers json NOT NULL,
    config_version integer NOT NULL DEFAULT 1,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    deleted_at timestamptz,
    UNIQUE (org_id, id)
);
CREATE UNIQUE INDEX store_name ON flow.store (org_id, name) WHERE deleted_at IS NULL;

-- What changes with the records of a store. It is a row of its own because every writer shares the store's row. Whoever adds
-- or removes records locks it before the records.
CREATE TABLE flow.store_state (
    store_id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    records bigint NOT NULL DEFAULT 0 CHECK (records >= 0),
    -- Up to this key all records are resolved by the newest configuration; null when all are.
    resolved_upto text COLLATE "C",
    FOREIGN KEY (org_id, store_id) REFERENCES flow.store (org_id, id) ON DELETE CASCADE
);

-- layers: [{layer, values, updated_at, updated_by}]. resolved: an object of the fields that the store declared in
-- resolved_config_version. Both are json: digits stay as they were written. terms: a digest of store, field, type and value for
-- every field that has a value; filters look for them.
CREATE TABLE flow.store_record (
    org_id uuid NOT NULL,
    store_id uuid NOT NULL,
    key text COLLATE "C" NOT NULL CHECK (char_length(key) BETWEEN 1 AND 200),
    layers json NOT NULL,
    resolved json NOT NULL,
    terms uuid[] NOT NULL,
    resolved_config_version integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (store_id, key),
    FOREIGN KEY (org_id, store_id) REFERENCES flow.store (org_id, id)
);
CREATE INDEX store_record_by_update ON flow.store_record (store_id, updated_at, key);
-- The list of entries that are not yet in the index is read by every search: it is kept short.
CREATE INDEX store_record_terms ON flow.store_record USING gin (terms) WITH (gin_pending_list_limit = 256);

-- +goose Down
DROP TABLE flow.store_record;
DROP TABLE flow.store_state;
DROP TABLE flow.store;
