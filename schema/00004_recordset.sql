-- +goose Up
CREATE TYPE flow.record_set_status AS ENUM ('open', 'sealed', 'consumed');

-- An upload: open while chunks arrive, sealed once its count was checked, consumed by the one trigger that used it.
-- Every change of a set, its chunks and its pages ends with an update of this row, so its row lock orders them.
CREATE TABLE flow.record_set (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    status flow.record_set_status NOT NULL DEFAULT 'open',
    chunk_size integer NOT NULL CHECK (chunk_size BETWEEN 1 AND 50000),
    chunk_count bigint NOT NULL DEFAULT 0 CHECK (chunk_count >= 0),
    received_count bigint NOT NULL DEFAULT 0 CHECK (received_count >= chunk_count),
    expected_count bigint CHECK (expected_count >= 0),
    content_hash text,
    -- A JSON object as text: it comes back as it was sent, key order and number spelling included.
    metadata text NOT NULL DEFAULT '{}',
    batch_id uuid,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    sealed_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT flow.clock(),
    -- When an upload that nobody finished or triggered is reclaimed; null once consumed.
    staging_expires_at timestamptz,
    CHECK ((status = 'open') = (content_hash IS NULL)),
    CHECK ((status = 'open') = (sealed_at IS NULL)),
    CHECK (status = 'open' OR expected_count = received_count),
    CHECK ((status = 'consumed') = (batch_id IS NOT NULL)),
    CHECK ((status = 'consumed') = (staging_expires_at IS NULL))
);
CREATE INDEX record_set_list ON flow.record_set (org_id, id);

-- +goose StatementBegin
CREATE FUNCTION flow.record_set_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'open' THEN
            RAISE EXCEPTION 'record set % starts as %, not as open', NEW.id, NEW.status USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status
        AND (OLD.status, NEW.status) NOT IN (('open', 'sealed'), ('sealed', 'consumed')) THEN
        RAISE EXCEPTION 'record set % cannot move from % to %', OLD.id, OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.id, NEW.org_id, NEW.chunk_size, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.org_id, OLD.chunk_size, OLD.created_at)
        OR (OLD.status <> 'open' AND (NEW.received_count, NEW.chunk_count, NEW.expected_count, NEW.content_hash, NEW.sealed_at)
            IS DISTINCT FROM (OLD.received_count, OLD.chunk_count, OLD.expected_count, OLD.content_hash, OLD.sealed_at))
        OR (OLD.status = 'consumed' AND NEW.batch_id IS DISTINCT FROM OLD.batch_id) THEN
        RAISE EXCEPTION 'record set %: what is fixed while it is % cannot change', OLD.id, OLD.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER record_set_guard BEFORE INSERT OR UPDATE ON flow.record_set
    FOR EACH ROW EXECUTE FUNCTION flow.record_set_guard();

-- One accepted chunk. digest is SHA-256 over its rows' bytes, each followed by a newline.
-- No foreign key: its share lock on the set would make uploads and a delete wait for each other in a circle.
CREATE TABLE flow.record_chunk (
    record_set_id uuid NOT NULL,
    chunk_index integer NOT NULL CHECK (chunk_index >= 0),
    records integer NOT NULL CHECK (records > 0),
    digest bytea NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (record_set_id, chunk_index)
);

-- A run of rows from position first on, of a record set or of a trigger's own rows: raw JSON, compressed by the service
-- (package recordset owns the format), so Postgres must not try again. Written once, read in place, never updated.
-- A page has no org_id: it is reached only through a record set or a batch that was checked.
CREATE TABLE flow.page (
    set_id uuid NOT NULL,
    first bigint NOT NULL CHECK (first >= 0),
    rows integer NOT NULL CHECK (rows > 0),
    raw_bytes integer NOT NULL CHECK (raw_bytes > 0),
    body bytea NOT NULL,
    PRIMARY KEY (set_id, first)
);
ALTER TABLE flow.page ALTER COLUMN body SET STORAGE EXTERNAL;

-- +goose Down
DROP TABLE flow.page;
DROP TABLE flow.record_chunk;
DROP TABLE flow.record_set;
DROP FUNCTION flow.record_set_guard;
DROP TYPE flow.record_set_status;
