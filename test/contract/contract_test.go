package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// The stage takes minutes; that an operation lacks its fixture, or an entry of narrow.yaml its place, shows here.
func TestLoad_KnowsEveryOperation(t *testing.T) {
	t.Parallel()
	d, err := load(regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(d.tree); strings.Contains(string(text), "{0,") {
		t.Error("a pattern of names is not at full length")
	}
	known := map[string]bool{}
	for _, op := range d.operations {
		known[op.id] = true
	}
	for id := range fixtures {
		if !known[id] {
			t.Errorf("fixtures has a row for %s, which is no operation", id)
		}
	}
	for id := range anyValue {
		if !known[id] {
			t.Errorf("anyValue has a row for %s, which is no operation", id)
		}
	}
	for id := range cleanups {
		if !known[id] {
			t.Errorf("cleanups has a row for %s, which is no operation", id)
		}
	}
}

func TestLoad_SplitsWhatHasManyParameters(t *testing.T) {
	t.Parallel()
	d, err := load(regexp.MustCompile("^(listAuditLog|listBatchResults)$"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for path, item := range object(d.tree["paths"]) {
		get := object(object(item)["get"])
		if get == nil {
			continue
		}
		if !strings.HasPrefix(path, "/as/") {
			t.Errorf("%s is still there", path)
		}
		for _, p := range parameters(get) {
			seen[get["operationId"].(string)+" "+p["name"].(string)]++
		}
	}
	for key, want := range map[string]int{
		"listAuditLog cursor": 1, "listAuditLog to": 1, "listBatchResults format": 6, "listBatchResults status": 3,
		"listBatchResults batch_id": 6,
	} {
		if seen[key] != want {
			t.Errorf("%s stands in %d parts, want %d", key, seen[key], want)
		}
	}
}

func TestDistinct(t *testing.T) {
	t.Parallel()
	for _, same := range []string{`{"id":1}`, `[]`, `x`, `{"steps":[{"id":"a","tasks":[{"id":"b"}]}],"n":1.50}`} {
		if got := string(distinct([]byte(same))); got != same {
			t.Errorf("%s became %s", same, got)
		}
	}
	var out struct {
		Steps []struct {
			ID    string
			Tasks []struct{ ID string }
		}
		N json.Number
	}
	if err := json.Unmarshal(distinct([]byte(
		`{"steps":[{"id":"a","tasks":[{"id":"b"}]},{"id":"c","tasks":[{"id":"b"}]}],"n":9007199254740993}`)),
		&out); err != nil {
		t.Fatal(err)
	}
	if out.Steps[0].Tasks[0].ID == out.Steps[1].Tasks[0].ID || out.N != "9007199254740993" {
		t.Errorf("%+v", out)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	op := &operation{id: "getX", inputs: 2}
	cases := []struct {
		name   string
		report report
		seen   tally
		want   string
	}{
		{"good", report{Tests: 3}, tally{good: 1, bad: 2}, ""},
		{"failures", report{Tests: 3, Failures: 1}, tally{good: 1, bad: 2}, "1 of 3 tests failed"},
		{"errors", report{Tests: 3, Errors: 2}, tally{good: 1, bad: 2}, "2 of 3 tests failed"},
		{"skipped", report{Tests: 3, Skipped: 1}, tally{good: 1, bad: 2}, "1 tests were skipped"},
		{"too few", report{Tests: 2}, tally{good: 1, bad: 1}, "getX got 2 tests, and must have 3"},
		{"none good", report{Tests: 3}, tally{bad: 3}, "getX got no good request"},
		{"not sent", report{Tests: 4}, tally{good: 1, bad: 2},
			"4 tests were reported, but the operations got 3 requests"},
		{"service failed", report{Tests: 3}, tally{good: 1, bad: 2, faults: 1},
			"getX answered 1 requests as failures of the service"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &adapter{doc: &document{operations: []*operation{op}}, seen: map[string]*tally{op.id: &c.seen}}
			got := ""
			if err := c.report.judge(a); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
