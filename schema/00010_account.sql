-- +goose Up
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

-- +goose Down
DROP TABLE flow.audit_log;
DROP FUNCTION flow.audit_log_is_final;
