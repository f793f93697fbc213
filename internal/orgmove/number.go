package orgmove

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// column is one that holds numbers.
type column struct{ table, name string }

// numbers are the columns, by their sequence, whose order says what came first. Each cell draws them from a range of
// its own: in one whose range is lower, what comes next would stand before what has arrived.
var numbers = map[string][]column{
	"flow.event_delivery_id_seq": {{"event_delivery", "id"}},
	"flow.fragment_seq_seq":      {{"fragment", "seq"}},
	"flow.part_id_seq":           {{"part", "id"}},
	"flow.wait_no": {{"wait", "no"}, {"wait", "event_no"}, {"event_arrival", "no"},
		{"event_arrival", "done_upto"}},
}

// unnumbered leaves those columns out of a list.
func unnumbered(table, columns string) string {
	var out []string
	for _, name := range strings.Split(columns, ", ") {
		if !isNumber(column{table, name}) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

func isNumber(c column) bool {
	for _, all := range numbers {
		for _, one := range all {
			if one == c {
				return true
			}
		}
	}
	return false
}

// renumber gives what arrives numbers of this cell, in the same order, where it has greater ones than the next that
// this cell draws.
func renumber(ctx context.Context, to pgx.Tx) error {
	for sequence, columns := range numbers {
		if err := renumberOf(ctx, to, sequence, columns); err != nil {
			return fmt.Errorf("renumber what %s counts: %w", sequence, err)
		}
	}
	return nil
}

func renumberOf(ctx context.Context, to pgx.Tx, sequence string, columns []column) error {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = "SELECT " + c.name + " AS old FROM arriving_" + c.table + " WHERE " + c.name + " > 0"
	}
	union := strings.Join(all, " UNION ")
	var greater bool
	err := to.QueryRow(ctx, "SELECT coalesce(max(old) > (SELECT last_value FROM "+sequence+"), false) FROM ("+union+
		") n").Scan(&greater)
	if err != nil || !greater {
		return err //nolint:wrapcheck // the caller says what it was for
	}
	_, err = to.Exec(ctx, "CREATE TEMP TABLE renumbered ON COMMIT DROP AS SELECT old, nextval('"+sequence+
		"') AS new FROM (SELECT old FROM ("+union+") n ORDER BY old) o")
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	for _, c := range columns {
		_, err := to.Exec(ctx, "UPDATE arriving_"+c.table+" a SET "+c.name+" = r.new FROM renumbered r WHERE a."+c.name+
			" = r.old")
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	_, err = to.Exec(ctx, "DROP TABLE renumbered")
	return err //nolint:wrapcheck // as above
}
