-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION flow.tally(a jsonb, b jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_object_agg(t.key, t.calls) FILTER (WHERE t.calls > 0), '{}')
    FROM (SELECT e.key, sum(e.value::bigint) AS calls FROM (SELECT * FROM jsonb_each_text(a) UNION ALL SELECT * FROM jsonb_each_text(b)) e GROUP BY e.key) t
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION flow.tally(jsonb, jsonb) IS 'Adds up two objects of numbers key by key; keys whose sum is not above 0 go.';

ALTER TABLE flow.ledger ADD COLUMN by_credential jsonb NOT NULL DEFAULT '{}', ADD COLUMN cap int;
COMMENT ON COLUMN flow.ledger.by_credential IS 'How many of the own calls which credential spent, by its id. Calls without a credential are in none.';
COMMENT ON COLUMN flow.ledger.cap IS 'The effective cap when the window was last debited or observed; null in rows that are older than this column.';
-- The history of an account is read newest first.
CREATE INDEX ledger_history ON flow.ledger (domain, starts_at, bucket, window_seconds);

-- +goose Down
DROP INDEX flow.ledger_history;
ALTER TABLE flow.ledger DROP COLUMN by_credential, DROP COLUMN cap;
DROP FUNCTION flow.tally;
