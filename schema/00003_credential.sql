-- It is kept so that replacing the key-encryption key leaves API keys good.
CREATE TABLE flow.root_key (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    kek_id text NOT NULL,
    wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock()
);
COMMENT ON TABLE flow.root_key IS
    'The key of the installation from which the keys of its hashes and signatures follow, wrapped by the '
    'key-encryption key. One row.';
COMMENT ON COLUMN flow.root_key.single IS 'Always true: lets the table have one row.';
COMMENT ON COLUMN flow.root_key.kek_id IS 'Fingerprint of the key-encryption key that opens it; not the key.';
COMMENT ON COLUMN flow.root_key.wrapped IS 'The key, encrypted.';
COMMENT ON COLUMN flow.root_key.created_at IS 'When the first process of the installation started.';

CREATE TABLE flow.org_keyset (
    org_id uuid PRIMARY KEY REFERENCES flow.organization (id),
    kek_id text NOT NULL,
    wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    rotated_at timestamptz
);
COMMENT ON TABLE flow.org_keyset IS 'The encryption keys of an organization, wrapped by the key-encryption key.';
COMMENT ON COLUMN flow.org_keyset.org_id IS 'The organization whose secrets they encrypt.';
COMMENT ON COLUMN flow.org_keyset.kek_id IS 'Fingerprint of the key-encryption key that opens them; not the key.';
COMMENT ON COLUMN flow.org_keyset.wrapped IS
    'The keys, encrypted; bound to the organization, so that a row copied elsewhere does not open.';
COMMENT ON COLUMN flow.org_keyset.created_at IS 'When the organization''s first secret was stored.';
COMMENT ON COLUMN flow.org_keyset.rotated_at IS 'When `flowlane vault rotate` last added a key; null for never.';

CREATE TABLE flow.secret (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.org_keyset (org_id),
    version bigint NOT NULL CHECK (version > 0),
    ciphertext bytea NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT flow.clock()
);
CREATE INDEX secret_org ON flow.secret (org_id);
COMMENT ON TABLE flow.secret IS
    'Ciphertexts, each bound to its organization, id and version: a row that is copied elsewhere does not decrypt.';
COMMENT ON COLUMN flow.secret.id IS 'The id of what the secret belongs to, a credential for instance.';
COMMENT ON COLUMN flow.secret.org_id IS 'The organization whose keys encrypt it.';
COMMENT ON COLUMN flow.secret.version IS 'Grows with each new secret; only the newest is kept.';
COMMENT ON COLUMN flow.secret.ciphertext IS 'The secret, encrypted by a key of flow.org_keyset.';
COMMENT ON COLUMN flow.secret.updated_at IS 'When it was stored, or encrypted again by `flowlane vault rotate`.';

-- Two organizations that use one account share its budget. So org_id is null, and one account number is one row, where
-- the provider identified the account.
CREATE TABLE flow.domain (
    tenancy_id text PRIMARY KEY,
    org_id uuid REFERENCES flow.organization (id),
    platform_id text NOT NULL,
    credential_id uuid CHECK (credential_id IS NULL OR org_id IS NOT NULL),
    account_number text,
    account_name text NOT NULL DEFAULT '',
    time_zone text NOT NULL,
    identified_at timestamptz,
    answers_in double precision CHECK (answers_in >= 0),
    created_at timestamptz NOT NULL DEFAULT flow.clock()
);
CREATE UNIQUE INDEX domain_account ON flow.domain (platform_id, account_number) WHERE org_id IS NULL;
COMMENT ON TABLE flow.domain IS
    'A Domain: an account of a provider, or a credential that its owner limits, with its ledger. Organizations that '
    'use one account share it, and its budgets.';
COMMENT ON COLUMN flow.domain.tenancy_id IS
    'What the API calls tenancy_id; follows from platform and account number where the provider identified the '
    'account.';
COMMENT ON COLUMN flow.domain.org_id IS
    'The organization that named it itself and alone uses it; null for one that its provider identified.';
COMMENT ON COLUMN flow.domain.platform_id IS 'The provider, as the catalog names it.';
COMMENT ON COLUMN flow.domain.credential_id IS
    'The credential that its owner limits, of a platform that tells no accounts; null for an account. It is known '
    '(flow.tenant) as long as there are limits.';
COMMENT ON COLUMN flow.domain.account_number IS
    'The provider''s own number of the account; null while nobody knows it.';
