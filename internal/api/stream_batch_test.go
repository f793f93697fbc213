package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

func streamOf(batch, query string) string { return "/flows/batches/" + batch + "/stream?" + query }

// scheduled starts a batch of some records that is not due.
func (s *stack) scheduled(records int) (batch string) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"records": make([]struct{}, records),
		"scheduled_at": time.Now().Add(time.Hour).UTC()})
	require.NoError(s.t, err)
	return s.trigger(s.define(transformSteps), string(body))
}

// told checks that an event tells what the batch is now, and returns its name and status.
func (s *stack) told(batch string, e serverEvent) string {
	s.t.Helper()
	require.NoError(s.t, apitest.CheckSchema("BatchProgress", []byte(e.data)), e.data)
	assert.Regexp(s.t, "^[0-9a-f]{16}$", e.id)
	b := s.Do(http.MethodGet, "/flows/batches/"+batch, nil).Want(http.StatusOK).JSON()
	for _, field := range []string{"status", "record_count", "job_counts", "progress_percent"} {
		assert.Equal(s.t, b[field], e.field(s.t, field), field)
	}
	assert.Equal(s.t, batch, e.field(s.t, "batch_id"))
	return e.name + " " + b["status"].(string)
}

func (s *eventSource) one() serverEvent {
	s.t.Helper()
	e, ok := s.next()
	require.True(s.t, ok, "the stream ended")
	return e
}

// TestStreamBatch_Changes: an event for where the batch stands first, one for each change, by whichever process, and
// the last one when it is over.
func TestStreamBatch_Changes(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	other := s.replica()
	batch := s.scheduled(3)
	token := "token=" + streamToken(s.Client, "")
	stream := openStreamAt(t, s.Client, streamOf(batch, token))
	first := stream.one()
	assert.Equal(t, "progress queued", s.told(batch, first))
	assert.Equal(t, "2000", stream.retry)

	other.Do(http.MethodPost, "/flows/batches/"+batch+"/pause", nil).Want(http.StatusCreated)
	paused := stream.one()
	assert.Equal(t, "progress paused", s.told(batch, paused))
	assert.NotEqual(t, first.id, paused.id)

	// Who has seen this state gets the next, at any process; who has seen another gets this one.
	for _, c := range []*apitest.Client{s.Client, other} {
		assert.Equal(t, paused, openStreamAt(t, c, streamOf(batch, token)).one(), "one state has one id")
		assert.Equal(t, paused, openStreamAt(t, c, streamOf(batch, token), "Last-Event-ID", first.id).one())
		assert.Equal(t, paused, openStreamAt(t, c, streamOf(batch, token+"&last_event_id="+paused.id), "Last-Event-ID",
			first.id).one())
	}
	resumed := openStreamAt(t, other, streamOf(batch, token), "Last-Event-ID", paused.id)
	again := openStreamAt(t, other, streamOf(batch, token+"&last_event_id="+paused.id))
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	for _, open := range []*eventSource{stream, resumed, again} {
		rest := open.all()
		require.Len(t, rest, 1)
		assert.Equal(t, "batch.closed cancelled", s.told(batch, rest[0]))
		assert.NotEqual(t, paused.id, rest[0].id)
	}
	s.eventually(func() bool { return s.app.Streams.Listeners() == 0 })

	late := openStreamAt(t, s.Client, streamOf(batch, token), "Last-Event-ID", paused.id).all()
	require.Len(t, late, 1)
	assert.Equal(t, "batch.closed cancelled", s.told(batch, late[0]))
	assert.Equal(t, late, openStreamAt(t, other, streamOf(batch, token)).all(), "of a batch that is over")
	assert.Empty(t, s.As("").Do(http.MethodGet, streamOf(batch, token+"&last_event_id="+late[0].id),
		nil).Want(http.StatusNoContent).Body)
	assert.Empty(t, s.As("").Do(http.MethodGet, streamOf(batch, token), nil, "Last-Event-ID",
		late[0].id).Want(http.StatusNoContent).Body)
}

