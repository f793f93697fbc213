-- +goose Up
-- +goose StatementBegin
DROP FUNCTION flow.wake_lease(text, text, timestamptz, double precision);
CREATE FUNCTION flow.due_gate(what text, which text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('due ' || what || ' ' || which, 0);
COMMENT ON FUNCTION flow.due_gate(text, text) IS 'The key of an advisory lock on a due row, whether it is there or not: who wakes the row shares it until the transaction ends, who ends its work has it alone.';

CREATE FUNCTION flow.wake_lease(what text, which text, at timestamptz, lease double precision, rechecks boolean, OUT no bigint, OUT failed integer) LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := flow.clock();
    wanted timestamptz := coalesce(at, now);
    until timestamptz := now + make_interval(secs => lease);
    fresh bigint;
    was record;
BEGIN
    IF rechecks THEN
        PERFORM pg_advisory_xact_lock_shared(flow.due_gate(what, which));
        SELECT d.leased, d.due_at INTO was FROM flow.due d WHERE d.kind = what AND d.key = which;
        -- Who works, or is about to, waits for this transaction before the work ends, and looks again.
        IF FOUND AND (was.leased OR (was.due_at <= wanted AND was.due_at > now)) THEN
            no := 0;
            failed := 0;
            RETURN;
        END IF;
    END IF;
    fresh := nextval('flow.due_lease');
    IF rechecks THEN
        INSERT INTO flow.due AS d (kind, key, due_at, lease_seconds, leased, lease_no)
        VALUES (what, which, CASE WHEN wanted <= now THEN until ELSE wanted END, lease, wanted <= now, CASE WHEN wanted <= now THEN fresh ELSE 0 END)
        ON CONFLICT (kind, key) DO NOTHING;
        IF FOUND THEN
            no := CASE WHEN wanted <= now THEN fresh ELSE 0 END;
            failed := 0;
            RETURN;
        END IF;
        -- Somebody else wrote it just now. A row that is leased by then is left alone, and not locked.
        UPDATE flow.due d SET
            due_at = CASE WHEN least(d.due_at, wanted) <= now THEN until ELSE least(d.due_at, wanted) END,
            leased = least(d.due_at, wanted) <= now,
            lease_no = CASE WHEN least(d.due_at, wanted) <= now THEN fresh ELSE d.lease_no END,
            lease_seconds = lease
        WHERE d.kind = what AND d.key = which AND NOT d.leased AND (d.due_at > wanted OR d.due_at <= now)
        RETURNING CASE WHEN d.lease_no = fresh THEN fresh ELSE 0 END, d.failures INTO no, failed;
        no := coalesce(no, 0);
        failed := coalesce(failed, 0);
        RETURN;
    END IF;
    INSERT INTO flow.due AS d (kind, key, due_at, lease_seconds, leased, lease_no)
    VALUES (what, which, CASE WHEN wanted <= now THEN until ELSE wanted END, lease, wanted <= now, CASE WHEN wanted <= now THEN fresh ELSE 0 END)
    ON CONFLICT (kind, key) DO UPDATE SET
        due_at = CASE WHEN d.leased THEN d.due_at WHEN least(d.due_at, wanted) <= now THEN until ELSE least(d.due_at, wanted) END,
        -- Work that this transaction has leased begins after it, and sees what it is woken for.
        woken_at = CASE WHEN NOT d.leased OR wanted <= now AND d.woken_at IS NULL AND d.xmin = pg_current_xact_id()::xid THEN NULL
            ELSE least(d.woken_at, wanted) END,
        leased = d.leased OR least(d.due_at, wanted) <= now,
        lease_no = CASE WHEN NOT d.leased AND least(d.due_at, wanted) <= now THEN fresh ELSE d.lease_no END,
        lease_seconds = excluded.lease_seconds
    RETURNING CASE WHEN d.lease_no = fresh THEN fresh ELSE 0 END, d.failures INTO no, failed;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION flow.wake_lease(text, text, timestamptz, double precision, boolean) IS 'Makes work of a kind and key due at a time (now where it is null), keeping the earlier of two times, and leases it where it is due and nobody works on it. Returns the number of that lease, else 0, and how often in a row the work has failed. The row stays locked until the transaction ends; with rechecks only where it had to be written.';