COMMENT ON COLUMN flow.domain.account_name IS 'How the provider calls the account; empty where it does not say.';
COMMENT ON COLUMN flow.domain.time_zone IS 'The IANA zone in whose days and hours the provider counts calls.';
COMMENT ON COLUMN flow.domain.identified_at IS
    'When the provider said which account it is; null where only an organization did.';
COMMENT ON COLUMN flow.domain.answers_in IS
    'Within how many seconds its provider answers our own questions, tests and readings of its counters: the longest, '
    'forgotten little by little; null where it was never asked.';
COMMENT ON COLUMN flow.domain.created_at IS 'When the first organization came to know it.';

CREATE TABLE flow.domain_limit (
    tenancy_id text NOT NULL REFERENCES flow.domain (tenancy_id),
    bucket text NOT NULL,
    window_seconds int NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    cap int NOT NULL CHECK (cap >= 0),
    read_at timestamptz NOT NULL,
    PRIMARY KEY (tenancy_id, bucket, window_seconds)
);
COMMENT ON TABLE flow.domain_limit IS
    'The provider''s own caps of an account, as last read. They replace the caps of the catalog.';
COMMENT ON COLUMN flow.domain_limit.tenancy_id IS 'The Domain that is limited.';
COMMENT ON COLUMN flow.domain_limit.bucket IS 'The operation type that is limited.';
COMMENT ON COLUMN flow.domain_limit.window_seconds IS 'Length of the window.';
COMMENT ON COLUMN flow.domain_limit.cap IS 'Calls that the provider allows in a window.';
COMMENT ON COLUMN flow.domain_limit.read_at IS 'When the provider said so.';

CREATE TABLE flow.tenant (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    tenancy_id text NOT NULL REFERENCES flow.domain (tenancy_id),
    label text CHECK (char_length(label) BETWEEN 1 AND 200),
    limits jsonb,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (org_id, tenancy_id)
);
CREATE INDEX tenant_in_order ON flow.tenant (org_id, created_at, tenancy_id);
COMMENT ON TABLE flow.tenant IS
    'A Domain as one organization knows it; others that use the account have rows of their own.';
COMMENT ON COLUMN flow.tenant.org_id IS 'The organization that knows it.';
COMMENT ON COLUMN flow.tenant.tenancy_id IS 'The Domain (flow.domain) that is known.';
COMMENT ON COLUMN flow.tenant.label IS 'What the organization calls it; null for what the provider calls it.';
COMMENT ON COLUMN flow.tenant.limits IS
    'Windows and calls at once that the organization has set for all of its credentials of the account, where the '
    'platform is its own; null for none.';
COMMENT ON COLUMN flow.tenant.created_at IS 'When the organization came to know it.';

-- One that was deleted is kept, without its secret, for what it spent; nothing else finds it.
CREATE TABLE flow.credential (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL,
    platform_id text NOT NULL,
    auth_method text NOT NULL CHECK (auth_method IN ('basic_auth', 'api_key', 'jwt', 'oauth2', 'aws_access_key',
        'mutual_tls')),
    tenancy_id text REFERENCES flow.domain (tenancy_id),
    grant_type text,
    token_url text,
    authorize_url text,
    scopes text[] NOT NULL DEFAULT '{}',
    audience text,
    placement_header text,
    placement_scheme text,
    placement_query text,
    placement_cookie text,
    aws_region text,
    aws_service text,
    aws_default_bucket text,
    aws_endpoint_url text,
    allowed_origins text[] NOT NULL DEFAULT '{}',
    limits jsonb,
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'expired', 'revoked')),
    created_by text NOT NULL,
    last_verified timestamptz,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    deleted_at timestamptz,
    UNIQUE (org_id, id),
    CONSTRAINT credential_placement CHECK (num_nonnulls(placement_header, placement_query, placement_cookie) =
        CASE auth_method WHEN 'api_key' THEN 1 ELSE 0 END),
    CONSTRAINT credential_scheme CHECK (placement_scheme IS NULL OR placement_header IS NOT NULL)
);
CREATE INDEX credential_tenancy ON flow.credential (tenancy_id, org_id);
CREATE INDEX credential_by_name ON flow.credential (org_id, lower(name) text_pattern_ops) WHERE deleted_at IS NULL;
CREATE INDEX credential_kept ON flow.credential (org_id, id) WHERE deleted_at IS NULL;
COMMENT ON TABLE flow.credential IS
    'How an organization comes into a provider''s account. The secret itself is the row of flow.secret with the same '
    'id.';
