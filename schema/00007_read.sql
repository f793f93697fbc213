-- +goose Up
-- The number of the slice that holds a position: a binary search, because an index on positions would cost every start of
-- a batch for the sake of few reads. Null for a batch without slices; the last slice for a position past the end.
-- +goose StatementBegin
CREATE FUNCTION flow.slice_at(batch uuid, place bigint) RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE
    low int := 0;
    high int := (SELECT max(no) FROM flow.slice WHERE batch_id = batch);
    middle int;
BEGIN
    WHILE low < high LOOP
        middle := (low + high + 1) / 2;
        IF (SELECT first FROM flow.slice WHERE batch_id = batch AND no = middle) <= place THEN
            low := middle;
        ELSE
            high := middle - 1;
        END IF;
    END LOOP;
    RETURN CASE WHEN high IS NULL THEN NULL ELSE low END;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION flow.slice_at;
