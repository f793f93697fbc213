-- Every change of a set, its chunks and its pages ends with an update of this row, so its row lock orders them.
-- metadata is text: it comes back as it was sent, key order and number spelling included.
CREATE TABLE flow.record_set (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'sealed', 'consumed')),
    chunk_size integer NOT NULL CHECK (chunk_size BETWEEN 1 AND 50000),
    chunk_count bigint NOT NULL DEFAULT 0 CHECK (chunk_count >= 0),
    received_count bigint NOT NULL DEFAULT 0 CHECK (received_count >= chunk_count),
    row_bytes bigint NOT NULL DEFAULT 0 CHECK (row_bytes >= 0),
    expected_count bigint CHECK (expected_count >= 0),
    content_hash text,
    metadata text NOT NULL DEFAULT '{}',
    batch_id uuid,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    sealed_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    staging_expires_at timestamptz,
    CHECK ((status = 'open') = (content_hash IS NULL)),
    CHECK ((status = 'open') = (sealed_at IS NULL)),
    CHECK (status = 'open' OR expected_count = received_count),
    CHECK ((status = 'consumed') = (batch_id IS NOT NULL)),
    CHECK ((status = 'consumed') = (staging_expires_at IS NULL))
);
CREATE INDEX record_set_list ON flow.record_set (org_id, id);
CREATE INDEX record_set_by_status ON flow.record_set (org_id, status, id);
COMMENT ON TABLE flow.record_set IS
    'An upload: open while chunks arrive, sealed once its count was checked, consumed by the one trigger that used it.';
COMMENT ON COLUMN flow.record_set.id IS 'What a trigger names as record_set_id.';
COMMENT ON COLUMN flow.record_set.org_id IS 'The organization that uploads.';
COMMENT ON COLUMN flow.record_set.status IS 'open, sealed or consumed; a trigger refuses all other moves than forward.';
COMMENT ON COLUMN flow.record_set.chunk_size IS 'Most records that a chunk may have.';
COMMENT ON COLUMN flow.record_set.chunk_count IS 'Chunks that have arrived.';
COMMENT ON COLUMN flow.record_set.received_count IS 'Records that have arrived.';
COMMENT ON COLUMN flow.record_set.row_bytes IS 'Size of these records as they were sent.';
COMMENT ON COLUMN flow.record_set.expected_count IS
    'Records that the caller says there are; must equal received_count for the seal. Null where it never said.';
COMMENT ON COLUMN flow.record_set.content_hash IS 'SHA-256 over the digests of the chunks, in order; null while open.';
COMMENT ON COLUMN flow.record_set.metadata IS
    'A JSON object of the caller''s, as text: key order and digits stay as they were sent.';
COMMENT ON COLUMN flow.record_set.batch_id IS 'The batch that consumed it; null before.';
COMMENT ON COLUMN flow.record_set.created_at IS 'When the upload began.';
COMMENT ON COLUMN flow.record_set.sealed_at IS 'When the count was checked; null while open.';
COMMENT ON COLUMN flow.record_set.updated_at IS 'When the last chunk came, or the status moved.';
COMMENT ON COLUMN flow.record_set.staging_expires_at IS
    'When an upload that nobody finished or triggered is deleted; null once consumed.';

CREATE FUNCTION flow.record_set_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- One that comes from another cell comes as it is.
        IF NEW.status <> 'open' AND NOT EXISTS (SELECT FROM flow.organization o WHERE o.id = NEW.org_id
            AND o.status = 'moving') THEN
            RAISE EXCEPTION 'record set % starts as %, not as open', NEW.id,
                NEW.status USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status
        AND (OLD.status, NEW.status) NOT IN (('open', 'sealed'), ('sealed', 'consumed')) THEN
        RAISE EXCEPTION 'record set % cannot move from % to %', OLD.id, OLD.status,
            NEW.status USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.id, NEW.org_id, NEW.chunk_size, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.org_id, OLD.chunk_size,
        OLD.created_at)
        OR (OLD.status <> 'open' AND (NEW.received_count, NEW.chunk_count, NEW.row_bytes, NEW.expected_count,
            NEW.content_hash, NEW.sealed_at)
            IS DISTINCT FROM (OLD.received_count, OLD.chunk_count, OLD.row_bytes, OLD.expected_count, OLD.content_hash,
                OLD.sealed_at))
        OR (OLD.status = 'consumed' AND NEW.batch_id IS DISTINCT FROM OLD.batch_id) THEN
        RAISE EXCEPTION 'record set %: what is fixed while it is % cannot change', OLD.id,
            OLD.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION flow.record_set_guard() IS
    'Refuses record sets that move backwards, or change what is fixed by their status.';
