-- +goose Up
-- A credential that was deleted is kept, without its secret, for what it spent; nothing else finds it.
ALTER TABLE flow.credential ADD COLUMN deleted_at timestamptz;
CREATE INDEX credential_kept ON flow.credential (org_id, id) WHERE deleted_at IS NULL;
CREATE INDEX credential_kept_by_status ON flow.credential (org_id, status, id) WHERE deleted_at IS NULL;

-- The organization that named an account itself; null for one that its provider identified. Only the latter is shared, so
-- only there one account number is one row.
ALTER TABLE flow.domain ADD COLUMN org_id uuid REFERENCES flow.organization (id),
    DROP CONSTRAINT domain_platform_id_account_number_key;
CREATE UNIQUE INDEX domain_account ON flow.domain (platform_id, account_number) WHERE org_id IS NULL;

-- An account as one organization knows it. Others that use the account have rows of their own.
CREATE TABLE flow.tenant (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    tenancy_id text NOT NULL REFERENCES flow.domain (tenancy_id),
    -- What the organization calls it; null for what the provider calls it.
    label text CHECK (char_length(label) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (org_id, tenancy_id)
);
CREATE INDEX tenant_in_order ON flow.tenant (org_id, created_at, tenancy_id);
INSERT INTO flow.tenant (org_id, tenancy_id, created_at)
SELECT org_id, tenancy_id, min(created_at) FROM flow.credential WHERE tenancy_id IS NOT NULL GROUP BY org_id, tenancy_id;

-- +goose Down
DROP TABLE flow.tenant;
DROP INDEX flow.domain_account;
ALTER TABLE flow.domain DROP COLUMN org_id, ADD CONSTRAINT domain_platform_id_account_number_key UNIQUE (platform_id, account_number);
DROP INDEX flow.credential_kept, flow.credential_kept_by_status;
ALTER TABLE flow.credential DROP COLUMN deleted_at;
