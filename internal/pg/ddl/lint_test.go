package ddl_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flowlane/internal/pg/ddl"
)

// baseline is what is there before the files of these tests.
const baseline = `
CREATE TABLE flow.batch (id uuid PRIMARY KEY, note text, n int);
CREATE INDEX batch_note ON flow.batch (note);
CREATE TABLE flow.call (id uuid PRIMARY KEY, batch_id uuid);`

const (
	outside = "-- migrate: outside a transaction\n"
	least   = "-- migrate: least program 2\n"
	safe    = "-- migrate: safe, as the table has one row\n"
)

// TestLint: what would keep a running service from its tables, or break the version before, does not pass.
func TestLint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files []string
		want  string // of the only problem; empty for none
	}{
		"column": {[]string{"ALTER TABLE flow.batch ADD COLUMN more text"}, ""},
		"column, constant default": {[]string{"ALTER TABLE flow.batch ADD more jsonb NOT NULL DEFAULT '{}'::jsonb"},
			""},
		"column, stable default": {[]string{"ALTER TABLE flow.batch ADD more timestamptz NOT NULL DEFAULT now()"},
			""},
		"column, negative default": {
			[]string{"ALTER TABLE flow.batch ADD more numeric(4, 2) DEFAULT -1.5 NOT NULL, " +
				"ADD other text[] DEFAULT '{}'"}, ""},
		"column, volatile default": {
			[]string{"ALTER TABLE flow.batch ADD COLUMN more uuid DEFAULT gen_random_uuid()"}, "constant default"},
		"column, default of a query": {
			[]string{"ALTER TABLE flow.batch ADD COLUMN more timestamptz DEFAULT flow.clock()"}, "constant default"},
		"column, default made of two": {[]string{"ALTER TABLE flow.batch ADD COLUMN more int DEFAULT 1 + random()"},
			"constant default"},
		"column, cast by a function": {
			[]string{"ALTER TABLE flow.batch ADD COLUMN more text DEFAULT '1'::flow.score"}, "constant default"},
		"column, of a domain": {[]string{"ALTER TABLE flow.batch ADD COLUMN more flow.score"},
			"constant default"},
		"column, serial": {[]string{"ALTER TABLE flow.batch ADD COLUMN more bigserial"},
			"constant default"},
		"column, identity": {
			[]string{"ALTER TABLE flow.batch ADD COLUMN more int GENERATED ALWAYS AS IDENTITY"}, "constant default"},
		"column, generated": {
			[]string{"ALTER TABLE flow.batch ADD COLUMN more int GENERATED ALWAYS AS (n * 2) STORED"},
			"constant default"},
		"column, checked": {[]string{"ALTER TABLE flow.batch ADD COLUMN more int CHECK (more > 0)"},
			"without a constraint"},
		"column, unique": {[]string{"ALTER TABLE flow.batch ADD COLUMN more int UNIQUE"},
			"without a constraint"},
		"column, not null": {[]string{"ALTER TABLE flow.batch ADD COLUMN more int NOT NULL"},
			"give it a default"},
		"column, not null, null": {[]string{"ALTER TABLE flow.batch ADD COLUMN more int DEFAULT NULL NOT NULL"},
			"give it a default"},
		"second of two columns": {
			[]string{"ALTER TABLE flow.batch ADD COLUMN more int, ADD other xid8 DEFAULT pg_current_xact_id()"},
			"constant default"},
		"index": {[]string{"CREATE INDEX more ON flow.batch (n)"},
			"CREATE INDEX CONCURRENTLY IF NOT EXISTS"},
		"unique index, odd case": {[]string{"create  Unique\nINDEX more on Flow.Batch (n)"},
			"CREATE INDEX CONCURRENTLY"},
		"index, a quoted table": {[]string{`CREATE INDEX more ON "flow"."batch" (n)`},
			"CREATE INDEX CONCURRENTLY"},
		"index, concurrently": {[]string{outside +
			"CREATE INDEX CONCURRENTLY IF NOT EXISTS more ON flow.batch (n)"}, ""},
		"index, in a transaction": {[]string{"CREATE INDEX CONCURRENTLY IF NOT EXISTS more ON flow.batch (n)"},
			"cannot run in a transaction"},
		"index, not resumable": {[]string{outside + "CREATE INDEX CONCURRENTLY more ON flow.batch (n)"},
			"run again"},
		"index of a new table": {[]string{"CREATE TABLE flow.own (n int); CREATE INDEX own_n ON flow.own (n)"},
			""},
		"index, an earlier file": {[]string{"CREATE TABLE flow.own (n int)",
			"CREATE INDEX own_n ON flow.own (n)"}, "CREATE INDEX CONCURRENTLY"},
		"index, dropped":          {[]string{outside + "DROP INDEX CONCURRENTLY IF EXISTS flow.batch_note"}, ""},
		"index, dropped, cut off": {[]string{outside + "DROP INDEX CONCURRENTLY flow.batch_note"}, "run again"},
		"column outside a transaction": {[]string{outside + "ALTER TABLE flow.batch ADD COLUMN more text"},
			"run again"},
		"check": {[]string{"ALTER TABLE flow.batch ADD CONSTRAINT few CHECK (n < 9)"},
			"NOT VALID"},
		"check, no name": {[]string{"ALTER TABLE ONLY flow.batch ADD CHECK (n < 9)"}, "NOT VALID"},
		"check, not valid": {[]string{"ALTER TABLE flow.batch ADD CONSTRAINT few CHECK (n < 9) NOT VALID"},
			""},
		"check, validated": {[]string{
			"ALTER TABLE flow.batch ADD CONSTRAINT few CHECK (n < 9) NOT VALID",
			"ALTER TABLE flow.batch VALIDATE CONSTRAINT few",
		}, ""},
		"check, validated at once": {[]string{
			"ALTER TABLE flow.batch ADD CONSTRAINT few CHECK (n < 9) NOT VALID; " +
				"ALTER TABLE flow.batch VALIDATE CONSTRAINT few",
		}, "a file of its own"},
		"foreign key": {[]string{"ALTER TABLE flow.call ADD FOREIGN KEY (batch_id) REFERENCES flow.batch"},
			"NOT VALID"},
		"foreign key, not valid": {[]string{
			"ALTER TABLE flow.call ADD CONSTRAINT of FOREIGN KEY (batch_id) " +
				"REFERENCES flow.batch ON DELETE CASCADE NOT VALID"}, ""},
		"primary key": {[]string{"ALTER TABLE flow.call ADD PRIMARY KEY (id)"}, "USING INDEX"},
		"unique": {[]string{"ALTER TABLE flow.call ADD CONSTRAINT once UNIQUE (batch_id)"},
			"USING INDEX"},
		"unique, by an index": {[]string{"ALTER TABLE flow.call ADD CONSTRAINT once UNIQUE USING INDEX once"}, ""},
		"not null": {[]string{"ALTER TABLE flow.batch ALTER COLUMN n SET NOT NULL"},
			"CHECK (n IS NOT NULL) NOT VALID"},
		"not null, not validated": {[]string{
			"ALTER TABLE flow.batch ADD CONSTRAINT n_there CHECK (n IS NOT NULL) NOT VALID",
			"ALTER TABLE flow.batch ALTER n SET NOT NULL",
		}, "CHECK (n IS NOT NULL) NOT VALID"},
		"not null, another column": {[]string{
			"ALTER TABLE flow.batch ADD CONSTRAINT there CHECK (note IS NOT NULL) NOT VALID",
			"ALTER TABLE flow.batch VALIDATE CONSTRAINT there",
			"ALTER TABLE flow.batch ALTER n SET NOT NULL",
		}, "CHECK (n IS NOT NULL) NOT VALID"},
		"not null, validated": {[]string{
			"ALTER TABLE flow.batch ADD CONSTRAINT n_there CHECK ((n IS NOT NULL)) NOT VALID",
			"ALTER TABLE flow.batch VALIDATE CONSTRAINT n_there",
			"ALTER TABLE flow.batch ALTER n SET NOT NULL",
		}, ""},
		"type": {[]string{least + "ALTER TABLE flow.batch ALTER COLUMN n TYPE bigint"},
			"a column of the other type"},
		"default": {[]string{
			"ALTER TABLE flow.batch ALTER COLUMN n SET DEFAULT 3, ALTER note DROP NOT NULL"}, ""},
		"drop column":               {[]string{"ALTER TABLE flow.batch DROP COLUMN n"}, "use column flow.batch.n"},
		"drop column, nobody's":     {[]string{least + "ALTER TABLE flow.batch DROP COLUMN n"}, ""},
		"drop column, for a reason": {[]string{safe + "ALTER TABLE flow.batch DROP COLUMN n"}, ""},
		"drop table":                {[]string{"DROP TABLE flow.call"}, "use table flow.call"},
		"drop table, with others":   {[]string{least + "DROP TABLE flow.batch CASCADE"}, "nobody knows what it locks"},
		"rename column":             {[]string{"ALTER TABLE flow.batch RENAME n TO m"}, "use column flow.batch.n"},
		"rename table":              {[]string{"ALTER TABLE flow.batch RENAME TO lot"}, "use table flow.batch"},
		"drop function":             {[]string{"DROP FUNCTION flow.clock()"}, "use flow.clock"},
		"lock":                      {[]string{"LOCK TABLE flow.batch IN ACCESS EXCLUSIVE MODE"}, "leave it out"},
		"update": {[]string{"UPDATE flow.batch SET note = '' WHERE note IS NULL"},
			"have the program change rows"},
		"delete": {[]string{"DELETE FROM flow.batch"}, "have the program change rows"},
		"insert": {[]string{
			"INSERT INTO flow.batch (id) VALUES ('00000000-0000-0000-0000-000000000000')"}, ""},
		"insert of a query": {[]string{"INSERT INTO flow.call SELECT id FROM flow.batch"},
			"nobody knows how many rows"},
		"update, few rows":      {[]string{safe + "UPDATE flow.batch SET note = ''"}, ""},
		"update of a new table": {[]string{"CREATE TABLE flow.own (n int); UPDATE flow.own SET n = 1"}, ""},
		"truncate":              {[]string{least + "TRUNCATE flow.batch"}, "find another way"},
		"do": {[]string{"DO $$ BEGIN ALTER TABLE flow.batch ADD more int; END $$"},
			"nobody knows what it locks"},
		"select":         {[]string{"SELECT flow.rebuild()"}, "nobody knows what it locks"},
		"unknown action": {[]string{"ALTER TABLE flow.batch FROBNICATE"}, "nobody knows what it locks"},
		"unlogged":       {[]string{"ALTER TABLE flow.batch SET UNLOGGED"}, "leave the table"},
		"storage parameter": {[]string{
			"ALTER TABLE flow.batch SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01)"}, ""},
		"trigger, view, comment": {[]string{
			"CREATE TRIGGER t BEFORE UPDATE ON flow.batch EXECUTE FUNCTION flow.f(); CREATE VIEW ops.b AS SELECT 1; " +
				"COMMENT ON COLUMN flow.batch.n IS 'x;'"}, ""},
		"reading behind a full lock": {[]string{
			"ALTER TABLE flow.batch ADD more int; ALTER TABLE flow.call VALIDATE CONSTRAINT c"},
			"while flow.batch is locked"},
		"waiting behind a full lock": {[]string{
			"ALTER TABLE flow.batch ADD more int; ALTER TABLE flow.call ADD more int"}, "while flow.batch is locked"},
		"twice the same table": {[]string{
			"ALTER TABLE flow.batch ADD more int; ALTER TABLE flow.batch ADD other int"}, ""},
		"hidden in a comment": {[]string{"/* ; -- */ CREATE /* $$ */ INDEX more ON flow.batch (n)"},
			"CREATE INDEX CONCURRENTLY"},
		"shown in a string": {[]string{"COMMENT ON TABLE flow.batch IS 'DROP TABLE flow.batch; -- $$'"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := []ddl.File{parse(t, "00001_base.sql", baseline)}
			for i, sql := range tt.files {
				files = append(files, parse(t, []string{"00002_a.sql", "00003_b.sql", "00004_c.sql"}[i], sql))
			}
			problems := ddl.Lint(files, 2)
			if tt.want == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1, "%v", problems)
			require.Contains(t, problems[0].String(), tt.want)
			require.Empty(t, ddl.Lint(files, 5), "the files before are left alone")
		})
	}
}

