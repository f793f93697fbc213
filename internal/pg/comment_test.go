package pg_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"flowlane/test/pgtest"
)

// described lists everything of the schemas flow and ops that must say what it is, as kind, name and comment.
const described = `
WITH ours AS (SELECT oid, nspname FROM pg_namespace WHERE nspname IN ('flow', 'ops')),
relation AS (
    SELECT c.oid, n.nspname || '.' || c.relname AS name, c.relkind FROM pg_class c JOIN ours n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND NOT c.relispartition
        -- The sequence of an identity column is part of the column.
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i')
)
SELECT 'schema' AS kind, nspname::text AS name, obj_description(oid, 'pg_namespace') AS comment FROM ours
UNION ALL
SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END, name, obj_description(oid, 'pg_class') FROM relation
UNION ALL
SELECT 'column', r.name || '.' || a.attname, col_description(r.oid, a.attnum)
FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid WHERE r.relkind <> 'S' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'type', n.nspname || '.' || t.typname, obj_description(t.oid, 'pg_type')
FROM pg_type t JOIN ours n ON n.oid = t.typnamespace WHERE t.typtype IN ('e', 'd')
UNION ALL
SELECT 'function', n.nspname || '.' || p.proname, obj_description(p.oid, 'pg_proc')
FROM pg_proc p JOIN ours n ON n.oid = p.pronamespace
ORDER BY 1, 2`

// TestMigrate_Described: whoever looks at the database finds there what everything in it means.
func TestMigrate_Described(t *testing.T) {
	t.Parallel()
	rows, err := pgtest.New(t).Query(t.Context(), described)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	var kind, name string
	var comment *string
	_, err = pgx.ForEachRow(rows, []any{&kind, &name, &comment}, func() error {
		seen[kind]++
		switch {
		case comment == nil:
			t.Errorf("%s %s has no comment: write COMMENT ON in its migration", kind, name)
		case repeats(name, *comment):
			t.Errorf("%s %s: the comment %q says no more than the name", kind, name, *comment)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"schema", "table", "column", "type", "function", "sequence"} {
		if seen[kind] == 0 {
			t.Errorf("found no %s: the query of this test is wrong", kind)
		}
	}
}

// filler are words that tell nothing about a thing.
var filler = regexp.MustCompile(`^(a|an|and|at|by|for|from|in|is|it|its|of|on|that|the|this|to|was|when|where|which|whose|with|column|row|table|type|value|view|s)$`)

// repeats tells whether a comment consists of the words of the name alone.
func repeats(name, comment string) bool {
	words := func(text string) []string {
		return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
			return (r < 'a' || r > 'z') &&
				(r < '0' || r > '9')
		})
	}
	known := map[string]bool{}
	for _, w := range words(name) {
		known[w], known[w+"s"], known[strings.TrimSuffix(w, "s")] = true, true, true
	}
	for _, w := range words(comment) {
		if !known[w] && !filler.MatchString(w) {
			return false
		}
	}
	return true
}

func TestMigrate_DescribedByMoreThanTheName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, comment string
		repeats       bool
	}{
		{"flow.batch.record_count", "", true},
		{"flow.batch.record_count", "Record count.", true},
		{"flow.batch.record_count", "The count of records of the batch", true},
		{"flow.batch.created_at", "When it was created", true},
		{"flow.batch.created_at", "When the trigger was accepted.", false},
		{"flow.batch.record_count", "How many jobs the batch has", false},
	} {
		if got := repeats(c.name, c.comment); got != c.repeats {
			t.Errorf("repeats(%q, %q) = %v", c.name, c.comment, got)
		}
	}
}
