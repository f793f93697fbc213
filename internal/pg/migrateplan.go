package pg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg/ddl"
)

// PlannedMigration is a migration that a database lacks, and what it will do there.
type PlannedMigration struct {
	Migration

	// Transaction: locks are held until all statements are through.
	Transaction bool
	// LeastProgram is the migration that programs must know which run from then on; 0 where it does not say.
	LeastProgram int64
	Statements   []PlannedStatement
}

// PlannedStatement is a statement and what it does to tables that are there now. It does nothing to them where it
// works on what the migrations themselves make.
type PlannedStatement struct {
	// Line is where it begins in its file, from 1 on.
	Line int
	Text string
	// Known is false where nobody knows what it does; then it may lock any table, and read and rewrite it.
	Known   bool
	Effects []PlannedEffect
}

// PlannedEffect is what a statement does to a table, or a view.
type PlannedEffect struct {
	// Table is empty for any table; then Bytes and Rows are those of the largest.
	Table string
	Lock  ddl.Lock
	// Scans: the whole table is read while it is locked. Rewrites: it is written anew.
	Scans, Rewrites bool
	// Bytes is the size of the table now, with its indexes; Rows is how many it had when it was last analyzed, -1 if
	// never.
	Bytes, Rows int64
}

// PlannedHold is that a table is kept from others: they cannot change it, or not even read it.
type PlannedHold struct {
	// Table is empty for any table.
	Table string
	Lock  ddl.Lock
	// From is the line of the statement that locks it, To that of the last one under the lock.
	From, To int
	// Reads and Rewrites are the bytes of tables that are read as a whole, and written anew, under the lock.
	Reads, Rewrites int64
}

// Holds says for how long tables are kept from others: in a transaction from the first statement that locks one to the
// end.
func (p PlannedMigration) Holds() []PlannedHold {
	if p.Transaction {
		return holds(p.Statements)
	}
	var out []PlannedHold
	for _, s := range p.Statements {
		out = append(out, holds([]PlannedStatement{s})...)
	}
	return out
}

func holds(statements []PlannedStatement) []PlannedHold {
	var out []PlannedHold
	for _, s := range statements {
		for _, e := range s.Effects {
			i := slices.IndexFunc(out, func(h PlannedHold) bool { return h.Table == e.Table })
			switch {
			case i >= 0:
				out[i].Lock = max(out[i].Lock, e.Lock)
			case e.Lock.BlocksWrites():
				out = append(out, PlannedHold{Table: e.Table, Lock: e.Lock, From: s.Line})
			}
		}
		for i := range out {
			out[i].To = s.Line
			for _, e := range s.Effects {
				if e.Scans {
					out[i].Reads += e.Bytes
				}
				if e.Rewrites {
					out[i].Rewrites += e.Bytes
				}
			}
		}
	}
	return out
}

// Plan says what Up would do, and does nothing. Errors: as those of Up before it changes anything.
func (m Migrator) Plan(ctx context.Context, db DB) ([]PlannedMigration, error) {
	files, err := m.migrations()
	if err != nil {
		return nil, err
	}
	state, err := readSchema(ctx, db, files)
	if err == nil {
		err = state.usable()
	}
	if err != nil {
		return nil, err
	}
	now, err := readTables(ctx, db)
	if err != nil {
		return nil, err
	}
	var out []PlannedMigration
	var history ddl.History
	for i, f := range files {
		p := PlannedMigration{Migration: state.flow[i], Transaction: f.Transaction, LeastProgram: f.LeastProgram}
		for _, s := range f.Statements {
			p.Statements = append(p.Statements, now.plan(s, history.Learn(s)))
		}
		if !p.Applied {
			out = append(out, p)
		}
	}
	river, err := riverMigrator(nil)
	if err != nil {
		return nil, err
	}
	for i, version := range river.AllVersions() {
		if state.river[i].Applied {
			continue
		}
		p := PlannedMigration{Migration: state.river[i], Transaction: true}
		statements, err := ddl.Split(strings.ReplaceAll(version.SQLUp, "/* TEMPLATE: schema */", RiverSchema+"."))
		if err != nil {
			return nil, fmt.Errorf("read migration %d of schema river: %w", version.Version, err)
		}
		for _, s := range statements {
			p.Statements = append(p.Statements, now.plan(s, s.Meaning()))
		}
		out = append(out, p)
	}
	return out, nil
}

