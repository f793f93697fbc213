package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flowlane/test/pgtest"
)

// TestMigratePlan: what is locked, read and rewritten is told before it is, and nothing is done.
func TestMigratePlan(t *testing.T) {
	t.Parallel()
	empty, _ := pgtest.NewEmpty(t)
	dsn, pool := pgtest.NewDatabase(t)
	type effect struct {
		Table       *string
		Lock        string
		ReadsAll    bool `json:"reads_all"`
		Rewrites    bool
		Bytes, Rows *int64
	}
	type migration struct {
		Line, Name  string
		Version     int
		Transaction bool
		Holds       []struct {
			Table       *string
			BlocksReads bool  `json:"blocks_reads"`
			FromLine    int   `json:"from_line"`
			ReadsBytes  int64 `json:"reads_bytes"`
		}
		Statements []struct {
			Text    string
			Known   bool
			Effects []effect
		}
	}
	var plan []migration
	output(t, []string{"DATABASE_URL=" + empty}, &plan, "migrate", "plan")
	require.Greater(t, len(plan), 13)
	for _, m := range plan {
		for _, s := range m.Statements {
			require.Empty(t, s.Effects, "there is nothing yet that could be locked: %s", s.Text)
		}
	}
	text, err := program(t, []string{"DATABASE_URL=" + dsn}, "migrate", "plan").Output()
	require.NoError(t, err)
	require.Equal(t, "The database is up to date.\n", string(text))

	// As if it had not come further.
	_, err = pool.Exec(t.Context(),
		"INSERT INTO river.river_queue (name, updated_at) SELECT n, now() FROM generate_series(1, 7) n")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(),
		"ANALYZE river.river_queue, river.river_job; DELETE FROM river.river_migration WHERE version IN (4, 5)")
	require.NoError(t, err)
	output(t, []string{"DATABASE_URL=" + dsn}, &plan, "migrate", "plan")
	require.Len(t, plan, 2)
	found := map[string]effect{}
	unknown := 0
	for _, m := range plan {
		require.True(t, m.Transaction && m.Line == "river")
		for _, s := range m.Statements {
			for _, e := range s.Effects {
				found[strings.Join(strings.Fields(s.Text)[:2], " ")+" "+s.Text[max(len(s.Text)-12, 0):]] = e
				if e.Table == nil {
					require.False(t, s.Known)
					unknown++
				}
			}
		}
	}
	require.Equal(t, 1, unknown, "the one that is a program")
	set := found["ALTER TABLE SET NOT NULL"]
	set.Bytes = nil
	job, rows := "river.river_job", int64(0)
	require.Equal(t, effect{Table: &job, Lock: "AccessExclusive", ReadsAll: true, Rows: &rows}, set)
	first := plan[0].Holds[0]
	require.Equal(t, []any{job, true, 3}, []any{*first.Table, first.BlocksReads, first.FromLine})
	require.Positive(t, first.ReadsBytes)
	text, err = program(t, []string{"DATABASE_URL=" + dsn}, "migrate", "plan").Output()
	require.NoError(t, err)
	for _, line := range []string{
		"river 4 pending and more, in one transaction\n" +
			"  nobody else reads or changes river.river_job from line 3 to line 42, while ",
		"line 4: UPDATE river.river_job SET args",
		" about 0 rows): AccessExclusive, read as a whole\n",
		" about 0 rows): RowExclusive, read as a whole\n",
		"it is not known what this does: AccessExclusive",
	} {
		require.Contains(t, string(text), line)
	}
	var status []struct{ Applied bool }
	output(t, []string{"DATABASE_URL=" + dsn}, &status, "migrate", "status")
	pending := 0
	for _, m := range status {
		if !m.Applied {
			pending++
		}
	}
	require.Equal(t, 2, pending)
}
