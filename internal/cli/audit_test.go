package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"flowlane/test/pgtest"
)

// TestAuditExport_Pages: however many rows there are, and however many of one time, each is printed once, oldest
// first; rows of other organizations and times are not.
func TestAuditExport_Pages(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	var org, other struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	output(t, env, &other, "org", "create", "--name", "Other")
	if _, err := pool.Exec(t.Context(),
		`INSERT INTO flow.audit_log (id, org_id, created_at, action, resource_type, resource_name, outcome, request_id)
		SELECT gen_random_uuid(), o::uuid, '2020-01-01'::timestamptz + make_interval(days => n / 700), 'a', 't', n::text, 'succeeded', ''
		FROM generate_series(0, 2799) n, unnest(ARRAY[$1, $2]) o`, org.ID, other.ID); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want int
	}{
		"all":           {nil, 2800},
		"from":          {[]string{"--from", "2020-01-02T00:00:00Z"}, 2100},
		"to":            {[]string{"--to", "2020-01-04T00:00:00Z"}, 2100},
		"from and to":   {[]string{"--from", "2020-01-02T00:00:00Z", "--to", "2020-01-04T00:00:00Z"}, 1400},
		"not a row":     {[]string{"--from", "2020-01-05T00:00:00Z"}, 0},
		"an empty time": {[]string{"--from", "2020-01-02T00:00:00Z", "--to", "2020-01-02T00:00:00Z"}, 0},
	} {
		text, err := program(t, env, append([]string{"audit", "export", "--org", org.ID}, c.args...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		seen := map[string]bool{}
		var last time.Time
		for line := range strings.Lines(string(text)) {
			var row struct {
				ResourceID string    `json:"resource_id"`
				CreatedAt  time.Time `json:"created_at"`
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil || seen[row.ResourceID] ||
				row.CreatedAt.Before(last) {
				t.Fatalf("%s: %s, after one of %s: %v", name, line, last, err)
			}
			seen[row.ResourceID], last = true, row.CreatedAt
		}
		if len(seen) != c.want {
			t.Errorf("%s: %d rows, want %d", name, len(seen), c.want)
		}
	}
}
