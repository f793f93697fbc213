package pg_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

const noRight = "42501"

// TestGrantRuntime: who runs the service reads and writes rows, those of tables that come later as well, and changes
// neither the schema nor the clock nor what was written down.
func TestGrantRuntime(t *testing.T) {
	t.Parallel()
	dsn, owner := pgtest.NewDatabase(t)
	role := "flowlane_test_" + strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() {
		exec(t, owner, "DROP OWNED BY "+role)
		exec(t, owner, "DROP ROLE "+role)
	})
	require.NoError(t, pg.GrantRuntime(t.Context(), owner, role))
	require.NoError(t, pg.GrantRuntime(t.Context(), owner, role), "a second time")
	_, service := pgtest.Login(t, owner, dsn, "IN ROLE "+role)
	try := func(sql string) error { _, err := service.Exec(t.Context(), sql); return err }
	_, err := owner.Exec(t.Context(), `CREATE TABLE flow.later (n int GENERATED ALWAYS AS IDENTITY);
		CREATE VIEW ops.later AS SELECT * FROM flow.later;
		INSERT INTO flow.audit_log (id, org_id, created_at, action, resource_type, resource_name, outcome, request_id)
		SELECT gen_random_uuid(), gen_random_uuid(), flow.clock() - make_interval(days => d), 'createThing', 'thing', '1', 'succeeded', d::text
		FROM unnest(ARRAY[1, 31]) d`)
	require.NoError(t, err)

	for _, sql := range []string{
		"INSERT INTO flow.later DEFAULT VALUES", "UPDATE flow.clock_watch SET watched_at = now()",
		"DELETE FROM flow.later",
		"SELECT nextval('flow.part_id_seq')", "SELECT * FROM ops.later", "SELECT * FROM ops.sessions()",
		"SELECT flow.clock()",
		"DELETE FROM flow.audit_log WHERE request_id = '31'",
		"INSERT INTO river.river_queue (name, updated_at) VALUES ('q', now())",
	} {
		assert.NoError(t, try(sql), sql)
	}
	for _, sql := range []string{
		"UPDATE flow.cell SET no = 1", "UPDATE flow.clock_offset SET ahead = '1 day'", "DELETE FROM flow.clock_offset",
		"UPDATE flow.schema_version SET least_program = 0",
		"UPDATE flow.audit_log SET action = 'none'", "UPDATE flow.identity SET lost_since = NULL",
		"DELETE FROM flow.identity", "TRUNCATE flow.audit_log", "ALTER TABLE flow.audit_log DISABLE TRIGGER ALL",
		"DROP TRIGGER audit_log_is_final ON flow.audit_log", "CREATE TABLE flow.own (n int)",
		"ALTER TABLE flow.batch ADD own int",
		"DROP TABLE flow.batch", "TRUNCATE flow.batch", "CREATE INDEX ON flow.batch (lane)", "CREATE SCHEMA own",
		"DELETE FROM river.river_migration",
		"CREATE OR REPLACE FUNCTION flow.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
	} {
		var refused *pgconn.PgError
		require.ErrorAs(t, try(sql), &refused, sql)
		assert.Equal(t, noRight, refused.Code, sql)
	}
	require.ErrorContains(t, try("DELETE FROM flow.audit_log WHERE request_id = '1'"),
		"deleted after 30 days at the earliest")
	owns, err := pg.OwnsTables(t.Context(), service)
	require.NoError(t, err)
	assert.False(t, owns)
	owns, err = pg.OwnsTables(t.Context(), owner)
	require.NoError(t, err)
	assert.True(t, owns)
}

func TestGrantRuntime_Refused(t *testing.T) {
	t.Parallel()
	dsn, owner := pgtest.NewDatabase(t)
	_, stranger := pgtest.Login(t, owner, dsn, "")
	var refused pg.RoleError
	require.ErrorAs(t, pg.GrantRuntime(t.Context(), stranger, "whoever"), &refused)
	assert.Contains(t, refused.Error(), "run this with the address of that user")

	var self string
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT current_user").Scan(&self))
	require.ErrorAs(t, pg.GrantRuntime(t.Context(), owner, self), &refused)
	assert.Contains(t, refused.Error(), "owns the tables of Flowlane: name another role")

	empty, admin := pgtest.NewEmpty(t)
	name, maker := pgtest.Login(t, admin, empty, "NOCREATEROLE")
	exec(t, admin, fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", admin.Config().ConnConfig.Database, name))
	require.NoError(t, pg.Migrate(t.Context(), maker))
	require.ErrorAs(t, pg.GrantRuntime(t.Context(), maker, "not there"), &refused)
	assert.Contains(t, refused.Error(), `let an administrator run CREATE ROLE "not there" NOLOGIN;`)
}
