package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/pgtest"
)

// A start that fails is tried again as dispatch_retry says, and can be replayed when it is dead.
func TestReceiver_Retry(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	status := func(status string) {
		s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"`+status+`"}`).Want(http.StatusOK)
	}
	h := s.webhook(hookOf(flow,
		`"dispatch_retry":{"max_attempts":3,"backoff":{"initial_seconds":600,"factor":2,"max_seconds":900}}`))
	status("archived")
	large := `{"text":"` + strings.Repeat("x", 4<<10) + `"}` // which is packed
	id := s.send(h, "m", large).Want(http.StatusAccepted).JSON()["delivery_id"].(string)
	path := "/flows/webhooks/" + h.id + "/deliveries/" + id + "/replay"
	failed := func(attempts int, status string) {
		t.Helper()
		s.eventually(func() bool {
			return s.count("flow.webhook_delivery WHERE attempts = $1 AND status = $2", attempts, status) == 1
		})
		d := s.deliveries(h, "")[0]
		assert.Equal(t, deliveryRow{ID: id, MessageID: "m", Status: status, ContentType: "application/json",
			SizeBytes: len(large), Attempts: attempts, LastError: "Definition is not active"}, d)
	}
	pause := func() (seconds int) {
		s.scan("SELECT extract(epoch FROM next_at - flow.clock())::int FROM flow.webhook_delivery", &seconds)
		return seconds
	}
	failed(1, "failed")
	assert.InDelta(t, 600, pause(), 60)
	pgtest.MoveClock(t, s.owner, 11*time.Minute)
	failed(2, "failed")
	assert.InDelta(t, 900, pause(), 60, "no longer than max_seconds")
	pgtest.MoveClock(t, s.owner, 16*time.Minute)
	failed(3, "dead")

	assert.Equal(t, "accepted", s.Do(http.MethodPost, path, nil).Want(http.StatusOK).JSON()["status"])
	failed(1, "failed")
	status("active")
	s.Do(http.MethodPost, path, nil).Want(http.StatusOK)
	d := s.settledDeliveries(h, 1)[0]
	assert.Equal(t, []any{"dispatched", 1, ""}, []any{d.Status, d.Attempts, d.LastError})
	assert.NotEqual(t, id, d.BatchID, "ids order batches by their start, which is late")
	batch := s.await(d.BatchID)
	assert.Equal(t, []any{"completed", map[string]any{"webhook_id": h.id, "delivery_id": id}},
		[]any{batch["status"], batch["metadata"]})
	assert.Equal(t, large, s.record(d.BatchID))
	s.Do(http.MethodPost, path, nil).Detail(http.StatusConflict, "Delivery already started a batch")
	s.Do(http.MethodPost, strings.Replace(path, id, altered(id), 1), nil).Detail(http.StatusNotFound,
		"Delivery not found")

	// Without a policy there is one attempt; a template that has no value for a payload fails like any start.
	once := s.webhook(hookOf(flow, `"input_template":{"n":"{{ payload.n + 1 }}"}`))
	s.send(once, "bad", `{"n":"x"}`).Want(http.StatusAccepted)
	s.send(once, "good", `{"n":1}`).Want(http.StatusAccepted)
	rows := s.settledDeliveries(once, 2)
	assert.Equal(t, []string{"dispatched", "dead"}, []string{rows[0].Status, rows[1].Status})
	assert.Contains(t, rows[1].LastError, "input_template: {{ payload.n + 1 }}")
	assert.Equal(t, `{"n":2}`, s.record(rows[0].BatchID))
}

// TestReceiver_Turns: webhooks wait as those of their organization for their batches to be started, so that one with
// many keeps no other waiting.
func TestReceiver_Turns(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	one, other, silent := s.webhook(hookOf(flow)), s.webhook(hookOf(flow)), s.webhook(hookOf(flow))
	for _, h := range []hook{one, other} {
		s.send(h, s.unique(), `{}`).Want(http.StatusAccepted)
	}
	group := func(h hook) string { return s.app.Webhooks.Group(dashed(h.id)) }
	var org string
	s.scan("SELECT org_id::text FROM flow.webhook WHERE id::text = $1", &org, dashed(one.id))
	assert.Equal(t, org, group(one))
	assert.Equal(t, group(one), group(other))
	assert.Equal(t, dashed(silent.id), group(silent), "nothing is known of it yet")
	assert.Equal(t, "x", s.app.Webhooks.Group("x"))
}

// Old deliveries go, but for those that still wait.
func TestReceiver_Housekeeping(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	h := s.webhook(hookOf(flow))
	gone := s.webhook(hookOf(flow))
	for _, w := range []hook{h, gone} {
		s.send(w, "a", "{}").Want(http.StatusAccepted)
		s.settledDeliveries(w, 1)
	}
	s.Do(http.MethodDelete, "/flows/webhooks/"+gone.id, nil).Want(http.StatusNoContent)
	_, err := s.owner.Exec(t.Context(),
		`UPDATE flow.webhook_delivery SET received_at = received_at - interval '91 days';
		UPDATE flow.webhook SET deleted_at = deleted_at - interval '91 days'`)
	require.NoError(t, err)
	s.send(h, "b", "{}").Want(http.StatusAccepted)
	s.settle(func() bool { return s.count("flow.webhook_delivery WHERE next_at IS NULL") == 3 })
	pgtest.MoveClock(t, s.owner, 2*time.Hour)
	s.eventually(func() bool {
		return s.count("flow.webhook_delivery WHERE received_at < flow.clock() - interval '90 days'") == 0 &&
			s.count("flow.webhook") == 1
	})
	page := s.get("/flows/webhooks/" + h.id + "/deliveries")
	assert.Len(t, page["items"], 1)
	assert.InDelta(t, 1, page["total"], 0)
}

// A batch that has the id of its delivery keeps the metadata that it does not store: for expressions, and for retries.
func TestReceiver_RetriedBatch(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	h := s.webhook(hookOf(s.define(`[{"id":"s","tasks":[{"id":"no","action_id":"core__flow__fail",
		"params":{"message":"{{ metadata.webhook_id }} {{ metadata.delivery_id }}"}}]}]`)))
	id := s.send(h, "m", "{}").Want(http.StatusAccepted).JSON()["delivery_id"].(string)
	require.Equal(t, id, s.settledDeliveries(h, 1)[0].BatchID)
	s.await(id)
	retry := s.Do(http.MethodPost, "/flows/batches/"+id+"/retry", nil).Want(http.StatusOK).JSON()["batch_id"].(string)
	for _, batch := range []string{id, retry} {
		assert.Equal(t, map[string]any{"webhook_id": h.id, "delivery_id": id}, s.await(batch)["metadata"])
		job := s.get("/flows/jobs/" + batch + ".0")
		assert.Equal(t, h.id+" "+id, job["error"].(map[string]any)["message"])
	}
}