COMMENT ON COLUMN flow.credential.id IS 'What definitions name.';
COMMENT ON COLUMN flow.credential.org_id IS 'The organization that may use it; never changes.';
COMMENT ON COLUMN flow.credential.name IS 'How its owner calls it.';
COMMENT ON COLUMN flow.credential.platform_id IS 'The provider it is for, as the catalog names it; never changes.';
COMMENT ON COLUMN flow.credential.auth_method IS
    'basic_auth, api_key, jwt, oauth2, aws_access_key or mutual_tls: what the secret consists of and how calls carry '
    'it.';
COMMENT ON COLUMN flow.credential.tenancy_id IS
    'The Domain that its calls spend from; null where nothing is metered. Once set it never changes.';
COMMENT ON COLUMN flow.credential.grant_type IS 'oauth2: how a token is asked for; null for other methods.';
COMMENT ON COLUMN flow.credential.token_url IS 'oauth2: where a token is asked for; null for other methods.';
COMMENT ON COLUMN flow.credential.authorize_url IS
    'oauth2, authorization_code: where a person agrees; null for other grants.';
COMMENT ON COLUMN flow.credential.scopes IS 'oauth2: what the token is asked for; empty for other methods.';
COMMENT ON COLUMN flow.credential.audience IS
    'oauth2, jwt: whom the token or assertion is meant for; null where none is named.';
COMMENT ON COLUMN flow.credential.placement_header IS
    'api_key: the header that carries the key; null where a query parameter or cookie does.';
COMMENT ON COLUMN flow.credential.placement_scheme IS 'api_key: the word before the key in the header; null for none.';
COMMENT ON COLUMN flow.credential.placement_query IS
    'api_key: the query parameter that carries the key; null where a header or cookie does.';
COMMENT ON COLUMN flow.credential.placement_cookie IS
    'api_key: the cookie that carries the key; null where a header or query parameter does.';
COMMENT ON COLUMN flow.credential.aws_region IS 'aws_access_key: the region that calls are signed for.';
COMMENT ON COLUMN flow.credential.aws_service IS
    'aws_access_key: the service that calls are signed for; null where the catalog, the call or its address says it.';
COMMENT ON COLUMN flow.credential.aws_default_bucket IS 'aws_access_key: the S3 bucket of calls that name none.';
COMMENT ON COLUMN flow.credential.aws_endpoint_url IS
    'aws_access_key: a service that speaks AWS''s protocols elsewhere; null for AWS itself.';
COMMENT ON COLUMN flow.credential.allowed_origins IS
    'Where the secret may be sent, in order, for a platform whose flows name addresses; empty for others, where the '
    'catalog says it.';
COMMENT ON COLUMN flow.credential.limits IS
    'Windows and calls at once that the organization has set for calls with the credential, each service of the '
    'platform by itself; null where nobody has.';
COMMENT ON COLUMN flow.credential.status IS 'active; expired, revoked: calls with it are not sent.';
COMMENT ON COLUMN flow.credential.created_by IS 'The account that stored it.';
COMMENT ON COLUMN flow.credential.last_verified IS 'When a test of it last succeeded; null for never.';
COMMENT ON COLUMN flow.credential.created_at IS 'When it was stored first.';
COMMENT ON COLUMN flow.credential.updated_at IS 'When anything of it changed last, its secret included.';
COMMENT ON COLUMN flow.credential.deleted_at IS
    'When it was deleted: the secret is gone, the row stays for what it spent. Null while it lives.';

CREATE FUNCTION flow.credential_keep() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF new.org_id <> old.org_id OR new.platform_id <> old.platform_id OR old.tenancy_id IS DISTINCT FROM new.tenancy_id
        AND old.tenancy_id IS NOT NULL THEN
        RAISE EXCEPTION 'organization, platform and account of a credential never change';
    END IF;
    RETURN new;
END $$;
COMMENT ON FUNCTION flow.credential_keep() IS
    'Refuses to move a credential to another organization, platform or account.';
CREATE TRIGGER credential_keep BEFORE UPDATE ON flow.credential FOR EACH ROW EXECUTE FUNCTION flow.credential_keep();

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
COMMENT ON TABLE flow.credential_use IS
    'Observed use of a credential, per service of its platform, from the answers to its calls.';
COMMENT ON COLUMN flow.credential_use.org_id IS 'The organization of the credential.';
COMMENT ON COLUMN flow.credential_use.credential_id IS 'The credential that calls carried.';
COMMENT ON COLUMN flow.credential_use.service_id IS 'The service that was called, as the catalog names it.';
COMMENT ON COLUMN flow.credential_use.last_used_at IS 'The last call that carried it.';
COMMENT ON COLUMN flow.credential_use.last_stamped_at IS
    'When this row was last written: at most every 30 seconds while nothing new happens.';
