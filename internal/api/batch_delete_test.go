package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// TestDeleteBatch: a batch that is over goes with its records, its results, its record set and what retried it, at once
// for everybody.
func TestDeleteBatch(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	bad := dialersim.Rule{Kind: "equals", Field: "bad", Value: []byte(`"yes"`)}
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{bad}})
	flow := s.define(uploadSteps)
	set := s.upload(append(rowsOf(1500), `{"id":"x","bad":"yes"}`))
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, set))
	s.await(batch)
	_, again := s.retry(batch, `{"job_statuses":["rejected"]}`)
	s.await(again)
	other := s.trigger(flow, oneRecord)
	s.await(other)

	refused := s.Do(http.MethodDelete, "/flows/batches/"+again, nil).Want(http.StatusConflict).JSON()
	assert.Equal(t, "The batch is a retry", refused["detail"])
	assert.Contains(t, refused["hint"], "DELETE /v1/flows/batches/"+batch)

	s.Do(http.MethodDelete, "/flows/batches/"+batch, nil).Want(http.StatusNoContent)
	for _, path := range []string{
		"/flows/batches/" + batch, "/flows/batches/" + again, "/flows/batches/" + batch + "/results", "/flows/jobs/" +
			batch + ".0",
		"/flows/executions/" + again + ".1500.1", "/data/record-sets/" + set, "/data/record-sets/" + set + "/records",
	} {
		s.Do(http.MethodGet, path, nil).Want(http.StatusNotFound)
	}
	s.Do(http.MethodDelete, "/flows/batches/"+batch, nil).Want(http.StatusNotFound)
	assert.EqualValues(t, 1, s.get("/flows/batches")["total"])
	assert.EqualValues(t, 1, s.get("/flows/jobs")["total"])
	assert.EqualValues(t, 0, s.get("/data/record-sets")["total"])
	require.NotEmpty(t, s.leftOf(batch, set), "the rows of a large batch go later")
	s.aDayLater(1)
	assert.Empty(t, s.leftOf(batch, set))
	assert.Equal(t, "completed", s.get("/flows/batches/" + other)["status"])
}

// TestDeleteBatch_Open: what is not over, or not decided, stays, and the answer says what to do.
func TestDeleteBatch_Open(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	refused := func(batch, detail, hint string) {
		t.Helper()
		answer := s.Do(http.MethodDelete, "/flows/batches/"+batch, nil).Want(http.StatusConflict).JSON()
		assert.Equal(t, detail, answer["detail"])
		assert.Contains(t, answer["hint"], hint)
	}
	waiting := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__delay","params":{"seconds":3600}}]}]`)
	waits := s.trigger(waiting, oneRecord)
	s.until(waits, func(b map[string]any) bool { return b["status"] == "running" })
	refused(waits, "The batch is running", "POST /v1/flows/batches/"+waits+"/cancel")

	s.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial", Count: 1})
	calls := s.define(`[{"id":"s","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED",
		"params":{"number":"+420111111111","campaign":"c"}}]}]`)
	lost := s.trigger(calls, oneRecord)
	s.until(lost, func(b map[string]any) bool { return counted(b)["unresolved"] == 1 })
	s.Do(http.MethodPost, "/flows/batches/"+lost+"/cancel", `{}`).Want(http.StatusOK)
	refused(lost, "The batch has records whose outcome is not known", "POST /v1/flows/batches/"+lost+"/resolve")
	s.resolve(lost, 0, `{"outcome":"accepted"}`)
	s.Do(http.MethodDelete, "/flows/batches/"+lost, nil).Want(http.StatusNoContent)

	s.Do(http.MethodPost, "/flows/batches/"+waits+"/cancel", `{}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/flows/batches/"+waits, nil).Want(http.StatusNoContent)
}

// TestDeleteBatch_Child: a batch whose results a task waits for stays until it has them, by hand and by age.
func TestDeleteBatch_Child(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	child := s.define(`[{"id":"d","tasks":[` + delayTask("d", `{"seconds":3600}`, "") + `]}]`)
	parent := s.trigger(s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"go","action_id":"core__flow__start_flow",
		"params":{"definition_id":%q,"input":{},"wait":true,"timeout_seconds":31536000}}]}]`, child)), oneRecord)
	s.waiting(parent, 1)
	s.settle(func() bool { return s.count("flow.wait WHERE child IS NOT NULL") == 1 })
	id := s.childOf(parent, 0)
	s.waiting(id, 1) // by the clock of before, too
	s.Do(http.MethodPost, "/flows/batches/"+parent+"/pause", `{}`).Want(http.StatusCreated)
	pgtest.MoveClock(t, s.owner, 2*time.Hour)
	s.await(id)

	refused := s.Do(http.MethodDelete, "/flows/batches/"+id, nil).Want(http.StatusConflict).JSON()
	assert.Equal(t, "A task waits for the results of the batch", refused["detail"])
	s.Do(http.MethodPut, "/account/retention", `{"batches":1}`).Want(http.StatusOK)
	s.aDayLater(3)
	assert.Equal(t, "completed", s.get("/flows/batches/" + id)["status"])
	s.Do(http.MethodPost, "/flows/batches/"+parent+"/resume", `{}`).Want(http.StatusOK)
	s.await(parent)
	assert.Equal(t, "completed", s.get("/flows/batches/" + parent)["status"])
	s.Do(http.MethodDelete, "/flows/batches/"+id, nil).Want(http.StatusNoContent)
}

// TestDeleteBatch_WorkLeft: work that was due for a batch that is gone ends, and is not tried again for ever.
func TestDeleteBatch_WorkLeft(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.due (kind, key, due_at, lease_seconds)
		VALUES ('slices', gen_random_uuid()::text, flow.clock(), 10)`)
	require.NoError(t, err)
	s.settle(func() bool { return s.count("flow.due WHERE kind = 'slices'") == 0 })
}
