package pg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// gapsAllowed are queries that may read an index whose columns they do not name in order, by the index, and why.
var gapsAllowed = map[string]string{
	"PauseTotal pause_by_scope":          "planned for its arguments: optional filters",
	"BatchesMeant batch_count_by_status": "planned for its arguments: statuses",
	"CallsCounted call_recent":           "an account has few buckets",
	"InheritedDeepen inherited_pkey":     "reads all slices of a batch",
	"SweepQueues lane_batch_by_org":      "ends at the first row that may go",
	"HousekeepBackoffs pause_by_scope":   "once an hour",
	"BudgetReady lane_batch_by_org":      "as QueueChoose, and ends at the first row that may go",
	"QueueChoose lane_batch_by_org":      "entries of batches that are passed over cost no look at the row",
}

// wholeAllowed are queries that may read all of a table, or of an index, by the query and the table, and why.
var wholeAllowed = map[string]string{
	"BatchTotalOfState batch_count":             "planned for its arguments: optional filters",
	"BlobsAny blob":                             "ends at the first row",
	"BlobsUnnamed blob":                         "an index of what may go",
	"HousekeepCalls budget":                     "now and then",
	"HousekeepNextWebhook webhook":              "now and then",
	"HousekeepArrivals event_arrival":           "an index of what may go",
	"AuthorizationAdd credential_authorization": "they live for minutes, and people add them",
	"OrgBudgetsErase domain":                    "an organization goes for good",
	"DueStepped due":                            "after a step of the clock",
	"DueLook due":                               "ends at the first rows, and what is due is at the front",
	"DueBacklog due":                            "a metric",
}

// smallTables have a row or a few, or have as many as there are organizations and are read by operators and
// housekeeping.
var smallTables = []string{"cell", "clock_offset", "clock_watch", "root_key", "retention_clock", "erasure", "organization",
	"organization_quota", "pg_class"}

// smallIndexes have only what is not over.
var smallIndexes = []string{"pause_by_org_active"}

// planNode is a node of a plan as EXPLAIN writes it.
type planNode struct {
	Type  string     `json:"Node Type"`
	Table string     `json:"Relation Name"`
	Index string     `json:"Index Name"`
	Cond  string     `json:"Index Cond"`
	Plans []planNode `json:"Plans"`
}

func (n *planNode) walk(do func(*planNode)) {
	do(n)
	for i := range n.Plans {
		n.Plans[i].walk(do)
	}
}

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
	// condition matches the column of a condition, which stands before its operator.
	condition = regexp.MustCompile(`\("?(\w+)"? (?:=|<|>)`)
)

// TestPlans: the plans that Postgres makes while tables are empty, and keeps, go on being good when these have grown.
// An index that is asked for its first and third column, but not for the second, is read from end to end.
func TestPlans(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	exec(t, conn, "SET plan_cache_mode = force_generic_plan")
	columns := map[string][]string{}
	for _, row := range names(t, conn,
		`SELECT c.relname || ' ' || string_agg(coalesce(a.attname, '?'), ' ' ORDER BY k.n)
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(att, n)
		LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.att AND k.att > 0
		WHERE c.relnamespace = 'flow'::regnamespace AND k.n <= i.indnkeyatts GROUP BY c.relname`) {
		fields := strings.Fields(row)
		columns[fields[0]] = fields[1:]
	}
	seen := map[string]bool{}
	for name, sql := range statements(t) {
		read := plan(t, conn, name, sql)
		for _, gap := range gaps(t, read, columns) {
			key := name + " " + gap.Index
			assert.Contains(t, gapsAllowed, key, "%s%v %s", gap.Index, columns[gap.Index], gap.Cond)
			seen[key] = true
		}
		for _, table := range wholes(read) {
			key := name + " " + table
			operators := strings.HasPrefix(name, "Ops")
			assert.True(t, operators || wholeAllowed[key] != "", "%s reads all of a table", key)
			seen[key] = true
		}
	}
	for key := range gapsAllowed {
		assert.True(t, seen[key], "%s has no gap any more", key)
	}
	for key := range wholeAllowed {
		assert.True(t, seen[key], "%s is not read as a whole any more", key)
	}
}

// wholes returns the tables that a plan reads from end to end, by an index or without one.
func wholes(root planNode) (tables []string) {
	root.walk(func(n *planNode) {
		if n.Table != "" && n.Cond == "" && (n.Type == "Seq Scan" || strings.HasPrefix(n.Type, "Index")) &&
			!slices.Contains(smallTables, n.Table) && !slices.Contains(smallIndexes, n.Index) {
			tables = append(tables, n.Table)
		}
	})
	return tables
}

