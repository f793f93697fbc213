package api_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBatchTimeline: what calls carried is told by intervals that reach over all of them, of a shared call the records
// of the batch alone, and with them the pauses.
func TestBatchTimeline(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	batch, other := s.trigger(flow, "{}"), s.trigger(flow, "{}")
	path := "/flows/batches/" + batch + "/timeline"
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sent := func(of string, after time.Duration, records int, outcome, positions string, more ...string) (id string) {
		id = uuid.Must(uuid.NewV7()).String()
		_, err := s.owner.Exec(t.Context(), `
			INSERT INTO flow.exchange (org_id, id, domain, action_id, lane, attempt, records, batch_id, step_no, task_no, positions, more_batches, outcome, claimed_at, sent_at, detail)
			SELECT org_id, $1, $2, 'core__flow__transform', 'bulk', 1, $3, id, 0, 0, $4::int8multirange, nullif($5::uuid[], '{}'), $6, $7, $7, '' FROM flow.batch WHERE id = $8`,
			id, s.tenancy, records, positions, more, outcome, began.Add(after), of)
		require.NoError(t, err)
		return id
	}
	assert.Equal(t, []any{[]any{}, []any{}, true}, []any{s.get(path)["points"], s.get(path)["pauses"],
		s.get(path)["complete"]})
	sent(batch, 0, 10, "success", "{[0,10)}")
	sent(batch, 2*time.Second, 5, "refused", "{[10,15)}")
	sent(batch, 10*time.Minute, 9, "success", "{[15,18)}", other)
	shared := sent(other, 10*time.Minute, 7, "success", "{[0,3)}", batch)
	_, err := s.owner.Exec(t.Context(),
		`INSERT INTO flow.exchange_batch (batch_id, call_id, step_no, task_no, positions, failed) VALUES ($1, $2, 0, 0, '{[18,20),[22,24)}', false)`, batch, shared)
	require.NoError(t, err)
	s.openPause("/flows/batches/"+batch, `{"reason":"why"}`)
	s.openPause("/flows/batches/"+other, `{"reason":"of another"}`)
	got := s.get(path)
	assert.EqualValues(t, 15, got["interval_seconds"], "90 of them reach over ten minutes")
	assert.Equal(t, []any{
		map[string]any{"starts_at": "2026-03-01T12:00:00Z", "calls": 2., "records": 15., "failed": 5.},
		map[string]any{"starts_at": "2026-03-01T12:10:00Z", "calls": 2., "records": 7., "failed": 0.},
	}, got["points"])
	pauses := got["pauses"].([]any)
	require.Len(t, pauses, 1)
	assert.Equal(t, "why", pauses[0].(map[string]any)["reason"])
}
