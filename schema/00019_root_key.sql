-- +goose Up
-- The key from which the installation derives the keys of its hashes and signatures, under the key-encryption key. It is
-- kept so that replacing the key-encryption key leaves API keys good.
CREATE TABLE flow.root_key (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    kek_id text NOT NULL,
    wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock()
);

-- +goose Down
DROP TABLE flow.root_key;
