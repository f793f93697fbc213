-- +goose Up
-- A customer. Every tenant row of every other table carries the id of one.
CREATE TABLE flow.organization (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
    created_at timestamptz NOT NULL DEFAULT flow.clock()
);

-- Who acts. An organization is born with one service account; its API keys act as that.
CREATE TABLE flow.account (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('service', 'user')),
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    UNIQUE (org_id, id)
);
CREATE UNIQUE INDEX account_service ON flow.account (org_id) WHERE kind = 'service';

-- Of a key only its keyed hash is stored. Rows are never deleted: a revoked key stays in the list.
CREATE TABLE flow.api_key (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    account_id uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    prefix text NOT NULL,
    last_four text NOT NULL,
    hash bytea NOT NULL CONSTRAINT api_key_hash UNIQUE,
    created_by uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    last_used_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    FOREIGN KEY (org_id, account_id) REFERENCES flow.account (org_id, id),
    FOREIGN KEY (org_id, created_by) REFERENCES flow.account (org_id, id)
);
CREATE INDEX api_key_org ON flow.api_key (org_id, id);

-- +goose StatementBegin
-- The one place that says what the status of a key is; revoked wins over expired.
CREATE FUNCTION flow.api_key_status(revoked_at timestamptz, expires_at timestamptz) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= flow.clock() THEN 'expired' ELSE 'active' END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION flow.api_key_status;
DROP TABLE flow.api_key;
DROP TABLE flow.account;
DROP TABLE flow.organization;
