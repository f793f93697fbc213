-- A second line behind the queries, each of which names its organization: a request sees the rows of its own alone.
-- Workers see all rows; so does a request for what is of no organization.

-- Package pg calls it after each migration, once the two roles are there. The organization of a request is the setting
-- flow.org, which is empty where it was set before, and is read once for a statement: a function of language sql would
-- be read anew each time that one is planned. It is compared inside of coalesce so that plans stay those of a worker:
-- the planner can neither find rows by it, which queries choose themselves, nor take it for a condition that few rows
-- of a table fulfil, and then read that first.
CREATE FUNCTION flow.secure_rows() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t record;
BEGIN
    FOR t IN
        -- What has no organization is everybody's.
        SELECT c.relname AS name, format('coalesce(%I = (SELECT nullif(current_setting(%L, true), %L)::uuid), %s)',
            a.attname, 'flow.org', '',
            CASE WHEN a.attnotnull THEN 'false' ELSE 'org_id IS NULL' END) AS own
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
            AND a.attname = CASE WHEN c.relname = 'organization' THEN 'id' ELSE 'org_id' END
        -- What Postgres knows of how statuses are spread is closed to whoever a policy binds, since operators of enums
        -- may tell of rows. Lists of batches rest on that; they come to their counters by way of flow.batch.
        WHERE c.relnamespace = 'flow'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'batch_count'
            AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)
        ORDER BY 1
    LOOP
        EXECUTE format('ALTER TABLE flow.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', t.name);
        EXECUTE format('CREATE POLICY request ON flow.%I TO flowlane_request USING (%s)', t.name, t.own);
        EXECUTE format('CREATE POLICY worker ON flow.%I TO flowlane_worker USING (true)', t.name);
    END LOOP;
END $$;
COMMENT ON FUNCTION flow.secure_rows() IS
    'Turns row-level security on for tables with an organization that lack it: the role flowlane_request gets the rows '
    'of the setting flow.org, flowlane_worker all.';
