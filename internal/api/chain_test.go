package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/trigger/event"
)

// budget is how many batches one cause may lead to in these tests.
const budget = 12

// limited sets the budget of the client's organization.
func (s *stack) limited() {
	s.t.Helper()
	_, err := db.New().OrgSetBudget(s.t.Context(), s.owner, db.OrgSetBudgetParams{ID: uuid.MustParse(s.orgID(s.Key)),
		StartBudget: budget})
	require.NoError(s.t, err)
}

// forking are tasks side by side.
func forking(n int, task string) string {
	tasks := make([]string, n)
	for i := range tasks {
		tasks[i] = fmt.Sprintf(`{"id":"t%d",%s}`, i, task)
	}
	return `[{"id":"s","tasks":[` + strings.Join(tasks, ",") + `]}]`
}

// settledChains waits until every event is decided and every batch is over.
func (s *stack) settledChains() {
	s.t.Helper()
	s.eventually(func() bool {
		return s.count("(SELECT FROM flow.event_delivery UNION ALL "+
			"SELECT FROM flow.batch_count WHERE completed_at IS NULL) open") == 0
	})
}

// TestChain_Events: a flow that starts itself five times over stops at the budget of its cause, and another cause has
// one of its own.
func TestChain_Events(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.limited()
	flow := s.define(forking(5, `"action_id":"core__flow__emit_event","params":{"name":"again"}`))
	id := s.subscribe(listening(flow, event.FlowEvent))
	for causes := 1; causes <= 2; causes++ {
		s.trigger(flow, oneRecord)
		s.settledChains()
		assert.Equal(t, causes*(budget+1), s.count("flow.batch"), "what was triggered, and what came of it")
		refused := s.count("flow.refused_start")
		assert.Equal(t, causes*(5*(budget+1)-budget), refused)
		assert.Len(t, s.pages("/flows/triggers?trigger_type=event", 50), causes*budget+refused)
		got := s.subscription(id, causes*budget, refused)
		assert.Contains(t, got["last_error"], "One cause has led to 12 batches by events and flows")
		assert.Contains(t, string(s.Do(http.MethodGet, "/flows/triggers?limit=500", nil).Want(http.StatusOK).Body),
			"which is the most that one may lead to in this organization")
	}
	assert.Equal(t, 2, s.count("flow.chain WHERE starts = $1", budget))
}

// TestChain_Listed: a chain that has more refused than anybody reads has them counted.
func TestChain_Listed(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.limited()
	flow := s.define(forking(20, `"action_id":"core__flow__emit_event","params":{"name":"again"}`))
	id := s.subscribe(listening(flow, event.FlowEvent))
	s.trigger(flow, oneRecord)
	s.settledChains()
	s.subscription(id, budget, 20*(budget+1)-budget)
	assert.Equal(t, 100, s.count("flow.refused_start"))
}

// TestChain_Flows: as with events, where tasks start flows; those that are too many fail and say why.
func TestChain_Flows(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.limited()
	leaf := s.define(transformSteps)
	flow := s.define(forking(5, fmt.Sprintf(`"action_id":"core__flow__start_flow","params":{"definition_id":%q}`,
		leaf)))
	batch := s.trigger(flow, `{"records":[{},{},{},{}]}`)
	s.settledChains()
	assert.Equal(t, budget+1, s.count("flow.batch"))
	assert.NotEqual(t, "completed", s.await(batch)["status"])
	results := s.Do(http.MethodGet, "/flows/batches/"+batch+"/results", nil).Want(http.StatusOK)
	assert.Contains(t, string(results.Body), "One cause has led to 12 batches by events and flows")
	s.await(s.trigger(flow, oneRecord))
	s.settledChains()
	assert.Equal(t, budget+1+6, s.count("flow.batch"), "another cause")
}

// TestChain_Alone: what nothing of the organization led to costs no row, nor does what an event at the head starts.
func TestChain_Alone(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	id := s.subscribe(listening(flow, event.BatchCompleted, `"filter":"{{ payload.trigger_type == \"api_call\" }}"`))
	for range 3 {
		s.await(s.trigger(flow, oneRecord))
	}
	s.subscription(id, 3, 0)
	assert.Zero(t, s.count("flow.chain"))
}
