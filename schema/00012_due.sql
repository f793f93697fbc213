CREATE SEQUENCE flow.due_lease;
COMMENT ON SEQUENCE flow.due_lease IS
    'Numbers of leases. They come from here because a due row that is done goes away, and its next life must not give '
    'them out again.';

CREATE TABLE flow.due (
    kind text NOT NULL,
    key text NOT NULL,
    due_at timestamptz NOT NULL,
    lease_seconds double precision NOT NULL CHECK (lease_seconds > 0),
    lease_no bigint NOT NULL DEFAULT 0,
    leased boolean NOT NULL DEFAULT false,
    woken_at timestamptz CHECK (woken_at IS NULL OR leased),
    failures integer NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX due_next ON flow.due (due_at);
COMMENT ON TABLE flow.due IS
    'Everything that must happen at a time, as due rows. A worker process that leases one works on it by itself; one '
    'that does not work, or has too much in line, has a River job tell the workers.';
COMMENT ON COLUMN flow.due.kind IS
    'What is to be done, which names its handler: dispatch, reconcile, counters, slices, release, ...';
COMMENT ON COLUMN flow.due.key IS
    'What it is to be done for: a batch, a record set, a Domain, or a Domain and a bucket with a newline between.';
COMMENT ON COLUMN flow.due.due_at IS
    'When it is to be done; while it is being done, when the lease ends and others may take over.';
COMMENT ON COLUMN flow.due.lease_seconds IS 'How long a worker that is silent keeps the work: what a crash costs.';
COMMENT ON COLUMN flow.due.lease_no IS 'The fence: a worker that carries an older number changes nothing.';
COMMENT ON COLUMN flow.due.leased IS 'True while a worker has it.';
COMMENT ON COLUMN flow.due.woken_at IS
    'The earliest wake-up that came while a worker had it and that the worker may not have seen; null for none.';
COMMENT ON COLUMN flow.due.failures IS 'How often in a row the work has failed; each time it waits longer.';

-- It does not begin work anew that waits for a worker longer than its lease lasts: whether a lease is lost is for the
-- scanner to tell.
CREATE FUNCTION flow.wake(what text, which text, at timestamptz,
    lease double precision) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := flow.clock();
    startable boolean;
BEGIN
    INSERT INTO flow.due AS d (kind, key, due_at, lease_seconds) VALUES (what, which, coalesce(at, now), lease)
    ON CONFLICT (kind, key) DO UPDATE SET
        due_at = CASE WHEN d.leased THEN d.due_at ELSE least(d.due_at, excluded.due_at) END,
        woken_at = CASE WHEN d.leased THEN least(d.woken_at, excluded.due_at) END,
        lease_seconds = excluded.lease_seconds
    RETURNING NOT d.leased AND d.due_at <= now INTO startable;
    RETURN startable;
END $$;
COMMENT ON FUNCTION flow.wake(text, text, timestamptz, double precision) IS
    'Makes work of a kind and key due at a time (now where it is null), keeping the earlier of two times. Returns '
    'whether it is due and nobody works on it. The row stays locked until the transaction ends.';

CREATE FUNCTION flow.due_gate(what text, which text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('due ' || what || ' ' || which, 0);
COMMENT ON FUNCTION flow.due_gate(text, text) IS
    'The key of an advisory lock on a due row, whether it is there or not: who wakes the row shares it until the '
    'transaction ends, who ends its work has it alone.';

-- Who works waits, before the work ends, for the transactions that share the gate, and looks again. So nothing is
-- written, and nobody locked out, where the row is leased. Work that fails does not look: what has failed before is
-- told of who wakes it meanwhile, so that the next try does not come as late as after a failure that nobody waits for.
CREATE FUNCTION flow.wake_rechecked(what text, which text, wanted timestamptz, now timestamptz, lease double precision,
    OUT no bigint, OUT failed integer) LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := now + make_interval(secs => lease);
    fresh bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(flow.due_gate(what, which));
    no := 0;
    failed := 0;
    PERFORM FROM flow.due d WHERE d.kind = what AND d.key = which
        AND CASE WHEN d.leased THEN d.failures = 0 ELSE d.due_at > now AND d.due_at <= wanted END;
    IF FOUND THEN
        RETURN;
    END IF;
    fresh := nextval('flow.due_lease');
    INSERT INTO flow.due (kind, key, due_at, lease_seconds, leased, lease_no)
    VALUES (what, which, CASE WHEN wanted <= now THEN until ELSE wanted END, lease, wanted <= now,
        CASE WHEN wanted <= now THEN fresh ELSE 0 END)
    ON CONFLICT (kind, key) DO NOTHING;
    IF FOUND THEN
        no := CASE WHEN wanted <= now THEN fresh ELSE 0 END;
        RETURN;
    END IF;
    UPDATE flow.due d SET woken_at = least(d.woken_at, wanted)
    WHERE d.kind = what AND d.key = which AND d.leased AND d.failures > 0;
    IF FOUND THEN
        RETURN;
    END IF;
    -- A row that somebody else has leased by now is left alone, and not locked.
    UPDATE flow.due d SET
        due_at = CASE WHEN least(d.due_at, wanted) <= now THEN until ELSE wanted END,
        leased = least(d.due_at, wanted) <= now,
        lease_no = CASE WHEN least(d.due_at, wanted) <= now THEN fresh ELSE d.lease_no END,
        lease_seconds = lease
    WHERE d.kind = what AND d.key = which AND NOT d.leased AND (d.due_at > wanted OR d.due_at <= now)
    RETURNING CASE WHEN d.lease_no = fresh THEN fresh ELSE 0 END, d.failures INTO no, failed;
    no := coalesce(no, 0);
    failed := coalesce(failed, 0);
END $$;
COMMENT ON FUNCTION flow.wake_rechecked(text, text, timestamptz, timestamptz, double precision) IS
    'flow.wake_lease for a kind whose handlers look once more before they end: it writes nothing while somebody works '
    'on the row, and locks it only to write it.';

-- One statement for both is a round trip less between a trigger and its work.
CREATE FUNCTION flow.wake_lease(what text, which text, at timestamptz, lease double precision, rechecks boolean,
    again boolean, OUT no bigint, OUT failed integer) LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := flow.clock();
    wanted timestamptz := coalesce(at, now);
    until timestamptz := now + make_interval(secs => lease);
    fresh bigint;
BEGIN
    IF rechecks AND NOT again THEN
        SELECT r.no, r.failed INTO no, failed FROM flow.wake_rechecked(what, which, wanted, now, lease) r;
        RETURN;
    END IF;
    IF again THEN
        -- Before the row, as who ends its work does.
        PERFORM pg_advisory_xact_lock_shared(flow.due_gate(what, which));
    END IF;
    fresh := nextval('flow.due_lease');
    INSERT INTO flow.due AS d (kind, key, due_at, lease_seconds, leased, lease_no)
    VALUES (what, which, CASE WHEN wanted <= now THEN until ELSE wanted END, lease, wanted <= now,
        CASE WHEN wanted <= now THEN fresh ELSE 0 END)
    ON CONFLICT (kind, key) DO UPDATE SET
        due_at = CASE WHEN d.leased THEN d.due_at WHEN least(d.due_at, wanted) <= now THEN until ELSE least(d.due_at,
            wanted) END,
        -- Work that this transaction has leased begins after it, and sees what it is woken for.
        woken_at = CASE WHEN NOT d.leased OR wanted <= now AND d.woken_at IS NULL AND d.xmin = pg_current_xact_id()::xid
            THEN NULL
            ELSE least(d.woken_at, wanted) END,
        leased = d.leased OR least(d.due_at, wanted) <= now,
        lease_no = CASE WHEN NOT d.leased AND least(d.due_at, wanted) <= now THEN fresh ELSE d.lease_no END,
        lease_seconds = excluded.lease_seconds
    RETURNING CASE WHEN d.lease_no = fresh THEN fresh ELSE 0 END, d.failures INTO no, failed;
END $$;
COMMENT ON FUNCTION flow.wake_lease(text, text, timestamptz, double precision, boolean, boolean) IS
    'Makes work of a kind and key due at a time (now where it is null), keeping the earlier of two times, and leases '
    'it where it is due and nobody works on it. Returns the number of that lease, else 0, and how often in a row the '
    'work has failed. The row stays locked until the transaction ends. With rechecks see flow.wake_rechecked; again '
    'notes the wake-up there, too, so that work which ends begins once more.';

-- Either what the request did and its answer are both there or neither. Neither the key nor the body is stored, only
-- keyed hashes.
CREATE TABLE flow.idempotency_key (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    body_hash bytea NOT NULL CHECK (octet_length(body_hash) = 32),
    operation text NOT NULL,
    status smallint NOT NULL CHECK (status BETWEEN 200 AND 299),
    answer bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT flow.clock(),
    PRIMARY KEY (org_id, key_hash)
);
CREATE INDEX idempotency_key_old ON flow.idempotency_key (created_at);
COMMENT ON TABLE flow.idempotency_key IS
    'The answer to a request with an Idempotency-Key, written in the transaction of its effect and kept for 24 hours.';
COMMENT ON COLUMN flow.idempotency_key.org_id IS 'The organization that sent the request: keys of two never meet.';
COMMENT ON COLUMN flow.idempotency_key.key_hash IS
    'Keyed hash over operation, path and the caller''s key, which is not stored.';
COMMENT ON COLUMN flow.idempotency_key.body_hash IS
    'Keyed hash of the request''s body: the same key with another body is refused.';
COMMENT ON COLUMN flow.idempotency_key.operation IS 'The operationId that was called.';
COMMENT ON COLUMN flow.idempotency_key.status IS 'The HTTP status that was answered.';
COMMENT ON COLUMN flow.idempotency_key.answer IS 'The body that was answered, and is answered again.';
COMMENT ON COLUMN flow.idempotency_key.created_at IS 'Housekeeping deletes it 24 hours after that.';

-- One row each for ever, changed in place. Unlogged, so that counting waits for no disk.
CREATE UNLOGGED TABLE flow.request_count (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    operation text NOT NULL,
    began_at timestamptz NOT NULL,
    used bigint NOT NULL CHECK (used > 0),
    PRIMARY KEY (org_id, operation)
) WITH (fillfactor = 50);
COMMENT ON TABLE flow.request_count IS
    'How many requests of a limited operation an organization made in its present window. Unlogged: a crash of '
    'Postgres begins windows anew.';
COMMENT ON COLUMN flow.request_count.org_id IS 'The organization that is limited.';
COMMENT ON COLUMN flow.request_count.operation IS 'The operationId that has an x-rate-limit.';
COMMENT ON COLUMN flow.request_count.began_at IS 'When the window began: with its first request.';
COMMENT ON COLUMN flow.request_count.used IS 'How many requests there were since then.';
