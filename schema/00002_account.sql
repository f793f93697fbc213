-- The identity provider vouches for external_id, so it is unique.
CREATE TABLE flow.organization (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    external_id text CONSTRAINT organization_external_id UNIQUE CHECK (external_id <> ''),
    status text NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'suspended', 'moving', 'moved', 'deleting', 'deleted')),
    start_budget int NOT NULL DEFAULT 1000 CHECK (start_budget BETWEEN 1 AND 1000000),
    request_limits jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(request_limits) = 'object'),
    rolled_up_to timestamptz NOT NULL DEFAULT 'epoch',
    created_at timestamptz NOT NULL DEFAULT flow.clock()
);
COMMENT ON TABLE flow.organization IS 'A customer. Every tenant row of every other table carries the id of one.';
COMMENT ON COLUMN flow.organization.id IS 'What the API calls org_id.';
COMMENT ON COLUMN flow.organization.name IS 'How operators call it; it need not be unique.';
COMMENT ON COLUMN flow.organization.external_id IS
    'How the identity provider names it in its tokens, where it does not use our id.';
COMMENT ON COLUMN flow.organization.status IS
    'active; suspended: its requests are refused, its work goes on; moving, moved: it goes to another cell, or has '
    'gone (flow.move); deleting: all that it has is on its way out (flow.deletion); deleted: nothing is left but its '
    'audit log, with which this row goes.';
COMMENT ON COLUMN flow.organization.rolled_up_to IS
    'Batches that were started before this time are in flow.rollup, or in flow.rollup_open.';
COMMENT ON COLUMN flow.organization.start_budget IS
    'The most batches that events and flows may start of one root cause (flow.chain).';
COMMENT ON COLUMN flow.organization.request_limits IS
    'What the operator set in the place of the document''s x-rate-limit: {operationId: "6000 per 1 minute"}.';
COMMENT ON COLUMN flow.organization.created_at IS 'When an operator made it.';

CREATE TABLE flow.organization_quota (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (name IN ('open_batches', 'open_record_sets', 'stored_bytes', 'credentials', 'definitions',
        'schedules', 'webhooks',
        'subscriptions')),
    most bigint NOT NULL CHECK (most BETWEEN 0 AND 1000000000000000),
    PRIMARY KEY (org_id, name)
);
COMMENT ON TABLE flow.organization_quota IS
    'How much an organization may have at once, where the operator has said other than the default.';
COMMENT ON COLUMN flow.organization_quota.org_id IS 'The organization that may have so much.';
COMMENT ON COLUMN flow.organization_quota.name IS 'Of what, as the API names it.';
COMMENT ON COLUMN flow.organization_quota.most IS
    'The most that is not refused; what was there before it was lowered stays.';

CREATE TABLE flow.account (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('service', 'user')),
    issuer text,
    subject text,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    UNIQUE (org_id, id),
    CONSTRAINT account_subject UNIQUE (issuer, subject, org_id),
    CONSTRAINT account_subject_whole CHECK ((issuer IS NULL) = (subject IS NULL) AND (subject IS NULL OR kind = 'user'))
);
CREATE UNIQUE INDEX account_service ON flow.account (org_id) WHERE kind = 'service';
COMMENT ON TABLE flow.account IS
    'Who acts: the service account of an organization, as which its API keys act, or a user of the identity provider.';
COMMENT ON COLUMN flow.account.id IS 'What created_by, released_by and the audit log name.';
COMMENT ON COLUMN flow.account.org_id IS 'The organization it acts in; a person in two has two.';
COMMENT ON COLUMN flow.account.name IS 'As the identity provider calls the person, or how the organization is called.';
COMMENT ON COLUMN flow.account.kind IS
    'service: born with the organization; user: made when a token of its owner first came.';
COMMENT ON COLUMN flow.account.issuer IS 'Who vouches for the user (iss of the token); null for the service account.';
COMMENT ON COLUMN flow.account.subject IS 'Whom the issuer means (sub of the token); null for the service account.';
COMMENT ON COLUMN flow.account.created_at IS 'When it was first needed.';

