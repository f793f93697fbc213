package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *stack) lane(name string) map[string]any {
	s.t.Helper()
	return s.get(s.domain() + "/lanes")["lanes"].(map[string]any)[name].(map[string]any)
}

func TestLane_Set(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for name, weight := range map[string]float64{"interactive": 50, "compliance": 30, "bulk": 15, "backfill": 5} {
		assert.Equal(t, map[string]any{"lane": name, "weight": weight, "max_concurrent_calls": nil, "updated_at": nil},
			s.lane(name))
	}
	set := s.Do("PUT", s.domain()+"/lanes/bulk", `{"weight":40,"max_concurrent_calls":3}`).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{"bulk", 40.0, 3.0}, []any{set["lane"], set["weight"], set["max_concurrent_calls"]})
	assert.Equal(t, set, s.lane("bulk"))
	assert.Equal(t, 50.0, s.lane("interactive")["weight"])
	s.Do("PUT", s.domain()+"/lanes/bulk", set).Want(http.StatusOK)

	other := *s
	other.Client = s.As(s.tenant("Other"))
	other.identify("acme")
	assert.Equal(t, 15.0, other.lane("bulk")["weight"], "another organization's lane of the same account")
	s.Do("PUT", s.domain()+"/lanes/bulk", `{"weight":1}`).Want(http.StatusOK)
	assert.Nil(t, s.lane("bulk")["max_concurrent_calls"])
}

func TestLane_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.domain() + "/lanes/"
	s.Do("PUT", path+"bulk", `{"weight":0,"max_concurrent_calls":0}`).Invalid(
		"body.max_concurrent_calls greater_than_equal", "body.weight greater_than_equal")
	s.Do("PUT", path+"bulk", `{"weight":101,"max_concurrent_calls":101}`).Invalid(
		"body.max_concurrent_calls less_than_equal", "body.weight less_than_equal")
	s.Do("PUT", path+"bulk", `{"max_concurrent_calls":1}`).Invalid("body.weight missing")
	s.Do("PUT", path+"slow", `{"weight":1}`).Detail(http.StatusNotFound, "Lane not found")
	s.Do("PUT", "/platforms/dialer/domains/nobody/lanes/bulk", `{"weight":1}`).Detail(http.StatusNotFound,
		"Domain not found")
}

// Lanes that were filled while everything was held share the calls by their weights from the first call on. In what
// order calls arrive that are under way together is the network's matter: it is that of the claims which counts.
func TestLane_WeightsAfterHold(t *testing.T) {
	t.Parallel()
	const each = 600
	s := serveStack(t, true)
	s.openPause("/admin/dispatch", `{}`)
	var batches []string
	for _, lane := range []string{"interactive", "backfill"} {
		flow := s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"dialer__api__modify","credential_id":"CRED",
			"params":{"list":%q,"key":"{{ input.id }}","fields":{"n":"{{ input.n }}"}}}]}]`, lane))
		batches = append(batches, s.trigger(flow, fmt.Sprintf(`{"lane":%q,"records":[%s]}`, lane,
			strings.Join(rowsOf(each), ","))))
	}
	s.Do(http.MethodPost, s.domainPath()+"/refresh-limits", nil).Want(http.StatusOK)
	s.resumed("/admin/dispatch/resume")
	for _, id := range batches {
		assert.Equal(t, map[string]int{"completed": each}, counted(s.await(id)))
	}
	rows, err := s.reader().Query(t.Context(),
		`SELECT count(*) AS calls, count(*) FILTER (WHERE lane = 'backfill') AS light
		FROM flow.call WHERE records > 0 GROUP BY claimed_at ORDER BY claimed_at`)
	require.NoError(t, err)
	type claim struct{ Calls, Light int }
	claims, err := pgx.CollectRows(rows, pgx.RowToStructByName[claim])
	require.NoError(t, err)
	var so claim
	for _, c := range claims {
		if so.Calls, so.Light = so.Calls+c.Calls, so.Light+c.Light; so.Calls <= each {
			assert.InDelta(t, float64(so.Calls)*5/55, so.Light, 3, "backfill among the first %d calls", so.Calls)
		}
	}
	assert.Equal(t, claim{2 * each, each}, so)
	assert.Less(t, claims[0].Calls, each, "a claim that could be compared")
}
