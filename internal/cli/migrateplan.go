package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"flowlane/internal/pg"
	"flowlane/internal/pg/ddl"
)

type migratePlan struct {
	database
	output
}

type plannedMigration struct {
	Line         string             `json:"line"`
	Version      int64              `json:"version"`
	Name         string             `json:"name"`
	Transaction  bool               `json:"transaction"`
	LeastProgram *int64             `json:"least_program"`
	Holds        []plannedPause     `json:"holds"`
	Statements   []plannedStatement `json:"statements"`
}

// plannedPause is that others cannot change a table, or not read it either, from one line to another.
type plannedPause struct {
	// Table is null for any table.
	Table       *string `json:"table"`
	Lock        string  `json:"lock"`
	BlocksReads bool    `json:"blocks_reads"`
	From        int     `json:"from_line"`
	To          int     `json:"to_line"`
	// Reads and Rewrites are bytes.
	Reads    int64 `json:"reads_bytes"`
	Rewrites int64 `json:"rewrites_bytes"`
}

type plannedStatement struct {
	Line    int             `json:"line"`
	Text    string          `json:"text"`
	Known   bool            `json:"known"`
	Effects []plannedEffect `json:"effects"`
}

type plannedEffect struct {
	// Table is null for any table; then Bytes and Rows are those of the largest.
	Table    *string `json:"table"`
	Lock     string  `json:"lock"`
	Reads    bool    `json:"reads_all"`
	Rewrites bool    `json:"rewrites"`
	Bytes    int64   `json:"bytes"`
	// Rows is null for a table that was never analyzed.
	Rows *int64 `json:"rows"`
}

// Run prints the plan.
func (c *migratePlan) Run(ctx context.Context, p *process) error {
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	plan, err := pg.Migrator{}.Plan(ctx, pool)
	if err != nil {
		return fmt.Errorf("plan the migrations: %w", err)
	}
	facts := make([]plannedMigration, len(plan))
	for i, m := range plan {
		facts[i] = planFacts(m)
	}
	return c.print(p, facts, func(w io.Writer) { printPlan(w, plan) })
}

func planFacts(m pg.PlannedMigration) plannedMigration {
	out := plannedMigration{
		Line: m.Line, Version: m.Version, Name: m.Name, Transaction: m.Transaction,
		Holds: []plannedPause{}, Statements: []plannedStatement{},
	}
	for _, h := range m.Holds() {
		out.Holds = append(out.Holds, plannedPause{
			orNull(h.Table), h.Lock.String(), h.Lock.BlocksReads(), h.From, h.To, h.Reads, h.Rewrites,
		})
	}
	if m.LeastProgram > 0 {
		out.LeastProgram = &m.LeastProgram
	}
	for _, s := range m.Statements {
		facts := plannedStatement{Line: s.Line, Text: s.Text, Known: s.Known, Effects: []plannedEffect{}}
		for _, e := range s.Effects {
			effect := plannedEffect{
				Table: orNull(e.Table), Lock: e.Lock.String(), Reads: e.Scans, Rewrites: e.Rewrites, Bytes: e.Bytes,
			}
			if e.Rows >= 0 {
				effect.Rows = &e.Rows
			}
			facts.Effects = append(facts.Effects, effect)
		}
		out.Statements = append(out.Statements, facts)
	}
	return out
}

// orNull is nil for the empty name.
func orNull(table string) *string {
	if table == "" {
		return nil
	}
	return &table
}

// printPlan prints a plan for people: statements that touch nothing that is there are counted.
func printPlan(w io.Writer, plan []pg.PlannedMigration) {
	if len(plan) == 0 {
		fmt.Fprintln(w, "The database is up to date.")
		return
	}
	for _, m := range plan {
		way := "in one transaction"
		if !m.Transaction {
			way = "outside a transaction"
		}
		fmt.Fprintf(w, "%s %d %s, %s\n", m.Line, m.Version, m.Name, way)
		if m.LeastProgram > 0 {
			fmt.Fprintf(w, "  versions of Flowlane that do not know migration %d end, and start no more\n",
				m.LeastProgram)
		}
		held := m.Holds()
		for _, h := range held {
			fmt.Fprintf(w, "  %s\n", holdLine(h))
		}
		if len(held) == 0 {
			fmt.Fprintln(w, "  others read and change all tables meanwhile")
		}
		quiet := 0
		for _, s := range m.Statements {
			if len(s.Effects) == 0 {
				quiet++
				continue
			}
			fmt.Fprintf(w, "  line %d: %s\n", s.Line, ddl.Statement{Text: s.Text}.Short())
			for _, e := range s.Effects {
				fmt.Fprintf(w, "    %s\n", planLine(e))
			}
		}
		if quiet > 0 {
			fmt.Fprintf(w, "  %s nothing that is there now\n", counted(quiet, "statement touches", "statements touch"))
		}
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// planLine says what happens to one table.
func planLine(e pg.PlannedEffect) string {
	rows := ""
	if e.Rows >= 0 {
		rows = ", about " + counted(int(e.Rows), "row", "rows")
	}
	table := fmt.Sprintf("%s (%s%s)", e.Table, sizeText(e.Bytes), rows)
	if e.Table == "" {
		table = fmt.Sprintf("any table (the largest has %s%s): it is not known what this does", sizeText(e.Bytes), rows)
	}
	does := ""
	if e.Rewrites {
		does = ", read and written anew as a whole"
	} else if e.Scans {
		does = ", read as a whole"
	}
	return table + ": " + e.Lock.String() + does
}

// holdLine says from whom a table is kept, and for how long.
func holdLine(h pg.PlannedHold) string {
	who, table, lines, time := "changes", cmp.Or(h.Table, "any table"), fmt.Sprintf("in line %d", h.From),
		"for a moment"
	if h.Lock.BlocksReads() {
		who = "reads or changes"
	}
	if h.To != h.From {
		lines = fmt.Sprintf("from line %d to line %d", h.From, h.To)
	}
	switch {
	case h.Rewrites > 0:
		time = fmt.Sprintf("while %s are read and %s written anew", sizeText(h.Reads), sizeText(h.Rewrites))
	case h.Reads > 0:
		time = fmt.Sprintf("while %s are read", sizeText(h.Reads))
	}
	return fmt.Sprintf("nobody else %s %s %s, %s", who, table, lines, time)
}

// sizeText is a number of bytes for people.
func sizeText(bytes int64) string {
	size, units := float64(bytes), []string{"KiB", "MiB", "GiB"}
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	unit := ""
	for _, unit = range units {
		if size /= 1 << 10; size < 1<<10 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
