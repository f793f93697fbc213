package api_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/retention"
)

const (
	// yearKeeps is how long everything is kept in TestYear, calls but for a week.
	yearKeeps = 60
	// yearStarts are how often a day flows of one record are started, by hand and by webhook each; yearRows are those
	// of a record set.
	yearStarts, yearRows = 15, 400
)

// yearStride is how many days go by at once; FLOWLANE_YEAR_STRIDE=1 lives through every one of them.
func yearStride(t *testing.T) (days int) {
	t.Helper()
	text := os.Getenv("FLOWLANE_YEAR_STRIDE")
	if text == "" {
		return 15
	}
	days, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.True(t, days >= 1 && days <= yearKeeps/2, "FLOWLANE_YEAR_STRIDE is the days that go by at once, up to %d",
		yearKeeps/2)
	return days
}

// aDayOfWork starts flows as they are every day, and waits for their end.
func (s *stack) aDayOfWork(flow string, h hook) {
	s.t.Helper()
	for range yearStarts {
		s.trigger(flow, `{"records":[{"id":"one"}]}`)
		s.send(h, s.unique(), `{"id":"two"}`).Want(http.StatusAccepted)
	}
	rows := append(rowsOf(yearRows), `{"id":"x","bad":"yes"}`)
	batch := s.await(s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rows))))
	require.EqualValues(s.t, "partially_failed", batch["status"])
	s.eventually(func() bool {
		return s.count("flow.batch_count WHERE completed_at IS NULL") == 0 &&
			s.count("flow.webhook_delivery WHERE next_at IS NOT NULL") == 0
	})
}

// bytes are what the tables of the service take, and the largest of them.
func (s *stack) bytes() (all int, largest string) {
	s.t.Helper()
	_, err := s.owner.Exec(s.t.Context(), "VACUUM")
	require.NoError(s.t, err)
	err = s.owner.QueryRow(s.t.Context(),
		`SELECT sum(bytes)::bigint, (array_agg(name || ' ' || bytes ORDER BY bytes DESC))[1] FROM (
		SELECT relname AS name, pg_total_relation_size(oid) AS bytes FROM pg_class WHERE relnamespace = 'flow'::regnamespace AND relkind = 'r') t`).Scan(&all, &largest)
	require.NoError(s.t, err)
	return all, largest
}

// TestYear: a year of everyday work takes no more room at its end than after the time for which its rows are kept,
// nothing is there that is older, and all that is younger is.
func TestYear(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true, func(c *app.Config) {
		c.Retention = retention.Installation{"batches": yearKeeps * day, "deliveries": yearKeeps * day,
			"audit_log": yearKeeps * day, "usage": yearKeeps * day}
	})
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide,
		Rules: []dialersim.Rule{{Kind: "equals", Field: "bad", Value: []byte(`"yes"`)}}})
	flow, stride := s.define(uploadSteps), yearStride(t)
	h := s.webhook(hookOf(flow, `"rate_limit":100000`))
	empty, _ := s.bytes()
	days, most, later := 0, 0, 0
	for ; days < 365; days += stride {
		s.aDayOfWork(flow, h)
		s.aDayLater(stride)
		all, largest := s.bytes()
		all -= empty
		t.Logf("day %d: %d KiB more than at first; the largest: %s", days+stride, all>>10, largest)
		if days < 2*yearKeeps {
			most = max(most, all)
		} else {
			later = max(later, all)
		}
	}
	assert.LessOrEqual(t, later, most+most/5, "bytes of the tables")
	for what, at := range map[string]string{
		"batch": "created_at", "batch_count": "completed_at", "webhook_delivery": "received_at",
		"audit_log": "created_at", "usage": "day",
		"rollup": "hour", "record_set": "created_at", "refused_start": "created_at",
	} {
		assert.Zero(t, s.count(fmt.Sprintf("flow.%s WHERE %s < flow.clock() - interval '%d days'", what, at, yearKeeps+
			stride)), what)
	}
	kept := (yearKeeps - 1) / stride // what is exactly so old may be there or not
	assert.GreaterOrEqual(t, s.count("flow.batch"), kept*(2*yearStarts+1), "batches that are young")
	assert.LessOrEqual(t, s.count("flow.batch"), (kept+2)*(2*yearStarts+1), "batches that are old")
	for _, what := range []string{"slice", "job", "fragment", "page", "record_chunk"} {
		perDay := s.count("flow."+what) / (kept + 2)
		assert.LessOrEqual(t, perDay, 2*yearStarts+yearRows, what)
	}
	assert.Zero(t, s.count("flow.erasure"))
}