// TestPlans_RowSecurity: what an index gives in order for the owner, nobody sorts whom policies bind. Postgres does not
// take a column for one value that is compared by what may tell of rows, as enums are.
func TestPlans_RowSecurity(t *testing.T) {
	t.Parallel()
	dsn, owner := pgtest.NewDatabase(t)
	worker, err := pg.Open(t.Context(), pgtest.RuntimeDSN(t, dsn), pg.Options{MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(worker.Close)
	sorts := func(pool *pgxpool.Pool) (out []string) {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		exec(t, conn, "SET plan_cache_mode = force_generic_plan")
		exec(t, conn, "SET enable_sort = off") // only where there is no other way
		for name, sql := range statements(t) {
			root := plan(t, conn, name, sql)
			root.walk(func(n *planNode) {
				sorted := func(n planNode) bool { return strings.HasSuffix(n.Type, "Sort") }
				if n.Type == "Limit" && slices.ContainsFunc(n.Plans, sorted) {
					out = append(out, name)
				}
			})
		}
		slices.Sort(out)
		return out
	}
	assert.Equal(t, sorts(owner), sorts(worker))
}

// TestPlans_Queues: claims read indexes of queues entry by entry. Most entries are of rows that are gone, and Postgres
// marks these only then: one that is read for a bitmap is read with all of them the next time, too.
func TestPlans_Queues(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	exec(t, conn, `INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, definition_id, version, domain,
		bucket, lane, ready_parts)
		SELECT gen_random_uuid(), 0, 0, gen_random_uuid(), gen_random_uuid(), 1, 'd', 'b', 'bulk', 1
		FROM generate_series(1, 5000)`)
	exec(t, conn, `DELETE FROM flow.lane_batch
		WHERE batch_id <> ALL(ARRAY(SELECT batch_id FROM flow.lane_batch LIMIT 50))`)
	exec(t, conn, "ANALYZE flow.lane_batch")
	all := statements(t)
	require.NoError(t, pg.InTxGenericPlan(t.Context(), conn, func(_ context.Context, tx pgx.Tx) error {
		for _, name := range []string{"QueueChoose", "BudgetReady", "CallsOfOthers"} {
			root := plan(t, tx, name, all[name])
			root.walk(func(n *planNode) { assert.NotContains(t, n.Type, "Bitmap", "%s: %s", name, n.Index) })
		}
		return nil
	}))
}

// gaps returns the nodes of a plan that read an index with a condition for a column behind one without.
func gaps(t *testing.T, root planNode, columns map[string][]string) (out []*planNode) {
	t.Helper()
	root.walk(func(n *planNode) {
		var named []string
		for _, c := range condition.FindAllStringSubmatch(n.Cond, -1) {
			named = append(named, c[1])
		}
		missing := false
		for _, column := range columns[n.Index] {
			if is := slices.Contains(named, column); !is {
				missing = true
			} else if missing {
				out = append(out, n)
				return
			}
		}
	})
	return out
}

func plan(t *testing.T, conn pg.DB, name, sql string) planNode {
	t.Helper()
	most := 0
	for _, p := range parameter.FindAllStringSubmatch(sql, -1) {
		n, err := strconv.Atoi(p[1])
		require.NoError(t, err)
		most = max(most, n)
	}
	exec(t, conn, fmt.Sprintf("PREPARE %q AS %s", name, strings.TrimSuffix(strings.TrimSpace(sql), ";")))
	args := ""
	if most > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("NULL, ", most), ", ") + ")"
	}
	var out []struct{ Plan planNode }
	text := strings.Join(names(t, conn, fmt.Sprintf("EXPLAIN (FORMAT JSON) EXECUTE %q%s", name, args)), "")
	require.NoError(t, json.Unmarshal([]byte(text), &out), name)
	require.NotEmpty(t, out, name)
	return out[0].Plan
}

// statements returns the text of every query of ours, by its name.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../gen/db/*.go")
	require.NoError(t, err)
	out := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING || !strings.HasPrefix(literal.Value, "`-- name: ") {
				return true
			}
			text := strings.Trim(literal.Value, "`")
			out[strings.Fields(text)[2]] = text
			return true
		})
	}
	require.NotEmpty(t, out)
	return out
}
