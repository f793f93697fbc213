package dispatch_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider"
)

// setupAnswering is a bundle with a receiver that answers a call for each value of answer.
func setupAnswering(t *testing.T) (b *bundle, url string, answer chan struct{}) {
	t.Helper()
	answer = make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	return setupSender(t, dispatch.Options{}, asIs,
		provider.Options{AllowHosts: []string{strings.TrimPrefix(receiver.URL, "http://")}}), receiver.URL, answer
}

// Calls for whose settlement nobody waits are settled with those that come a little later.
func TestSettle_WaitsForOthers(t *testing.T) {
	t.Parallel()
	const calls = 8
	b, url, answer := setupAnswering(t)
	def := b.define(strings.ReplaceAll(post(url, ""), "POST", "PUT"))
	var ids []uuid.UUID
	for range calls {
		ids = append(ids, b.start(def, 1, plainRow))
	}
	b.eventually(fmt.Sprintf("SELECT count(*) = %d FROM flow.call WHERE state = 'intent'", calls))
	for range calls {
		answer <- struct{}{}
		<-time.After(15 * time.Millisecond) // longer than a settlement takes, and than answers wait in any case
	}
	for _, id := range ids {
		status, _ := b.await(id)
		assert.Equal(t, batch.BatchCompleted, status)
	}
	assert.Less(t, b.count("SELECT count(DISTINCT xmin::text) FROM flow.batch_count"), calls)
}

// Calls of one organization are settled with those of others. None waits for a batch of another one that is locked: as
// many organizations as there are transactions at once, and one more, have theirs locked.
func TestSettle_Together(t *testing.T) {
	t.Parallel()
	const locked = 5
	b, url, answer := setupAnswering(t)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	startOf := func(org string) (id string) {
		b.join(org)
		id = b.start(b.define(post(url, "")), 1, plainRow).String()
		b.eventually("SELECT EXISTS (SELECT FROM flow.call WHERE batch_id = '" + id + "' AND state = 'intent')")
		return id
	}
	var all []string
	for range locked {
		all = append(all, startOf("Locked"))
	}
	free := startOf("Free")
	_, err = tx.Exec(t.Context(), "SELECT FROM flow.batch_count WHERE batch_id = ANY($1) FOR UPDATE", all)
	require.NoError(t, err)
	close(answer)
	over := func(id string) string {
		return "SELECT EXISTS (SELECT FROM flow.batch_count WHERE batch_id = '" + id + "' AND status = '" +
			string(batch.BatchCompleted) + "')"
	}
	b.eventually(over(free))
	require.NoError(t, tx.Rollback(t.Context()))
	for _, id := range all {
		b.eventually(over(id))
	}
}
