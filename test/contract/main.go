// Command contract holds the running service against openapi.yaml with Specmatic, which makes requests of the document,
// good ones and bad ones, and compares every answer with it. It starts a Postgres, the simulated platform and the
// service, and fails when a test fails, or when an operation gets fewer tests than it has inputs. It knows the service
// by its commands, its API and its document only.
//
// What Specmatic cannot know comes from here: which ids exist (fixture.go), and the rules that a JSON Schema cannot say
// (narrow.yaml). The document itself is never changed for it.
//
//	go run ./test/contract -service bin/flowlane -specmatic specmatic.jar [-only 'RecordSet'] [-keep]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

type options struct {
	service, specmatic string
	// only picks operations by their operationId.
	only *regexp.Regexp
	// keep leaves the folder with the working copy, the logs and the reports.
	keep bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, w io.Writer) error {
	var o options
	flags := flag.NewFlagSet("contract", flag.ContinueOnError)
	flags.StringVar(&o.service, "service", "bin/flowlane", "the program of the service")
	flags.StringVar(&o.specmatic, "specmatic", "", "specmatic.jar")
	only := flags.String("only", "", "regular expression of the operations to test, by operationId")
	flags.BoolVar(&o.keep, "keep", false, "keep the folder with the logs and reports")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	if o.specmatic, err = filepath.Abs(o.specmatic); err != nil {
		return err
	}
	if _, err := os.Stat(o.specmatic); err != nil {
		return fmt.Errorf("-specmatic names no file: %w", err)
	}
	return run(ctx, o, w)
}

// run brings everything up, lets Specmatic test, and judges.
func run(ctx context.Context, o options, w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "flowlane-contract-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil || o.keep {
			fmt.Fprintln(w, "working copy, logs and reports:", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	doc, err := load(o.only)
	if err != nil {
		return err
	}
	s, err := start(ctx, o.service, dir)
	if err != nil {
		return err
	}
	defer s.close()
	a, err := newAdapter(ctx, doc, &world{service: s})
	if err != nil {
		return err
	}
	defer a.close()
	began := time.Now()
	failed := specmatic(ctx, o.specmatic, dir, doc, a.url, s.key)
	report, err := readReport(filepath.Join(dir, "junit"))
	if err != nil {
		return errors.Join(failed, err)
	}
	report.print(w, a)
	fmt.Fprintf(w, "%d tests of %d operations in %s\n", report.Tests, len(doc.operations),
		time.Since(began).Round(time.Second))
	return errors.Join(failed, report.judge(a), s.fault())
}