CREATE TABLE flow.api_key (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    account_id uuid NOT NULL,
    name text NOT NULL CHECK (name <> ''),
    prefix text NOT NULL,
    last_four text NOT NULL,
    hash bytea NOT NULL CONSTRAINT api_key_hash UNIQUE,
    role text NOT NULL CHECK (role IN ('admin', 'member')),
    scopes text[] CHECK (cardinality(scopes) > 0),
    created_by uuid NOT NULL,
    created_by_key_id uuid,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    last_used_at timestamptz,
    last_used_address inet,
    expires_at timestamptz,
    revoked_at timestamptz,
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, account_id) REFERENCES flow.account (org_id, id),
    FOREIGN KEY (org_id, created_by) REFERENCES flow.account (org_id, id),
    FOREIGN KEY (org_id, created_by_key_id) REFERENCES flow.api_key (org_id, id)
);
CREATE INDEX api_key_made ON flow.api_key (org_id, created_by_key_id) WHERE created_by_key_id IS NOT NULL;
COMMENT ON TABLE flow.api_key IS
    'API keys, of which only a keyed hash is stored. Rows are never deleted: a revoked key stays in the list.';
COMMENT ON COLUMN flow.api_key.id IS 'How the API names the key; it says nothing of the secret.';
COMMENT ON COLUMN flow.api_key.org_id IS 'The organization it opens.';
COMMENT ON COLUMN flow.api_key.account_id IS 'The account as which it acts: the service account.';
COMMENT ON COLUMN flow.api_key.name IS 'What its maker calls it.';
COMMENT ON COLUMN flow.api_key.prefix IS 'How its text begins, which is no secret: people find a key by it.';
COMMENT ON COLUMN flow.api_key.last_four IS 'How its text ends: people find a key by it.';
COMMENT ON COLUMN flow.api_key.hash IS 'Keyed hash of its text, with a key that follows from the root key.';
COMMENT ON COLUMN flow.api_key.role IS 'What it may do at most: admin or member.';
COMMENT ON COLUMN flow.api_key.scopes IS
    'The scopes of the API document to which it is narrowed; null for all that its role may do.';
COMMENT ON COLUMN flow.api_key.created_by IS 'The account that made it.';
COMMENT ON COLUMN flow.api_key.created_by_key_id IS
    'The key with which it was made; null where a person or a command made it.';
COMMENT ON COLUMN flow.api_key.created_at IS 'When its text was shown, once.';
COMMENT ON COLUMN flow.api_key.last_used_at IS 'About when a request came with it last; null before the first.';
COMMENT ON COLUMN flow.api_key.last_used_address IS 'From where that request came, by its connection.';
COMMENT ON COLUMN flow.api_key.expires_at IS 'From when on it is refused; null for never.';
COMMENT ON COLUMN flow.api_key.revoked_at IS
    'From when on it is refused because somebody revoked it; null while nobody did.';

-- The one place that says what the status of a key is.
CREATE FUNCTION flow.api_key_status(revoked_at timestamptz,
    expires_at timestamptz) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= flow.clock() THEN 'expired'
    ELSE 'active' END $$;
COMMENT ON FUNCTION flow.api_key_status(timestamptz, timestamptz) IS
    'What an API key is worth now: active, expired or revoked. Revoked wins over expired.';

CREATE TABLE flow.session (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    account_id uuid NOT NULL,
    api_key_id uuid,
    role text NOT NULL CHECK (role IN ('admin', 'member')),
    hash bytea NOT NULL CONSTRAINT session_hash UNIQUE,
    opened boolean NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    last_used_at timestamptz NOT NULL DEFAULT flow.clock(),
    expires_at timestamptz NOT NULL,
    FOREIGN KEY (org_id, account_id) REFERENCES flow.account (org_id, id),
    FOREIGN KEY (org_id, api_key_id) REFERENCES flow.api_key (org_id, id)
);
CREATE INDEX session_expires ON flow.session (expires_at);
CREATE INDEX session_owner ON flow.session (org_id, account_id, api_key_id);
COMMENT ON TABLE flow.session IS
    'Who is signed in to the console in a browser. A row goes when its owner signs out, else when it has expired.';
COMMENT ON COLUMN flow.session.id IS 'How the audit log names the session; it says nothing of the secret.';
COMMENT ON COLUMN flow.session.org_id IS 'The organization that it shows.';
COMMENT ON COLUMN flow.session.account_id IS 'The account as which it acts.';
COMMENT ON COLUMN flow.session.api_key_id IS
    'The key that it was made from, with which it ends; null where a person came from the identity provider.';
COMMENT ON COLUMN flow.session.role IS 'What it may do at most; a key''s scopes narrow it further.';
COMMENT ON COLUMN flow.session.hash IS
    'Keyed hash of the text that the browser keeps in a cookie, or of the one in the link that opens it.';
