// Command bench measures what docs/measurements.md promises of speed. Each row names our figure, a raw baseline that
// was taken in the same run, their ratio and the target. It needs Postgres with its default durability: the server that
// FLOWLANE_BENCH_DATABASE_URL names (a database of its own is made there and dropped), else an embedded one.
//
//	go run ./test/bench -run upload -n 200000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"text/tabwriter"
	"time"
)

// bench is one measurement; it may give several rows.
type bench struct {
	name string
	run  func(ctx context.Context, e *env) ([]row, error)
}

// benches run in this order.
var benches = []bench{
	{"upload", upload},
	{"run", runs},
	{"single", single},
	{"hold", holds},
	{"start", starts},
	{"webhooks", webhooks},
	{"small", small},
	{"bytes", lengths},
	{"small-crowd", crowded},
	{"stream", streams},
	{"retries", retries},
	{"reads", reads},
	{"projections", projections},
	{"dev", warmStart},
}

// row is one line of the report.
type row struct {
	what string
	// ours and raw are figures with their units; raw is empty where the target is absolute.
	ours, raw string
	// ratio is what is held against target: at least it, or at most when most is set. Without a target it is only told.
	ratio, target float64
	most          bool
	// unit of ratio and target; empty for a plain ratio.
	unit string
}

func (r row) ok() bool {
	if r.most {
		return r.ratio <= r.target
	}
	return r.ratio >= r.target
}

func (r row) line() string {
	verdict, sign, unit := "ok", "≥", r.unit
	if !r.ok() {
		verdict = "MISS"
	}
	if r.most {
		sign = "≤"
	}
	if unit == "" {
		unit = "×"
	}
	if r.target == 0 && !r.most {
		return fmt.Sprintf("%s\t%s\t%s\t%.2f %s\t\t", r.what, r.ours, r.raw, r.ratio, unit)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%.2f %s\t%s %g %s\t%s", r.what, r.ours, r.raw, r.ratio, unit, sign, r.target, unit,
		verdict)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if child, err := inRole(ctx); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("run", "", "run only benches whose name matches this regular expression")
	records := flags.Int("n", 0, "records per measurement; 0 takes each bench's own number")
	profile := flags.String("cpuprofile", "",
		"write a CPU profile of the benches to this file, "+
			"and one of the service to the file of that name with .service behind it")
	repeats := flags.Int("repeat", 5, "how often to measure; rates are medians, what is said of processors and the log is of the last time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	e, err := open(ctx)
	if err != nil {
		return err
	}
	defer e.close()
	e.records, e.repeats = *records, max(*repeats, 1)
	fmt.Fprintf(out, "%s, %d CPUs\n", e.server, cpus())
	if *profile != "" {
		e.profile = *profile + ".service"
	}
	stopProfile, err := startProfile(*profile)
	if err != nil {
		return err
	}
	defer stopProfile()
	return report(ctx, e, match, out)
}

// report runs the benches and prints their rows, then the table of all.
func report(ctx context.Context, e *env, match *regexp.Regexp, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "what\tours\traw\tratio\ttarget\t")
	for _, b := range benches {
		if !match.MatchString(b.name) {
			continue
		}
		began := time.Now()
		rows, err := b.run(ctx, e)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		for _, r := range rows {
			fmt.Fprintln(table, r.line())
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", b.name, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// startProfile writes a CPU profile to a file until it is stopped; an empty path means none.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
