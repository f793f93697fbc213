-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION flow.wake(what text, which text, at timestamptz, lease double precision) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := flow.clock();
    startable boolean;
BEGIN
    INSERT INTO flow.due AS d (kind, key, due_at, lease_seconds) VALUES (what, which, coalesce(at, now), lease)
    ON CONFLICT (kind, key) DO UPDATE SET
        due_at = CASE WHEN d.leased THEN d.due_at ELSE least(d.due_at, excluded.due_at) END,
        woken_at = CASE WHEN d.leased THEN least(d.woken_at, excluded.due_at) END,
        lease_seconds = excluded.lease_seconds
    RETURNING d.due_at <= now INTO startable;
    RETURN startable;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION flow.wake(text, text, timestamptz, double precision) IS 'Makes work of a kind and key due at a time (now where it is null), keeping the earlier of two times. Returns whether it is due and nobody works on it. The row stays locked until the transaction ends.';

-- +goose Down
DROP FUNCTION flow.wake;
