package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// sizes are the machines that are reckoned with: what was measured, and what one rents.
var sizes = []size{
	{"2 processors, 1 TB", 1.2, 0.8, 60e6, 1e12},
	{"16 + 16 processors, 8 TB", 16, 16, 200e6, 8e12},
	{"64 + 64 processors, 32 TB", 64, 64, 500e6, 32e12},
}

func main() { table(os.Stdout, billion) }

// table writes the table of docs/scale.md.
func table(w io.Writer, l load) {
	fmt.Fprintln(w, "| Cells | Each | Starts at noon: Postgres, service, log | Starts waited | Batches took | "+
		"Disk after 30 days | Full first, with |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, s := range sizes {
		for _, cells := range []int{1, 4, 10, 30, 100} {
			r := live(l, s, cells)
			what, times := r.full()
			fmt.Fprintf(w, "| %d | %s | %s, %s, %s | %s | %s | %s | %s, %.2g billion a day |\n", cells, s.name,
				percent(r.postgres), percent(r.service), percent(r.log), lasting(r.late), lasting(r.done),
				percent(r.kept), what, l.records*times/1e9)
		}
	}
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

func lasting(seconds float64) string {
	if seconds < 1 {
		return "< 1 s"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
