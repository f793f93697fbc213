-- +goose Up
-- A job that waits for a worker longer than its lease lasts is not lost. A wake-up that began such work anew sent it to the end of
-- the line, time and again: whether a lease is lost is for the scanner to tell.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION flow.wake(what text, which text, at timestamptz, lease double precision) RETURNS boolean LANGUAGE plpgsql AS $$
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
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION flow.wake(what text, which text, at timestamptz, lease double precision) RETURNS boolean LANGUAGE plpgsql AS $$
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
