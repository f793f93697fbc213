package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// report is what Specmatic found: a JUnit report.
type report struct {
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Name    string   `xml:"name,attr"`
	Failure *problem `xml:"failure"`
	Error   *problem `xml:"error"`
}

type problem struct {
	Text string `xml:",chardata"`
}

// shown is how many failures are printed; the report has them all.
const shown = 20

func readReport(dir string) (*report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "TEST-*.xml"))
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("there are %d reports in %s, want 1", len(files), dir)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := xml.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return r, nil
}

// print shows how many requests each operation got, and what failed.
func (r *report) print(w io.Writer, a *adapter) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "good\tbad\tat least\t  operation\n")
	for _, op := range a.doc.operations {
		t := a.seen[op.id]
		fmt.Fprintf(table, "%d\t%d\t%d\t  %s\n", t.good, t.bad, op.floor(), op.id)
	}
	_ = table.Flush()
	left := shown
	for _, c := range r.Cases {
		p := c.problem()
		if p == nil || left == 0 {
			continue
		}
		left--
		_, name, _ := strings.Cut(c.Name, "contractTest() > ")
		fmt.Fprintf(w, "\nFAILED %s\n%s\n", name, strings.TrimSpace(p.Text))
	}
}

func (c testCase) problem() *problem {
	if c.Failure != nil {
		return c.Failure
	}
	return c.Error
}

// floor is how many tests an operation must have: one, and one for each of its inputs.
func (op *operation) floor() int { return 1 + op.inputs }

// judge says what is wrong: failures, tests that did not run, operations that were tested too little.
func (r *report) judge(a *adapter) error {
	errs := a.errs
	if n := r.Failures + r.Errors; n > 0 {
		errs = append(errs, fmt.Errorf("%d of %d tests failed", n, r.Tests))
	}
	if r.Skipped > 0 {
		errs = append(errs, fmt.Errorf("%d tests were skipped", r.Skipped))
	}
	sent := 0
	for _, op := range a.doc.operations {
		t := a.seen[op.id]
		sent += t.good + t.bad
		if t.good == 0 {
			errs = append(errs, fmt.Errorf("%s got no good request", op.id))
		}
		if t.good+t.bad < op.floor() {
			errs = append(errs, fmt.Errorf("%s got %d tests, and must have %d", op.id, t.good+t.bad, op.floor()))
		}
		if t.faults > 0 {
			errs = append(errs, fmt.Errorf("%s answered %d requests as failures of the service", op.id, t.faults))
		}
	}
	if sent != r.Tests {
		errs = append(errs, fmt.Errorf("%d tests were reported, but the operations got %d requests", r.Tests, sent))
	}
	return errors.Join(errs...)
}
