package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"flowlane/internal/cli/render"
)

// wideTable is a table as wide as what is in it.
const wideTable = "wide"

// form is the flags of what commands print that talk to the API.
type form struct {
	JSON    bool     `name:"json" group:"print" help:"Print JSON; as -o json."`
	Output  string   `name:"output" group:"print" short:"o" enum:"table,wide,json,ndjson,yaml,csv" default:"table" help:"Form of what is printed: ${enum}. Wide is a table of which nothing is cut."`
	Columns []string `name:"columns" group:"print" help:"Fields to print, parts joined by dots: id,job_counts.failed. Not for json, ndjson." placeholder:"FIELD"`
}

func (f form) format() render.Format {
	if f.JSON {
		return render.JSON
	}
	if f.Output == wideTable {
		return render.Table
	}
	return render.Format(f.Output)
}

// check refuses flags that say two things.
func (f form) check(*action) error {
	if f.JSON && f.Output != "table" && f.Output != "json" {
		return usageError{fmt.Errorf("--json and -o %s say two things: leave one out", f.Output)}
	}
	return nil
}

// options are those of package render. columns are those of a table that nobody chose others for.
func (f form) options(p *process, columns string) render.Options {
	o := render.Options{Format: f.format(), Columns: f.Columns}
	if o.Format != render.Table {
		return o
	}
	if o.Columns == nil && columns != "" {
		o.Columns = strings.Fields(columns)
	}
	o.Color, o.Wide = colored(p), f.Output == wideTable
	if !o.Wide {
		o.Width = width(p.stdout)
	}
	o.Left = func(left []string) {
		fmt.Fprintf(p.stderr, "No room for %s: -o wide prints all, --columns those that you name.\n",
			strings.Join(left, ", "))
	}
	return o
}

// remark says of a table, beside it, what it does not show; none is said of an empty one.
func (f form) remark(p *process, none string, shown int, total *int64, more bool) {
	switch {
	case f.format() != render.Table:
	case shown == 0:
		fmt.Fprintln(p.stderr, none)
	case more && total != nil:
		fmt.Fprintf(p.stderr, "%s of %s; --limit N or --all prints more.\n", thousands(int64(shown)), thousands(*total))
	case more:
		fmt.Fprintf(p.stderr, "%s, and there are more: --limit N or --all prints them.\n", thousands(int64(shown)))
	}
}

// colored tells whether colours are seen and wanted (https://no-color.org).
func colored(p *process) bool {
	return terminal(p.stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// width is how many columns a terminal has, 0 where there is none.
func width(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !terminal(file) {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd())) //nolint:gosec // a small number
	if err != nil {
		return 0
	}
	return columns
}
