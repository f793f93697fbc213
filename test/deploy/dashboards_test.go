package deploy_test

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/test/pgtest"
)

// dashboard is what this test knows of Grafana's JSON.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name string }
	}
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Datasource   struct{ Type, UID string }
			Expr, RawSQL string
		}
	}
}

func dashboards(t *testing.T) (out []dashboard) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, d)
	}
	return out
}

// elsewhere are panels for which this test has no fault, by title, and where their metric is tested.
var elsewhere = map[string]string{
	"How old answers of the replica are at most":                  "internal/app: TestReplica has a standby",
	"Tables, the ten largest":                                     "no table of this test has a mebibyte",
	"Records that wait for a call, by lane":                       "internal/app: TestMetrics_Work",
	"For how long the oldest waits, by lane":                      "internal/app: TestMetrics_Work",
	"Calls for records of which an attempt had failed, by action": "internal/app: TestMetrics_Work",
	"How often calls were left for later, by what keeps them":     "internal/app: TestMetrics_Work",
}

// shows runs each query for Prometheus over the time of the test: it must be one, and have a result.
func (d dashboard) shows(t *testing.T, p *prometheus) {
	t.Helper()
	now := time.Now()
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			if target.Expr == "" {
				continue
			}
			var data struct{ Result []json.RawMessage }
			said := p.ask(t, &data, "query_range", url.Values{
				"query": {strings.NewReplacer("$namespace", ".*", "$job", "flowlane", "$__rate_interval", "30s").Replace(target.Expr)},
				"start": {p.began.Format(time.RFC3339)}, "end": {now.Format(time.RFC3339)}, "step": {"1"},
			})
			if said != "" || len(data.Result) == 0 && elsewhere[panel.Title] == "" {
				t.Errorf("%s, %s: %s has no result %s", d.Title, panel.Title, target.Expr, said)
			}
		}
	}
}

// TestDashboards: ids are unique, panels lie beside each other, data sources are those that one chooses, and whoever
// may read the schema ops alone can run each query for Postgres.
func TestDashboards(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	uids := map[string]bool{}
	for _, d := range dashboards(t) {
		if uids[d.UID] || !strings.HasPrefix(d.UID, "flowlane-") {
			t.Errorf("%s: the uid %q is taken or not ours", d.Title, d.UID)
		}
		uids[d.UID] = true
		sources := map[string]bool{}
		for _, v := range d.Templating.List {
			sources["${"+v.Name+"}"] = true
		}
		taken := map[[2]int]string{}
		for _, panel := range d.Panels {
			at := panel.GridPos
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %q lies over %q, or outside", d.Title, panel.Title, other)
					}
					taken[[2]int{x, y}] = panel.Title
				}
			}
			for _, target := range panel.Targets {
				if !sources[target.Datasource.UID] || (target.Expr == "") == (target.RawSQL == "") {
					t.Errorf("%s, %s: no query, or a source that nobody chose", d.Title, panel.Title)
				}
				if target.RawSQL == "" {
					continue
				}
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE flowlane_ops"); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), target.RawSQL)
					return err
				})
				if err != nil {
					t.Errorf("%s, %s: %v", d.Title, panel.Title, err)
				}
			}
		}
	}
}