// table is a table or view as it is now. Of an index, it is the table that it is of.
type table struct {
	name        string
	bytes, rows int64
}

// tables are those that are there, by the name of themselves or of an index.
type tables struct {
	byName map[string]table
	// related has the tables that refer to a table, or that it refers to.
	related map[string][]string
}

// readTables reads what may be locked.
func readTables(ctx context.Context, db DB) (*tables, error) {
	out := &tables{map[string]table{}, map[string][]string{}}
	rows, err := db.Query(ctx, `
SELECT n.nspname || '.' || c.relname, tn.nspname || '.' || t.relname, pg_total_relation_size(t.oid), t.reltuples::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_index i ON i.indexrelid = c.oid
    JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid) JOIN pg_namespace tn ON tn.oid = t.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'i', 'I') AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'`)
	if err != nil {
		return nil, fmt.Errorf("read which tables there are: %w", err)
	}
	var name string
	var t table
	_, err = pgx.ForEachRow(rows, []any{&name, &t.name, &t.bytes, &t.rows}, func() error {
		out.byName[name] = t
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read which tables there are: %w", err)
	}
	rows, err = db.Query(ctx, `
SELECT n.nspname || '.' || c.relname, fn.nspname || '.' || f.relname FROM pg_constraint k
    JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_class f ON f.oid = k.confrelid JOIN pg_namespace fn ON fn.oid = f.relnamespace
WHERE k.contype = 'f'`)
	if err != nil {
		return nil, fmt.Errorf("read which tables refer to others: %w", err)
	}
	var from, to string
	_, err = pgx.ForEachRow(rows, []any{&from, &to}, func() error {
		out.related[from], out.related[to] = append(out.related[from], to), append(out.related[to], from)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read which tables refer to others: %w", err)
	}
	return out, nil
}

// named are the tables that a name may mean: one without a schema means all of that name.
func (t *tables) named(name string) []table {
	if of, there := t.byName[name]; there {
		return []table{of}
	}
	var out []table
	for full, of := range t.byName {
		if !strings.Contains(name, ".") && strings.HasSuffix(full, "."+name) {
			out = append(out, of)
		}
	}
	return out
}

// plan says what a statement does to tables that are there.
func (t *tables) plan(s ddl.Statement, m ddl.Meaning) PlannedStatement {
	out := PlannedStatement{Line: s.Line, Text: s.Text, Known: m.Known}
	done := map[string]int{}
	add := func(of table, e ddl.Effect) {
		i, ok := done[of.name]
		if !ok {
			i = len(out.Effects)
			done[of.name] = i
			out.Effects = append(out.Effects, PlannedEffect{Table: of.name, Bytes: of.bytes, Rows: of.rows})
		}
		p := &out.Effects[i]
		p.Lock, p.Scans, p.Rewrites = max(p.Lock, e.Lock), p.Scans || e.Scans, p.Rewrites || e.Rewrites
	}
	for _, e := range m.Effects {
		if e.Object == "" {
			if largest := t.largest(); largest.name != "" {
				largest.name = ""
				add(largest, e)
			}
			continue
		}
		for _, of := range t.named(e.Object) {
			add(of, e)
			if !e.Related {
				continue
			}
			for _, other := range t.related[of.name] {
				add(t.byName[other], ddl.Effect{Lock: e.Lock})
			}
		}
	}
	return out
}

// largest is the table that has the most bytes; without a name where there is none.
func (t *tables) largest() table {
	var out table
	for _, of := range t.byName {
		if cmp.Or(cmp.Compare(of.bytes, out.bytes), cmp.Compare(out.name, of.name)) > 0 || out.name == "" {
			out = of
		}
	}
	return out
}
