package api_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStream_Requeued follows both runs of a job that a person had run again: each has a log of its own.
func TestStream_Requeued(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(uploadSteps), `{"records":[{"id":"a"},{"id":"b"},{"id":"c"}]}`)
	s.doubt(batch, "unresolved")
	token := streamToken(s.Client, "")
	first, second := batch+".1.1", batch+".1.2"
	s.Do(http.MethodGet, "/flows/executions/"+second+"/stream?token="+token, nil).Detail(http.StatusNotFound,
		"Execution not found")

	listener := openStream(t, s.Client, first, "token="+token+"&last_event_id=1")
	before := listener.until("task.attempt")
	s.resolve(batch, 1, `{"outcome":"requeue","note":"lost by them"}`)
	before = append(before, listener.all()...)
	checkIDs(t, before)
	told := words(t, before)
	assert.Equal(t, []string{"job.status queued", "execution.status running", "step.started send running",
		"task.attempt send up 1 running"}, told[:4])
	assert.Equal(t, []string{"execution.status cancelled", "execution.closed cancelled"}, told[len(told)-2:])

	// The second run begins at its own beginning, and is followed from there and from its snapshot.
	whole := openStream(t, s.Client, second, "token="+token+"&last_event_id=1")
	begun, ok := whole.next()
	require.True(t, ok)
	assert.Equal(t, []string{"2", "job.status queued"}, []string{begun.id, begun.word(t)})
	assert.Equal(t, before[len(before)-1].field(t, "at"), begun.field(t, "at"), "one ends as the other begins")
	fresh := openStream(t, s.Client, second, "token="+token)
	snapshot, ok := fresh.next()
	require.True(t, ok)
	assert.Equal(t, []any{second, "running", begun.id}, []any{snapshot.field(t, "id"), snapshot.field(t, "status"),
		snapshot.id})
	s.Do(http.MethodGet, "/flows/executions/"+second+"/stream?token="+token, nil, "Last-Event-ID",
		before[len(before)-1].id).
		Invalid("header.last-event-id value_error")

	s.resolve(batch, 0, `{"outcome":"accepted"}`)
	s.resolve(batch, 2, `{"outcome":"accepted"}`)
	s.config.Workers = true
	s.serve() // a process that works, beside the one that answers
	events := append([]serverEvent{begun}, whole.all()...)
	checkIDs(t, events)
	assert.Equal(t, []string{"job.status queued", "execution.status running", "step.started send running",
		"task.attempt send up 2 running", "job.status started",
		"task.attempt send up 2 completed", "step.completed send completed", "job.status accepted",
		"execution.status completed", "execution.closed completed"}, words(t, events))
	assert.Equal(t, words(t, events[1:]), words(t, fresh.all()))

	// Resumed behind each of its events, and over after the last.
	for i, e := range events[:len(events)-1] {
		rest := openStream(t, s.Client, second, "token="+token, "Last-Event-ID", e.id).all()
		assert.Equal(t, words(t, events[i+1:]), words(t, rest), "behind event "+e.id)
	}
	last := events[len(events)-1].id
	no, err := strconv.Atoi(last)
	require.NoError(t, err)
	get := func(id, last string) int {
		return s.Do(http.MethodGet, "/flows/executions/"+id+"/stream?token="+token, nil, "Last-Event-ID", last).Status
	}
	assert.Equal(t, http.StatusNoContent, get(second, last))
	assert.Equal(t, http.StatusUnprocessableEntity, get(second, strconv.Itoa(no+1)))
	assert.Equal(t, http.StatusNoContent, get(first, before[len(before)-1].id))
	assert.Equal(t, before, replay(t, s, first, token), "the log of the first run is what it was")
}
