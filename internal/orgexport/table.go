package orgexport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// pieceRows is how many rows a statement reads at most of a table, or of a large batch, and how many parents.
	pieceRows = 1000
	// groupSize is up to how many records, or chunks, there are in parents whose rows a statement reads together.
	groupSize = 10_000
)

// table is a table of which an export has a file.
type table struct {
	name string
	// by is the column that says whose a row is.
	by      string
	columns []column
	// key is the primary key.
	key []column
	// opened is the column that is made readable; empty for none.
	opened string
}

type column struct{ name, kind string }

// bytea is how Postgres calls columns of bytes.
const bytea = "bytea"

// catalogColumns lists the columns of all tables, with the place that each has in the primary key.
const catalogColumns = `SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
	array_position(i.indkey::int2[], a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relnamespace = 'flow'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
ORDER BY c.relname, a.attnum`

// found is a table as the catalog of Postgres has it.
type found struct {
	columns []column
	key     map[int]column
}

func discover(ctx context.Context, conn querier) (map[string]*found, error) {
	rows, err := conn.Query(ctx, catalogColumns)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	all := map[string]*found{}
	var name string
	var c column
	var place *int
	_, err = pgx.ForEachRow(rows, []any{&name, &c.name, &c.kind, &place}, func() error {
		if all[name] == nil {
			all[name] = &found{key: map[int]column{}}
		}
		all[name].columns = append(all[name].columns, c)
		if place != nil {
			all[name].key[*place] = c
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return all, nil
}

// owner is the column that says whose the rows of a table are; empty for none.
func (f *found) owner(name string) string {
	if name == "organization" {
		return "id"
	}
	for _, by := range []string{"org_id", "batch_id", "record_set_id"} {
		if slices.ContainsFunc(f.columns, func(c column) bool { return c.name == by }) {
			return by
		}
	}
	return ""
}

// left is why a column is in no file of a table; empty where it is in one.
func (s *Service) left(table string, c column) string {
	key := table + "." + c.name
	switch {
	case leftOut[key] != "":
		return leftOut[key]
	case elsewhere[key] != "":
		return "in " + elsewhere[key]
	case c.kind == bytea && !digests[key] && s.Openers[key] == nil:
		return "bytes of which nobody has said what they hold"
	}
	return ""
}

// tables are those that an export has files of, in order.
func (s *Service) tables(ctx context.Context, conn querier) ([]table, error) {
	all, err := discover(ctx, conn)
	if err != nil {
		return nil, err
	}
	var out []table
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		t := table{name: name, by: f.owner(name)}
		if apart[name] != "" {
			continue
		}
		if t.by == "" || len(f.key) == 0 {
			return nil, fmt.Errorf("nobody has said how rows of the table flow.%s belong to organizations", name)
		}
		for _, c := range f.columns {
			switch {
			case s.left(name, c) != "":
			case s.Openers[name+"."+c.name] != nil:
				t.opened = c.name
			default:
				t.columns = append(t.columns, c)
			}
		}
		for i := range len(f.key) {
			t.key = append(t.key, f.key[i])
		}
		out = append(out, t)
	}
	return out, nil
}

// statement reads rows as JSON, with what is to be made readable and the key. owners is what the owner of the rows must
// be. In pieces it reads up to pieceRows in the order of the key, behind that of the parameters from $2 on if there are
// any.
func (t *table) statement(owners string, pieces, behind bool) string {
	quoted := func(name string) string { return "t." + pgx.Identifier{name}.Sanitize() }
	var columns, key, values []string
	for _, c := range t.columns {
		text := quoted(c.name)
		if c.kind == bytea {
			text = "translate(encode(" + text + ", 'base64'), E'\\n', '')"
		}
		columns = append(columns, text+" AS "+pgx.Identifier{c.name}.Sanitize())
	}
	for i, c := range t.key {
		key = append(key, quoted(c.name))
		values = append(values, "($"+strconv.Itoa(i+2)+"::text)::"+c.kind)
	}
	opened := "NULL::bytea"
	if t.opened != "" {
		opened = quoted(t.opened)
	}
	sql := "SELECT (SELECT row_to_json(r) FROM (SELECT " + strings.Join(columns, ", ") + ") r)::text, " + opened +
		", " +
		strings.Join(key, "::text, ") + "::text FROM flow." + pgx.Identifier{t.name}.Sanitize() + " t WHERE " +
		quoted(t.by) + owners
	if behind {
		sql += " AND (" + strings.Join(key, ", ") + ") > (" + strings.Join(values, ", ") + ")"
	}
	if pieces {
		sql += " ORDER BY " + strings.Join(key, ", ") + " LIMIT " + strconv.Itoa(pieceRows)
	}
	return sql
}

// writePieces writes all rows of an owner, by statements that read pieceRows each.
func (s *Service) writePieces(ctx context.Context, w *spool, t *table, owner uuid.UUID) error {
	args := []any{owner}
	for {
		n, last, err := s.writeRows(ctx, w, t, t.statement(" = $1", true, len(args) > 1), args...)
		if err != nil || n < pieceRows {
			return err
		}
		args = args[:1]
		for _, v := range last {
			args = append(args, v)
		}
	}
}

// writeRows writes the rows that a statement finds, one at a time, and returns how many there were and the key of the
// last.
func (s *Service) writeRows(ctx context.Context, w *spool, t *table, sql string,
	args ...any) (n int, last []string, err error) {
	rows, err := s.Pool.Query(ctx, sql, args...)
	if err != nil {
		return 0, nil, fmt.Errorf("read flow.%s: %w", t.name, err)
	}
	var row, packed []byte
	into := []any{&row, &packed}
	last = make([]string, len(t.key))
	for i := range last {
		into = append(into, &last[i])
	}
	var line bytes.Buffer
	_, err = pgx.ForEachRow(rows, into, func() error {
		n++
		line.Reset()
		// columns of type json are as they were sent, with their ends of lines
		if err := json.Compact(&line, row); err != nil {
			return err //nolint:wrapcheck // explained below
		}
		if t.opened == "" {
			line.WriteByte('\n')
			_, err := w.Write(line.Bytes())
			return err
		}
		line.Truncate(line.Len() - 1)
		fmt.Fprintf(&line, ",%q:", t.opened)
		if _, err := w.Write(line.Bytes()); err != nil {
			return err
		}
		if err := s.open(w, t, row, packed); err != nil {
			return err
		}
		_, err := w.Write([]byte("}\n"))
		return err
	})
	if err != nil {
		return n, nil, fmt.Errorf("read flow.%s: %w", t.name, err)
	}
	return n, last, nil
}

func (s *Service) open(w *spool, t *table, row, packed []byte) error {
	if packed == nil {
		_, err := w.Write([]byte("null"))
		return err
	}
	return s.Openers[t.name+"."+t.opened](w, row, packed)
}

// writeTable writes all rows of an organization.
func (s *Service) writeTable(ctx context.Context, w *spool, t *table, orgID uuid.UUID) error {
	var list lister
	switch t.by {
	case "batch_id":
		list = batches
	case "record_set_id":
		list = recordSets
	default:
		return s.writePieces(ctx, w, t, orgID)
	}
	return s.eachParent(ctx, list, orgID, func(all []parent) error {
		for n := 0; len(all) > 0; all = all[n:] {
			n = together(all)
			if n == 1 {
				if err := s.writePieces(ctx, w, t, all[0].ID); err != nil {
					return err
				}
				continue
			}
			ids := make([]uuid.UUID, n)
			for i := range ids {
				ids[i] = all[i].ID
			}
			if _, _, err := s.writeRows(ctx, w, t, t.statement(" = ANY($1)", false, false), ids); err != nil {
				return err
			}
		}
		return nil
	})
}

// together is how many of these parents, from the first on, have their rows read by one statement.
func together(all []parent) int {
	n, size := 1, all[0].Size
	for n < len(all) && size+all[n].Size <= groupSize {
		size += all[n].Size
		n++
	}
	return n
}
