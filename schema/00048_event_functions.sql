-- +goose Up
COMMENT ON FUNCTION flow.event_waited(uuid[], text[]) IS 'Which of these events, each of an organization and a kind, somebody waits for. A wait that begins in another transaction is seen, or sees the event: both pass the gate of the organization, which stays shut for the other until the transaction ends.';
COMMENT ON FUNCTION flow.batch_event(uuid) IS 'The payload of an event that says how a batch ended.';

-- +goose Down
COMMENT ON FUNCTION flow.event_waited(uuid[], text[]) IS NULL;
COMMENT ON FUNCTION flow.batch_event(uuid) IS NULL;