COMMENT ON COLUMN flow.session.opened IS 'false while it is a link that nobody has followed; such a link works once.';
COMMENT ON COLUMN flow.session.created_at IS 'When somebody signed in, or the link was made.';
COMMENT ON COLUMN flow.session.last_used_at IS 'About when a request came with it last: it ends two hours later.';
COMMENT ON COLUMN flow.session.expires_at IS 'When it ends whatever it is used for.';

-- There are no foreign keys: a row outlives what it names, and calls side by side would else lock the row of their
-- organization.
CREATE TABLE flow.audit_log (
    id uuid NOT NULL,
    org_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    account_id uuid,
    api_key_id uuid,
    resource_id uuid,
    action text NOT NULL CHECK (action <> ''),
    resource_type text,
    resource_name text,
    outcome text NOT NULL CHECK (outcome IN ('succeeded', 'denied', 'refused')),
    reason text,
    address text,
    request_id text NOT NULL,
    CHECK (num_nonnulls(resource_id, resource_name) = CASE WHEN resource_type IS NULL THEN 0 ELSE 1 END),
    CHECK (resource_type IS NOT NULL OR outcome <> 'succeeded'),
    CHECK ((outcome = 'refused') = (reason IS NOT NULL) AND (outcome = 'refused') = (address IS NOT NULL))
);
-- Hardly a thing belongs to several organizations, and few rows have one time: neither makes the entries longer.
CREATE INDEX audit_log_resource ON flow.audit_log (resource_id, created_at) WHERE resource_id IS NOT NULL;
CREATE INDEX audit_log_resource_name ON flow.audit_log (resource_name, created_at) WHERE resource_name IS NOT NULL;
CREATE INDEX audit_log_account ON flow.audit_log (account_id, created_at);
-- For the denied calls of the last minute, of which one is kept.
CREATE INDEX audit_log_denied ON flow.audit_log (org_id, account_id, action, created_at) WHERE outcome = 'denied';
ALTER TABLE flow.audit_log ADD PRIMARY KEY (org_id, created_at, id);
COMMENT ON TABLE flow.audit_log IS
    'Who did what: one row for each call that changed something, in the transaction of the change, and who was not let '
    'in. Never changed, and deleted after 30 days at the earliest.';
COMMENT ON COLUMN flow.audit_log.id IS 'Tells rows of one instant apart.';
COMMENT ON COLUMN flow.audit_log.org_id IS 'The organization in which it happened.';
COMMENT ON COLUMN flow.audit_log.created_at IS 'The time of the change.';
COMMENT ON COLUMN flow.audit_log.account_id IS
    'Who called; null for the operator of the service, and for a refused sign-in of which nobody knows whose it was.';
COMMENT ON COLUMN flow.audit_log.api_key_id IS 'With which key; null where the caller came with a bearer token.';
COMMENT ON COLUMN flow.audit_log.action IS 'The operationId of the API document, or the operator''s command.';
COMMENT ON COLUMN flow.audit_log.resource_type IS
    'What kind of thing was changed; null where the call was denied before anybody looked for it.';
COMMENT ON COLUMN flow.audit_log.resource_id IS
    'Which thing was changed; null where it has another name, and together with resource_type.';
COMMENT ON COLUMN flow.audit_log.resource_name IS
    'The same, as the API names it, of what is not named by a UUID; null for all others.';
COMMENT ON COLUMN flow.audit_log.outcome IS
    'succeeded; denied: the caller''s role or scopes do not allow the call (of a minute''s denied calls of a key one '
    'is kept); refused: the caller was not let in (of equal ones of a minute one is kept).';
COMMENT ON COLUMN flow.audit_log.reason IS
    'Why a sign-in was refused, as a word of the program; null for other outcomes.';
COMMENT ON COLUMN flow.audit_log.address IS
    'The network address that a refused sign-in came from; null for other outcomes.';
COMMENT ON COLUMN flow.audit_log.request_id IS
    'The X-Request-ID of the call, which logs carry too; empty for the operator''s commands.';

CREATE FUNCTION flow.audit_log_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.created_at < flow.retention_now() - interval '30 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of the audit log are never changed, and deleted after 30 days at the earliest';
END $$;
COMMENT ON FUNCTION flow.audit_log_is_final() IS 'Refuses changes of audit rows, and deletions of young ones.';
CREATE TRIGGER audit_log_is_final BEFORE UPDATE OR DELETE ON flow.audit_log
FOR EACH ROW EXECUTE FUNCTION flow.audit_log_is_final();
