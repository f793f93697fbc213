package pg_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// ofBatch is why a table has no policy that belongs to a batch or a record set.
const ofBatch = "has no organization: it is reached by the id of a batch or a record set, which a query has checked"

// unsecured are the tables without row-level security, and why.
var unsecured = map[string]string{
	"batch_vars": ofBatch, "element": ofBatch, "exchange_batch": ofBatch, "fragment": ofBatch, "inherited": ofBatch,
	"job": ofBatch, "kept_key": ofBatch, "page": ofBatch, "part": ofBatch, "record_chunk": ofBatch, "slice": ofBatch,
	"batch_count": "belongs to a row of flow.batch: lists by a status rest on statistics, " +
		"which are closed to whom a policy binds",
	"budget": "belongs to an account, which several organizations may share", "domain_limit": "as a budget",
	"ledger":  "as a budget",
	"rolling": "as a budget",
	"cell":    "of the installation", "clock_offset": "of the installation", "clock_watch": "of the installation",
	"due":      "names by ids what is to be done",
	"identity": "of the installation", "retention_clock": "of the installation", "root_key": "of the installation",
	"schema_version": "of the installation",
}

// TestRowSecurity_Tables: each table has the two policies, which its owner is bound by as well, or is known to need
// none.
func TestRowSecurity_Tables(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	rows, err := pool.Query(t.Context(), `
SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
    coalesce((SELECT string_agg(concat_ws(' ', p.polname, p.polcmd::text, p.polroles::regrole[]::text), ', ' ORDER BY p.polname)
        FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive), '')
FROM pg_class c WHERE c.relnamespace = 'flow'::regnamespace AND c.relkind IN ('r', 'p')`)
	require.NoError(t, err)
	seen := map[string]bool{}
	var name, policies string
	var forced bool
	_, err = pgx.ForEachRow(rows, []any{&name, &forced, &policies}, func() error {
		if _, is := unsecured[name]; is {
			seen[name] = true
			return nil
		}
		assert.True(t, forced, "%s has no row-level security", name)
		assert.Equal(t, "request * {flowlane_request}, worker * {flowlane_worker}", policies, name)
		return nil
	})
	require.NoError(t, err)
	for name := range unsecured {
		assert.True(t, seen[name], "there is no table %s", name)
	}
	require.Empty(t, names(t, pool, `
SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'flow'::regnamespace AND c.relkind = 'v'
    AND NOT coalesce('security_invoker=true' = ANY(c.reloptions), false)
UNION ALL SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'flow'::regnamespace AND p.prosecdef`),
		"these read with the rights of their owner, whom no policy keeps to an organization")
}

// TestRowSecurity_Owner: the policies bind an owner who is no superuser, and let it see all; tables that are migrated
// later have them as well. Where the owner may give nobody roles everything goes on without, and somebody is told.
func TestRowSecurity_Owner(t *testing.T) {
	t.Parallel()
	for attributes, secured := range map[string]bool{"CREATEROLE": true, "NOCREATEROLE": false} {
		dsn, admin := pgtest.NewEmpty(t)
		name, owner := pgtest.Login(t, admin, dsn, attributes)
		exec(t, admin, fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", admin.Config().ConnConfig.Database, name))
		require.NoError(t, pg.Migrate(t.Context(), owner))
		exec(t, owner, "INSERT INTO flow.organization (id, name) VALUES (gen_random_uuid(), 'o')")
		require.Equal(t, 1, count(t, owner, "SELECT count(*) FROM flow.organization"))
		advice, err := pg.RowSecurityAdvice(t.Context(), owner)
		require.NoError(t, err)
		require.Equal(t, !secured, strings.Contains(advice, "CREATE ROLE flowlane_request NOLOGIN"), advice)

		files := pgtest.Migrations(t, map[string]string{
			"90001_later.sql": "CREATE TABLE flow.later (org_id uuid NOT NULL)"})
		require.NoError(t, pg.Migrator{Files: files}.Up(t.Context(), owner))
		const later = "SELECT count(*) FROM pg_policy WHERE polrelid = 'flow.later'::regclass"
		require.Equal(t, secured, count(t, owner, later) == 2)

		scoped, err := pg.NewScoped(t.Context(), owner)
		require.NoError(t, err)
		var seen int
		err = scoped.QueryRow(pg.WithOrg(t.Context(), uuid.Nil), "SELECT count(*) FROM flow.organization").Scan(&seen)
		require.NoError(t, err)
		require.Equal(t, secured, seen == 0)
	}
}
