package api_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// Messages of several webhooks that come while a transaction is under way are written down together, and none fares
// otherwise than alone: not beside one whose flow cannot be started, whose template fails, that is switched off or
// full.
func TestReceiver_Group(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	archived := s.define(transformSteps)
	good := []hook{s.webhook(hookOf(flow)), s.webhook(hookOf(s.define(transformSteps))), s.webhook(hookOf(flow))}
	unstartable := s.webhook(hookOf(archived))
	broken := s.webhook(hookOf(flow, `"input_template":{"n":"{{ payload.a / 0 }}"}`))
	off := s.webhook(hookOf(flow))
	full := s.webhook(hookOf(flow, `"rate_limit":1`))
	s.send(full, s.unique(), `{"a":1}`).Want(http.StatusAccepted)
	for _, h := range append([]hook{unstartable, broken, off}, good...) { // so that their secrets are known
		s.send(h, s.unique(), `{"a":1}`).Want(http.StatusAccepted)
	}
	s.Do(http.MethodPatch, "/flows/definitions/"+archived, `{"status":"archived"}`).Want(http.StatusOK)
	s.Do(http.MethodPatch, "/flows/webhooks/"+off.id, `{"enabled":false}`).Want(http.StatusOK)

	tx, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	_, err = tx.Exec(t.Context(), "SELECT FROM flow.webhook WHERE id::text = $1 FOR UPDATE", dashed(good[0].id))
	require.NoError(t, err)
	var wait sync.WaitGroup
	send := func(h hook, id string) (out *apitest.Response) {
		out = new(apitest.Response)
		wait.Go(func() { *out = s.send(h, id, `{"a":2}`) })
		return out
	}
	answers := map[string]*apitest.Response{}
	for i, h := range good {
		answers[h.id] = send(h, s.unique())
		if i == 0 {
			s.eventually(func() bool {
				return s.count("pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%WebhookAccept%'") > 0
			})
		}
	}
	for _, h := range []hook{unstartable, broken, off, full} {
		answers[h.id] = send(h, s.unique())
	}
	require.NoError(t, tx.Rollback(t.Context()))
	wait.Wait()
	for _, h := range append([]hook{unstartable, broken}, good...) {
		answers[h.id].Want(http.StatusAccepted)
	}
	answers[off.id].Want(http.StatusNotFound)
	answers[full.id].Want(http.StatusTooManyRequests)
	for _, h := range good {
		for _, d := range s.settledDeliveries(h, 2) {
			assert.Equal(t, "dispatched", d.Status)
			assert.NotEmpty(t, d.BatchID)
		}
	}
	assert.Equal(t, "dead", s.settledDeliveries(broken, 2)[0].Status)
	assert.Equal(t, "dead", s.settledDeliveries(unstartable, 2)[0].Status)
	s.settledDeliveries(full, 1)
}