CREATE TRIGGER record_set_guard BEFORE INSERT OR UPDATE ON flow.record_set
    FOR EACH ROW EXECUTE FUNCTION flow.record_set_guard();

-- digest is SHA-256 over the rows' bytes, each followed by a newline. No foreign key: its share lock on the set would
-- make uploads and a delete wait for each other in a circle.
CREATE TABLE flow.record_chunk (
    record_set_id uuid NOT NULL,
    chunk_index integer NOT NULL CHECK (chunk_index >= 0),
    records integer NOT NULL CHECK (records > 0),
    digest bytea NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (record_set_id, chunk_index)
);
COMMENT ON TABLE flow.record_chunk IS 'The accepted chunks of record sets, so that a chunk that comes again is known.';
COMMENT ON COLUMN flow.record_chunk.record_set_id IS 'The upload it is part of.';
COMMENT ON COLUMN flow.record_chunk.chunk_index IS 'Its place in the upload, from 0.';
COMMENT ON COLUMN flow.record_chunk.records IS 'How many rows it has.';
COMMENT ON COLUMN flow.record_chunk.digest IS 'SHA-256 over the bytes of its rows, each followed by a newline.';

-- The service compresses pages (package recordset owns the format), so Postgres must not try again. A page has no
-- org_id: it is reached only through a record set or a batch that was checked.
CREATE TABLE flow.page (
    set_id uuid NOT NULL,
    first bigint NOT NULL CHECK (first >= 0),
    rows integer NOT NULL CHECK (rows > 0),
    raw_bytes integer NOT NULL CHECK (raw_bytes > 0),
    body bytea NOT NULL,
    PRIMARY KEY (set_id, first)
);
ALTER TABLE flow.page ALTER COLUMN body SET STORAGE EXTERNAL;
COMMENT ON TABLE flow.page IS
    'Rows as they were uploaded: raw JSON of up to 250 rows or 64 KiB, compressed, written once, read in place. '
    'Customer data.';
COMMENT ON COLUMN flow.page.set_id IS 'The record set, or, for records that came with a trigger, the batch''s own set.';
COMMENT ON COLUMN flow.page.first IS 'Position of its first row in the set, from 0.';
COMMENT ON COLUMN flow.page.rows IS 'How many rows it holds.';
COMMENT ON COLUMN flow.page.raw_bytes IS 'Size of the rows before compression.';
COMMENT ON COLUMN flow.page.body IS
    'A format byte and the compressed rows, or where in a blob they are; package recordset owns the format.';

-- A row is there before anybody may read the object, and goes after it: see package blob. Whoever has the id first has
-- the object: an upload that names it, or the sweep that found it without a name.
CREATE TABLE flow.blob (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    set_id uuid,
    bytes bigint NOT NULL CHECK (bytes >= 0),
    unnamed_at timestamptz,
    CHECK ((set_id IS NULL) = (unnamed_at IS NOT NULL))
);
CREATE INDEX blob_by_org ON flow.blob (org_id, id);
CREATE INDEX blob_by_set ON flow.blob (set_id) WHERE set_id IS NOT NULL;
CREATE INDEX blob_unnamed ON flow.blob (unnamed_at) WHERE unnamed_at IS NOT NULL;
COMMENT ON TABLE flow.blob IS
    'Objects of the store of large bodies: the pages of a chunk each. None without --blob-url.';
COMMENT ON COLUMN flow.blob.id IS
    'The second part of its key, behind the organization; its time is when it was begun to be written.';
COMMENT ON COLUMN flow.blob.org_id IS 'The organization whose it is; the first part of its key.';
COMMENT ON COLUMN flow.blob.set_id IS 'The record set whose pages name it; null where none does any more, or did.';
COMMENT ON COLUMN flow.blob.bytes IS 'Its size; 0 for one that was found without a row.';
COMMENT ON COLUMN flow.blob.unnamed_at IS
    'Since when nothing names it: an hour later it is deleted, then this row. Null while a record set does.';