// TestStreamBatch_Works follows records through their calls.
func TestStreamBatch_Works(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	held := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gate }))
	t.Cleanup(held.Close)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = []string{strings.TrimPrefix(held.URL, "http://")} })
	batch := s.trigger(s.define(`[{"id":"a","tasks":[{"id":"one","action_id":"core__http__request","params":{"url":"`+
		held.URL+`"}}]}]`), `{"records":[{"id":"a"},{"id":"b"}]}`)
	stream := openStreamAt(t, s.Client, streamOf(batch, "token="+streamToken(s.Client, "")))
	for e := stream.one(); e.field(t, "status") != "running"; e = stream.one() {
		assert.Equal(t, "progress", e.name)
	}
	close(gate)
	events := stream.all()
	for _, e := range events[:len(events)-1] {
		assert.Equal(t, "progress", e.name)
		require.NoError(t, apitest.CheckSchema("BatchProgress", []byte(e.data)), e.data)
	}
	last := events[len(events)-1]
	assert.Equal(t, "batch.closed completed", s.told(batch, last))
	assert.InDelta(t, 100, last.field(t, "progress_percent"), 0)
}

// TestStreamBatch_Refused goes through who may not open a stream, and with what.
func TestStreamBatch_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false, func(c *app.Config) { c.MaxStreams = 4 })
	batch := s.scheduled(1)
	token, narrow := streamToken(s.Client, ""), streamToken(s.Client, batch+".0.1")
	get := func(c *apitest.Client, batch, query string, header ...string) apitest.Response {
		return c.Do(http.MethodGet, streamOf(batch, query), nil, header...)
	}
	nobody := s.As("")
	for _, query := range []string{"", "token=", "token=x", "token=" + token + "x", "token=" + s.Key} {
		get(nobody, batch, query).Detail(http.StatusUnauthorized, "Authentication required")
		get(s.Client, batch, query).Detail(http.StatusUnauthorized, "Authentication required")
	}
	missing := get(nobody, "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11", "token="+token).Detail(http.StatusNotFound,
		"Batch not found")
	for _, c := range [][2]string{{batch, streamToken(s.other, "")}, {batch, narrow}, {"x", token},
		{batch + ".0.1", token}} {
		assert.Equal(t, missing.Alike(), get(nobody, c[0], "token="+c[1]).Detail(http.StatusNotFound,
			"Batch not found").Alike())
	}
	for _, bad := range []string{"1", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456789abcdeg"} {
		get(nobody, batch, "token="+token+"&last_event_id="+bad).Invalid("query.last_event_id value_error")
		get(nobody, batch, "token="+token+"&last_event_id=0123456789abcdef", "Last-Event-ID",
			bad).Invalid("header.last-event-id value_error")
	}

	limited := s.Do(http.MethodPost, "/account/api-keys", `{"name":"x","scopes":["executions:read"]}`).Want(
		http.StatusCreated).JSON()["key"].(string)
	get(nobody, batch, "token="+streamToken(s.As(limited), "")).Detail(http.StatusForbidden,
		"Scope batches:read required")

	// Streams of batches and of executions share their bounds, and a stream that is open outlives its token.
	one := openStreamAt(t, nobody, streamOf(batch, "token="+token))
	openStream(t, nobody, batch+".0.1", "token="+token)
	full := get(nobody, batch, "token="+token).Want(http.StatusServiceUnavailable)
	assert.Equal(t, "10", full.Header.Get("Retry-After"))
	pgtest.MoveClock(t, s.owner, account.StreamTokenLife)
	assert.Equal(t, "progress", one.one().name)

	// A process that stops ends them, and does not wait for their readers.
	s.stop()
	assert.Empty(t, one.all())
	require.NoError(t, one.lines.Err())
}
