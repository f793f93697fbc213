-- ends_at is there so that a pause that never ends compares like the others.
CREATE TABLE flow.pause (
    id uuid PRIMARY KEY,
    org_id uuid,
    scope text NOT NULL CHECK (scope IN ('global', 'domain', 'lane', 'bucket', 'batch')),
    domain text,
    lane flow.lane,
    bucket text,
    batch_id uuid,
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'released')),
    cause text NOT NULL,
    reason text,
    operator text CHECK (operator IS NULL OR operator IN ('everything', 'suspension', 'moving') AND scope = 'global'),
    created_by uuid,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    ends_at timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(expires_at, '9999-12-31 00:00:00+00')) STORED,
    released_at timestamptz,
    released_by uuid,
    extensions text NOT NULL DEFAULT '[]'
);
CREATE INDEX pause_active ON flow.pause (domain, bucket) WHERE status = 'active';
CREATE UNIQUE INDEX pause_one_backoff ON flow.pause (domain, bucket) WHERE status = 'active' AND scope = 'bucket';
-- The pauses of people: all but those of scope bucket. A paused batch has exactly one.
CREATE UNIQUE INDEX pause_one_batch ON flow.pause (batch_id) WHERE status = 'active' AND scope = 'batch';
-- The operator holds an organization once for each reason that there is.
CREATE UNIQUE INDEX pause_one_operator ON flow.pause (org_id, operator) WHERE status = 'active'
    AND operator IS NOT NULL;
-- What claims read.
CREATE INDEX pause_of_people ON flow.pause (org_id) WHERE status = 'active' AND scope IN ('global', 'domain', 'lane');
-- What lists read.
CREATE INDEX pause_by_org ON flow.pause (org_id, created_at, id);
CREATE INDEX pause_by_end ON flow.pause (org_id, ends_at, id);
CREATE INDEX pause_by_scope ON flow.pause (org_id, scope, created_at, id);
CREATE INDEX pause_by_org_active ON flow.pause (org_id, created_at, id) WHERE status = 'active';
CREATE INDEX pause_by_domain ON flow.pause (domain, created_at, id);
COMMENT ON TABLE flow.pause IS
    'Pauses: what an active one covers is not claimed. Those of scope bucket are backoffs of the dispatcher, all '
    'others are people''s.';
COMMENT ON COLUMN flow.pause.id IS 'What the API calls pause_id.';
COMMENT ON COLUMN flow.pause.org_id IS
    'The organization that it holds; null for scope bucket, which holds whoever uses the Domain.';
COMMENT ON COLUMN flow.pause.scope IS
    'global: all of the organization; domain; lane: of a Domain; batch; bucket: of a Domain, by the dispatcher alone.';
COMMENT ON COLUMN flow.pause.domain IS 'The Domain it covers; null for scope global and batch.';
COMMENT ON COLUMN flow.pause.lane IS 'The lane it covers; null for all scopes but lane.';
COMMENT ON COLUMN flow.pause.bucket IS 'The bucket it covers; null for all scopes but bucket.';
COMMENT ON COLUMN flow.pause.batch_id IS 'The batch it covers; null for all scopes but batch.';
COMMENT ON COLUMN flow.pause.status IS 'active; released: it covers nothing any more.';
COMMENT ON COLUMN flow.pause.cause IS 'Why it was opened, as a word of the API.';
COMMENT ON COLUMN flow.pause.reason IS 'What the person who opened it said; null for nothing.';
COMMENT ON COLUMN flow.pause.operator IS
    'Which command of the operator of the service opened it, who alone releases it: everything (of all organizations), '
    'suspension, moving; null for others.';
COMMENT ON COLUMN flow.pause.created_by IS
    'The account that opened it; null for the dispatcher and the operator of the service.';
COMMENT ON COLUMN flow.pause.created_at IS 'From when on it covers claims.';
COMMENT ON COLUMN flow.pause.expires_at IS 'When it ends by itself; null for when somebody releases it.';
COMMENT ON COLUMN flow.pause.ends_at IS
    'expires_at, or the end of the year 9999 for a pause without one: from then on it covers nothing.';
COMMENT ON COLUMN flow.pause.released_at IS 'When it ended; null while active.';
COMMENT ON COLUMN flow.pause.released_by IS
    'The account that released it; null where it ended by itself, or the operator of the service released it.';
COMMENT ON COLUMN flow.pause.extensions IS 'Who extended it, when, from what to what, as a JSON array.';

-- Which pauses cover a queue is said here alone. It is one SELECT and stable, so that Postgres puts it into the query
-- that asks.
CREATE FUNCTION flow.pauses_over(org uuid, account text,
    in_lane flow.lane) RETURNS SETOF flow.pause LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT h.* FROM flow.pause h
    WHERE h.org_id = org AND h.status = 'active' AND h.scope IN ('global', 'domain', 'lane')
        AND h.ends_at > (SELECT flow.clock())
        AND (h.domain IS NULL OR h.domain = account) AND (h.lane IS NULL OR h.lane = in_lane)
$$;
COMMENT ON FUNCTION flow.pauses_over(uuid, text, flow.lane) IS
    'The pauses of people that cover the calls of an organization to a Domain in a lane, but for those of batches: a '
    'batch says itself that it is paused.';
