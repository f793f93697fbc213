-- +goose Up
-- The identity provider's name for an organization, where it is not our id. The provider vouches for it, so it is unique.
ALTER TABLE flow.organization
    ADD COLUMN external_id text CHECK (external_id <> '') CONSTRAINT organization_external_id UNIQUE;

-- Whom the identity provider knows by issuer and subject; both are null for the service account. Such an account is made
-- when a token of its owner first comes.
ALTER TABLE flow.account
    ADD COLUMN issuer text,
    ADD COLUMN subject text,
    ADD CONSTRAINT account_subject UNIQUE (org_id, issuer, subject),
    ADD CONSTRAINT account_subject_whole CHECK ((issuer IS NULL) = (subject IS NULL) AND (subject IS NULL OR kind = 'user'));

-- Who did what: one row for each call that changed something, written in the transaction of the change. There are no
-- foreign keys: a row outlives what it names, and calls side by side would else lock the row of their organization.
CREATE TABLE flow.audit_log (
    id uuid NOT NULL,
    org_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    account_id uuid NOT NULL,
    -- Null where the caller came with a bearer token.
    api_key_id uuid,
    -- The operationId.
    action text NOT NULL CHECK (action <> ''),
    -- Null where the call was denied before anybody looked for a resource.
    resource_type text,
    resource_id text,
    outcome text NOT NULL CHECK (outcome IN ('succeeded', 'denied')),
    request_id text NOT NULL,
    CHECK ((resource_type IS NULL) = (resource_id IS NULL)),
    CHECK (resource_id IS NOT NULL OR outcome = 'denied'),
    PRIMARY KEY (org_id, created_at, id)
);
CREATE INDEX audit_log_resource ON flow.audit_log (org_id, resource_id, created_at, id);
CREATE INDEX audit_log_account ON flow.audit_log (org_id, account_id, created_at, id);

-- +goose StatementBegin
CREATE FUNCTION flow.audit_log_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of the audit log are never changed or deleted';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_log_is_final BEFORE UPDATE OR DELETE ON flow.audit_log
FOR EACH STATEMENT EXECUTE FUNCTION flow.audit_log_is_final();

-- For the denied calls of the last minute, of which one is kept.
CREATE INDEX audit_log_denied ON flow.audit_log (org_id, account_id, action, created_at) WHERE outcome = 'denied';

-- +goose Down
DROP TABLE flow.audit_log;
DROP FUNCTION flow.audit_log_is_final;
ALTER TABLE flow.account DROP COLUMN issuer, DROP COLUMN subject;
ALTER TABLE flow.organization DROP COLUMN external_id;