COMMENT ON COLUMN flow.credential_use.last_succeeded_at IS 'The last call that the provider let in; null for none.';
COMMENT ON COLUMN flow.credential_use.last_failed_at IS
    'The last call that failed because of the credential; null for none.';
COMMENT ON COLUMN flow.credential_use.last_failure_class IS 'Why that call failed, as the API shows it; null for none.';

-- The tokens themselves are a row of flow.secret.
CREATE TABLE flow.credential_token (
    credential_id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    of_version bigint NOT NULL,
    generation bigint NOT NULL DEFAULT 0,
    expires_at timestamptz,
    asked_by uuid,
    asked_until timestamptz,
    failures int NOT NULL DEFAULT 0,
    retry_at timestamptz,
    lost boolean NOT NULL DEFAULT false,
    failure_class text,
    failure text,
    FOREIGN KEY (org_id, credential_id) REFERENCES flow.credential (org_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.credential_token IS
    'What all processes know of the tokens of an oauth2 credential, and which of them is asking for new ones.';
COMMENT ON COLUMN flow.credential_token.credential_id IS 'The credential whose tokens they are.';
COMMENT ON COLUMN flow.credential_token.org_id IS 'The organization of the credential.';
COMMENT ON COLUMN flow.credential_token.of_version IS
    'The version of the credential''s secret that they were got with; those of an older one are not used.';
COMMENT ON COLUMN flow.credential_token.generation IS
    'Grows with each set of tokens that is stored; 0 before the first.';
COMMENT ON COLUMN flow.credential_token.expires_at IS 'Until when the access token is good; null where there is none.';
COMMENT ON COLUMN flow.credential_token.asked_by IS 'Names the attempt that asks the issuer just now; null for none.';
COMMENT ON COLUMN flow.credential_token.asked_until IS 'When that attempt counts as dead, and another may ask.';
COMMENT ON COLUMN flow.credential_token.failures IS 'How often in a row the issuer gave no tokens.';
COMMENT ON COLUMN flow.credential_token.retry_at IS 'Before this time nobody asks after a failure; null for none.';
COMMENT ON COLUMN flow.credential_token.lost IS
    'The issuer takes the refresh token no longer: nobody asks until a person has authorized the credential again.';
COMMENT ON COLUMN flow.credential_token.failure_class IS
    'Why the latest attempt failed, as a connection test shows it; null for a success.';
COMMENT ON COLUMN flow.credential_token.failure IS 'The same in words; null for a success.';

CREATE TABLE flow.credential_authorization (
    state_hash bytea PRIMARY KEY CHECK (length(state_hash) = 32),
    org_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    of_version bigint NOT NULL,
    account_id uuid NOT NULL,
    api_key_id uuid,
    redirect_uri text NOT NULL,
    expires_at timestamptz NOT NULL,
    FOREIGN KEY (org_id, credential_id) REFERENCES flow.credential (org_id, id) ON DELETE CASCADE
);
CREATE INDEX credential_authorization_of ON flow.credential_authorization (credential_id);
CREATE INDEX credential_authorization_end ON flow.credential_authorization (expires_at);
COMMENT ON TABLE flow.credential_authorization IS
    'People who were sent to an issuer to authorize a credential and have not come back: each row is good for one '
    'return.';
COMMENT ON COLUMN flow.credential_authorization.state_hash IS
    'SHA-256 of the state that the person brings back; the state itself is not stored.';
COMMENT ON COLUMN flow.credential_authorization.org_id IS 'The organization of the credential.';
COMMENT ON COLUMN flow.credential_authorization.credential_id IS 'The credential that gets the tokens.';
COMMENT ON COLUMN flow.credential_authorization.of_version IS
    'The version of its secret that asked; another one gets none.';
COMMENT ON COLUMN flow.credential_authorization.account_id IS 'Whoever asked for the address.';
COMMENT ON COLUMN flow.credential_authorization.api_key_id IS
    'The API key that asked; null for a bearer token. Once it is revoked the address is good no longer.';
COMMENT ON COLUMN flow.credential_authorization.redirect_uri IS
    'Where the issuer sends the person back to, as it was told.';
COMMENT ON COLUMN flow.credential_authorization.expires_at IS 'After this time nobody is let back in.';