-- fields: [{name, type}]; layers: [name]. They are json, not jsonb: order stays as it was written.
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
COMMENT ON TABLE flow.store IS 'Stores: records by key that outlive batches.';
COMMENT ON COLUMN flow.store.id IS 'What definitions and the API name.';
COMMENT ON COLUMN flow.store.org_id IS 'The organization that it belongs to.';
COMMENT ON COLUMN flow.store.name IS 'How the organization calls it; unique there.';
COMMENT ON COLUMN flow.store.fields IS 'Name and type of each field, in their order.';
COMMENT ON COLUMN flow.store.layers IS 'Its layers, from the lowest precedence to the highest.';
COMMENT ON COLUMN flow.store.config_version IS
    'Grows with each change of fields or layers: records that were resolved by an older one are resolved anew.';
COMMENT ON COLUMN flow.store.created_by IS 'The account that made it.';
COMMENT ON COLUMN flow.store.created_at IS 'When it was made.';
COMMENT ON COLUMN flow.store.updated_at IS 'When fields or layers changed last.';
COMMENT ON COLUMN flow.store.deleted_at IS
    'When it was deleted: nothing but the work that clears it finds it. Null while it lives.';

-- Every writer shares the store's row, so what they change is here. Whoever adds or removes records locks this row
-- before the records.
CREATE TABLE flow.store_state (
    store_id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    records bigint NOT NULL DEFAULT 0 CHECK (records >= 0),
    resolved_upto text COLLATE "C",
    FOREIGN KEY (org_id, store_id) REFERENCES flow.store (org_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE flow.store_state IS
    'What changes with the records of a store; apart, because every writer shares the store''s own row.';
COMMENT ON COLUMN flow.store_state.store_id IS 'The store whose records are counted.';
COMMENT ON COLUMN flow.store_state.org_id IS 'The organization of the store.';
COMMENT ON COLUMN flow.store_state.records IS 'How many records it has.';
COMMENT ON COLUMN flow.store_state.resolved_upto IS
    'Up to this key all records are resolved by the newest configuration; null when all are.';

-- layers: [{layer, values, updated_at, updated_by}]. resolved: an object of the fields that the store declared in
-- resolved_config_version. Both are json: digits stay as they were written.
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
COMMENT ON TABLE flow.store_record IS 'Records of stores. Customer data.';
COMMENT ON COLUMN flow.store_record.org_id IS 'The organization of the store.';
COMMENT ON COLUMN flow.store_record.store_id IS 'The store that keeps it.';
COMMENT ON COLUMN flow.store_record.key IS 'What the record is found by; unique in its store.';
COMMENT ON COLUMN flow.store_record.layers IS 'What each source says: layer, values, when and by whom.';
COMMENT ON COLUMN flow.store_record.resolved IS 'Field by field the value of the highest layer that has one.';
COMMENT ON COLUMN flow.store_record.terms IS
    'Digests of store, field, type and value of every field with a value: filters look for them.';
COMMENT ON COLUMN flow.store_record.resolved_config_version IS 'The configuration of the store that resolved it.';
COMMENT ON COLUMN flow.store_record.created_at IS 'When a layer of it was first written.';
COMMENT ON COLUMN flow.store_record.updated_at IS 'When a layer of it was last written.';

-- keys: [{name, type, default}]; versions: [{name, values}], each with the values that differ from the defaults. They
-- are json, not jsonb: digits stay as they were written.
CREATE TABLE flow.variable_set (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    keys json NOT NULL,
    versions json NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    UNIQUE (org_id, id),
    CONSTRAINT variable_set_name UNIQUE (org_id, name)
);
COMMENT ON TABLE flow.variable_set IS 'Named values of an organization for its flows.';
COMMENT ON COLUMN flow.variable_set.id IS 'What definitions name.';
COMMENT ON COLUMN flow.variable_set.org_id IS 'The organization whose values they are.';
COMMENT ON COLUMN flow.variable_set.name IS 'How the organization calls it; unique there.';
COMMENT ON COLUMN flow.variable_set.keys IS 'The variables: name, type and default of each.';
COMMENT ON COLUMN flow.variable_set.versions IS 'Named sets of the values that differ from the defaults.';
COMMENT ON COLUMN flow.variable_set.created_by IS 'The account that made it.';
COMMENT ON COLUMN flow.variable_set.created_at IS 'When it was made.';
COMMENT ON COLUMN flow.variable_set.updated_at IS 'When keys or values changed last.';
