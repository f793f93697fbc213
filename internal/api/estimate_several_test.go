package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestEstimate_Several: what an action takes that spends several budgets is told of the one that binds, and never done before any of them
// lets it.
func TestEstimate_Several(t *testing.T) {
	t.Parallel()
	const two = "windows: {60: 10}}\n      all: {label: All, default_lane: interactive, windows: {86400: 100}"
	text := strings.Replace(strings.ReplaceAll(mailer, "$BUCKET", two), "buckets: [send]", "buckets: [all, send]", 1)
	s, _, domain := serveMailer(t, false, text, http.NotFound)
	ask := func(more string, records int) object {
		body := fmt.Sprintf(`{"action_id":"mailer__api__send","record_count":%d%s}`, records, more)
		return s.Do(http.MethodPost, domain+"/estimate", body).Want(http.StatusOK).JSON()
	}
	eta := func(e object) any { return e["completion"].(object)["eta_seconds"] }

	minutes := ask("", 50)
	assert.Equal(t, []any{"send", 50.0, nil}, []any{minutes["bucket"], minutes["estimated_calls"], minutes["day_cap"]})
	assert.Greater(t, eta(minutes), 180.0, "10 a minute")
	assert.Less(t, eta(minutes), 3600.0)

	day := ask("", 150)
	assert.Equal(t, []any{"all", true, 150.0}, []any{day["bucket"], day["spills_past_day_cap"], day["pct_of_remaining_day"]})
	assert.Contains(t, day["warning"], "150 calls")
	assert.Greater(t, eta(day), eta(minutes))

	named := ask(`,"bucket":"all"`, 50)
	assert.Equal(t, []any{"all", false, 50.0}, []any{named["bucket"], named["spills_past_day_cap"], named["pct_of_remaining_day"]})
	assert.Greater(t, eta(named), 180.0, "the other budget makes it wait")
	assert.Equal(t, "empty", ask("", 0)["completion"].(object)["binding_source"])

	s.Do(http.MethodPost, domain+"/estimate", `{"action_id":"mailer__api__send","bucket":"nothing","record_count":1}`).
		Want(http.StatusUnprocessableEntity)
}