func parse(t *testing.T, name, sql string) ddl.File {
	t.Helper()
	f, err := ddl.Parse(name, sql)
	require.NoError(t, err)
	return f
}

func TestParse(t *testing.T) {
	t.Parallel()
	f := parse(t, "00020_note.sql", outside+
		"-- migrate: least program 16\n\n-- Why.\nSELECT 'a;b' -- c;\n, E'\\';', \"x;\", $t$ ; $$ ; $t$, (1;2);\n"+safe+
		"CREATE TABLE t ();")
	require.Equal(t, []any{int64(20), false, int64(16), 2}, []any{f.Version, f.Transaction, f.LeastProgram,
		len(f.Statements)})
	require.Equal(t, 5, f.Statements[0].Line)
	require.Equal(t, "CREATE TABLE t ()", f.Statements[1].Text)
	require.Equal(t, "the table has one row", f.Statements[1].Safe)
	require.Empty(t, f.Statements[0].Safe)
	for name, sql := range map[string]string{
		"note.sql":        "SELECT 1",
		"00002_quote.sql": "SELECT 'a",
		"00003_body.sql":  "SELECT $$ a $x$",
		"00004_note.sql":  "/* /* */ SELECT 1",
		"00005_typo.sql":  "-- migrate: outside transaction\nSELECT 1",
		"00006_late.sql":  "SELECT 1;\n-- migrate: outside a transaction\nSELECT 1",
		"00007_least.sql": "-- migrate: least program 8\nSELECT 1",
		"00008_why.sql":   "-- migrate: safe\nSELECT 1",
		"00009_body.sql":  "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END",
	} {
		_, err := ddl.Parse(name, sql)
		require.Error(t, err, name)
		require.True(t, strings.HasPrefix(err.Error(), name), err)
	}
}
