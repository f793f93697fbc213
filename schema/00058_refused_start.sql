-- +goose Up
-- A start that events caused and that the limit on starts in a row refused: it has no batch, and is told of among the triggers.
CREATE TABLE flow.refused_start (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    definition_id uuid NOT NULL REFERENCES flow.definition (id),
    version int NOT NULL,
    trigger_type flow.trigger_type NOT NULL,
    trigger_source text NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    created_by uuid NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX refused_start_by_org ON flow.refused_start (org_id, id);
CREATE INDEX refused_start_by_age ON flow.refused_start (created_at);
COMMENT ON TABLE flow.refused_start IS 'Starts that were refused because too many in a row led to them. Rows older than 90 days are deleted.';
COMMENT ON COLUMN flow.refused_start.id IS 'The trigger, as the API names it; sorts among the ids of batches by time.';
COMMENT ON COLUMN flow.refused_start.org_id IS 'The organization whose flow was not started.';
COMMENT ON COLUMN flow.refused_start.definition_id IS 'What was to be started.';
COMMENT ON COLUMN flow.refused_start.version IS 'The version of the definition at that time.';
COMMENT ON COLUMN flow.refused_start.trigger_type IS 'What was to start it.';
COMMENT ON COLUMN flow.refused_start.trigger_source IS 'What exactly was to start it: for an event the subscription, which may be gone since.';
COMMENT ON COLUMN flow.refused_start.reason IS 'Why it was refused, for people.';
COMMENT ON COLUMN flow.refused_start.created_by IS 'The account that its batch would name.';
COMMENT ON COLUMN flow.refused_start.created_at IS 'The time of the service at which the event was decided.';

-- +goose Down
DROP TABLE flow.refused_start;
