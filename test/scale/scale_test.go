package main

import (
	"os"
	"strings"
	"testing"
)

// TestTable_Documented: docs/scale.md shows what comes out, and what it says of the load.
func TestTable_Documented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	table(&out, billion)
	if !strings.Contains(string(page), out.String()) {
		t.Errorf("docs/scale.md does not show what `make scale` prints:\n%s", out.String())
	}
}

// TestLive: what nobody asks for costs nothing, twice the load costs twice, and a load that no cell can take piles up.
func TestLive(t *testing.T) {
	t.Parallel()
	few := billion
	few.organizations, few.records = 1000, 1e6
	twice := few
	twice.records *= 2
	large := few
	large.records = 1e10
	s := sizes[0]
	one, two := live(few, s, 1), live(twice, s, 1)
	if ratio := two.kept / one.kept; ratio < 1.99 || ratio > 2.01 {
		t.Errorf("twice the records keep %v times as much", ratio)
	}
	if one.late > 1 || one.postgres <= 0 || one.postgres >= two.postgres {
		t.Errorf("a million records: %+v, two: %+v", one, two)
	}
	if got := live(large, s, 1); got.late < 3600 {
		t.Errorf("ten billion starts wait for %v s in one small cell", got.late)
	}
	if what, times := one.full(); what != "disk" || times < 1 {
		t.Errorf("%s is full first, with %v times as much", what, times)
	}
}
