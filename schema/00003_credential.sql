-- +goose Up
-- One keyset per organization, encrypted by the key-encryption key that kek_id names (a fingerprint, not the key).
CREATE TABLE flow.org_keyset (
    org_id uuid PRIMARY KEY REFERENCES flow.organization (id),
    kek_id text NOT NULL,
    wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    rotated_at timestamptz
);

-- Ciphertexts, bound to organization, id and version: a row that is copied elsewhere does not decrypt. The id is that of
-- what the secret belongs to. Only the newest version is kept.
CREATE TABLE flow.secret (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.org_keyset (org_id),
    version bigint NOT NULL CHECK (version > 0),
    ciphertext bytea NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT flow.clock()
);
CREATE INDEX secret_org ON flow.secret (org_id);

-- An account of a provider. It has no org_id: two organizations that use the same account share its budget.
CREATE TABLE flow.domain (
    tenancy_id text PRIMARY KEY,
    platform_id text NOT NULL,
    account_number text,
    account_name text NOT NULL DEFAULT '',
    time_zone text NOT NULL,
    identified_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    UNIQUE (platform_id, account_number)
);

-- The provider's own caps of an account; where there is a row it replaces the cap of the catalog.
CREATE TABLE flow.domain_limit (
    tenancy_id text NOT NULL REFERENCES flow.domain (tenancy_id),
    bucket text NOT NULL,
    window_seconds int NOT NULL CHECK (window_seconds IN (60, 3600, 86400)),
    cap int NOT NULL CHECK (cap >= 0),
    read_at timestamptz NOT NULL,
    PRIMARY KEY (tenancy_id, bucket, window_seconds)
);

-- The secret itself is the row of flow.secret with the same id.
CREATE TABLE flow.credential (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL,
    platform_id text NOT NULL,
    auth_method text NOT NULL CHECK (auth_method IN ('basic_auth', 'api_key', 'jwt', 'oauth2', 'aws_access_key')),
    tenancy_id text REFERENCES flow.domain (tenancy_id),
    grant_type text,
    token_url text,
    scopes text[] NOT NULL DEFAULT '{}',
    audience text,
    placement_header text,
    placement_scheme text,
    placement_query text,
    aws_region text,
    aws_default_bucket text,
    aws_endpoint_url text,
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'expired', 'revoked')),
    created_by text NOT NULL,
    last_verified timestamptz,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    UNIQUE (org_id, id),
    CONSTRAINT credential_placement CHECK (num_nonnulls(placement_header, placement_query) = CASE auth_method WHEN 'api_key' THEN 1 ELSE 0 END),
    CONSTRAINT credential_scheme CHECK (placement_scheme IS NULL OR placement_header IS NOT NULL)
);
CREATE INDEX credential_tenancy ON flow.credential (tenancy_id, org_id);

-- +goose StatementBegin
CREATE FUNCTION flow.credential_keep() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF new.org_id <> old.org_id OR new.platform_id <> old.platform_id OR old.tenancy_id IS DISTINCT FROM new.tenancy_id AND old.tenancy_id IS NOT NULL THEN
        RAISE EXCEPTION 'organization, platform and account of a credential never change';
    END IF;
    RETURN new;
END $$;
-- +goose StatementEnd
CREATE TRIGGER credential_keep BEFORE UPDATE ON flow.credential FOR EACH ROW EXECUTE FUNCTION flow.credential_keep();

-- Observed use of a credential, per service of its platform.
CREATE TABLE flow.credential_use (
    org_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    service_id text NOT NULL,
    last_used_at timestamptz NOT NULL,
    last_stamped_at timestamptz NOT NULL,
    last_succeeded_at timestamptz,
    last_failed_at timestamptz,
    last_failure_class text,
    PRIMARY KEY (credential_id, service_id),
    FOREIGN KEY (org_id, credential_id) REFERENCES flow.credential (org_id, id) ON DELETE CASCADE
);

-- +goose Down
DROP TABLE flow.credential_use, flow.credential, flow.domain_limit, flow.domain, flow.secret, flow.org_keyset;
DROP FUNCTION flow.credential_keep();
