-- +goose Up
-- A wake-up for now also leased the row, in a second statement. One that does both is a round trip less between a trigger and its work.
-- +goose StatementBegin
CREATE FUNCTION flow.wake_lease(what text, which text, at timestamptz, lease double precision, OUT no bigint, OUT failed integer) LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := flow.clock();
    wanted timestamptz := coalesce(at, now);
    until timestamptz := now + make_interval(secs => lease);
    fresh bigint := nextval('flow.due_lease');
BEGIN
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
COMMENT ON FUNCTION flow.wake_lease(text, text, timestamptz, double precision) IS 'Makes work of a kind and key due at a time (now where it is null), keeping the earlier of two times, and leases it where it is due and nobody works on it. Returns the number of that lease, else 0, and how often in a row the work has failed. The row stays locked until the transaction ends.';

-- +goose Down
DROP FUNCTION flow.wake_lease;
