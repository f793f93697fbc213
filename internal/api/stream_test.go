package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// serverEvent is an event as a browser reads it.
type serverEvent struct {
	id, name, data string
}

func (e serverEvent) field(t *testing.T, name string) any {
	t.Helper()
	var data map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.data), &data))
	return data[name]
}

// word is an event in short: what it is, what it is about, and the status.
func (e serverEvent) word(t *testing.T) string {
	t.Helper()
	var data struct {
		Status string
		StepID string `json:"step_id"`
		TaskID string `json:"task_id"`
		Try    int    `json:"attempt"`
	}
	require.NoError(t, json.Unmarshal([]byte(e.data), &data))
	out := e.name
	for _, part := range []string{data.StepID, data.TaskID} {
		if part != "" {
			out += " " + part
		}
	}
	if data.Try > 0 {
		out += " " + strconv.Itoa(data.Try)
	}
	return out + " " + data.Status
}

// eventSource is an open stream.
type eventSource struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
	retry string
}

// openStream opens a stream; query and header as given. It fails the test unless the answer is 200.
func openStream(t *testing.T, c *apitest.Client, execution, query string, header ...string) *eventSource {
	t.Helper()
	return openStreamAt(t, c, "/flows/executions/"+execution+"/stream?"+query, header...)
}

func openStreamAt(t *testing.T, c *apitest.Client, path string, header ...string) *eventSource {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, c.URL+"/v1"+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.HTTP.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	assert.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	assert.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	s := &eventSource{t: t, body: res.Body, lines: bufio.NewScanner(res.Body)}
	s.lines.Buffer(nil, 1<<20)
	t.Cleanup(s.close)
	return s
}

func (s *eventSource) close() { _ = s.body.Close() }

// next reads an event as the standard for them says; false at the end of the stream.
func (s *eventSource) next() (e serverEvent, ok bool) {
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case s.lines.Text() == "" && e.name != "":
			return e, true
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		case name == "retry":
			s.retry = value
		}
	}
	return e, false
}

// all reads to the end.
func (s *eventSource) all() (events []serverEvent) {
	for {
		e, ok := s.next()
		if !ok {
			return events
		}
		events = append(events, e)
	}
}

func (s *eventSource) until(name string) (events []serverEvent) {
	s.t.Helper()
	for {
		e, ok := s.next()
		require.True(s.t, ok, "the stream ended before %s came: %v", name, events)
		if events = append(events, e); e.name == name {
			return events
		}
	}
}

func words(t *testing.T, events []serverEvent) (out []string) {
	t.Helper()
	for _, e := range events {
		out = append(out, e.word(t))
	}
	return out
}

// streamToken mints a token, for one execution unless that is empty.
func streamToken(c *apitest.Client, execution string) string {
	body := "{}"
	if execution != "" {
		body = fmt.Sprintf(`{"execution_id":%q}`, execution)
	}
	return c.Do(http.MethodPost, streamTokens, body).Want(http.StatusCreated).JSON()["token"].(string)
}

// TestStream_Life follows an execution from its start to its end: a change of a record that is tried again, and then a
// transform.
func TestStream_Life(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true, func(c *app.Config) { c.Dispatch = dispatch.Options{ReconcileMargin: 200 * time.Millisecond} })
	s.sim.AddFault(dialersim.Fault{Kind: "hang", Operation: "modify", Accept: true, MS: 700})
	definition := s.define(`[
		{"id":"change","tasks":[{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","retry":{"max_attempts":3,"initial_seconds":0.3},"params":{"list":"l","key":"{{ input.id }}","fields":{"a":1}}}]},
		{"id":"last","tasks":[{"id":"note","action_id":"core__flow__transform","params":{"value":"{{ input.id }}"}},
			{"id":"not","action_id":"core__flow__transform","when":"{{ input.id == 1 }}","params":{"value":1}}]}]`)
	batch := s.trigger(definition, "{\"input_data\":{\"id\":\n \"a\"}}")
	id := batch + ".0.1"
	token := streamToken(s.Client, id)
	stream := openStream(t, s.Client, id, "token="+token)
	events := stream.all()
	assert.Equal(t, "2000", stream.retry)
	assert.Equal(t, "execution.snapshot", events[0].name)
	assert.Equal(t, id, events[0].field(t, "id"))
	checkIDs(t, events)

	whole := replay(t, s, id, token)
	got := words(t, whole)
	assert.Equal(t, "execution.closed completed", got[len(got)-1])
	text := strings.Join(got, "\n")
	assert.Contains(t, text, "execution.status running\nstep.started change running\n"+
		"task.attempt change mod 1 running\njob.status started\n")
	assert.Contains(t, text, "\nstep.completed change completed\njob.status queued\n"+
		"step.started last running\ntask.attempt last note 1 completed\ntask.attempt last not skipped\n"+
		"step.completed last completed\njob.status completed\nexecution.status completed\nexecution.closed completed")
	// The first listener saw the end of the same log.
	assert.Equal(t, got[len(whole)-len(events)+1:], words(t, events[1:]))
	for i := range events[1:] {
		assert.Equal(t, whole[len(whole)-len(events)+1+i].id, events[1+i].id)
	}

	last := whole[len(whole)-1].id
	for _, header := range [][]string{{"Last-Event-ID", last}, nil} {
		query := "?token=" + token
		if header == nil {
			query += "&last_event_id=" + last
		}
		res := s.As("").Do(http.MethodGet, "/flows/executions/"+id+"/stream"+query, nil,
			header...).Want(http.StatusNoContent)
		assert.Empty(t, res.Body)
	}
	late := openStream(t, s.Client, id, "token="+token).all()
	require.Len(t, late, 2, "of an execution that is over: %v", late)
	assert.Equal(t, []string{"execution.snapshot", "execution.closed"}, []string{late[0].name, late[1].name})
	assert.Equal(t, "completed", late[0].field(t, "status"))
	assert.Equal(t, last, late[1].id)
}

// replay reads the whole log from behind its beginning.
func replay(t *testing.T, s *stack, id, token string) []serverEvent {
	t.Helper()
	events := openStream(t, s.Client, id, "token="+token+"&last_event_id=1").all()
	checkIDs(t, events)
	return events
}

func checkIDs(t *testing.T, events []serverEvent) {
	t.Helper()
	before := 0
	for _, e := range events {
		no, err := strconv.Atoi(e.id)
		require.NoError(t, err)
		require.Greater(t, no, before, "ids: %v", events)
		before = no
		if e.name != "execution.snapshot" {
			require.NoError(t, apitest.CheckSchema("ExecutionEvent", []byte(e.data)), e.data)
		}
	}
}

// TestStream_Resume cuts the stream at every event, goes on at the other of two processes, and compares what came with
// what a listener got who was never cut off.
func TestStream_Resume(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	held := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gate }))
	t.Cleanup(held.Close)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = []string{strings.TrimPrefix(held.URL, "http://")} })
	other := s.replica()
	const records = 8
	batch := s.trigger(s.define(`[{"id":"a","tasks":[
			{"id":"one","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"l","key":"{{ input.id }}","fields":{"a":1}}},
			{"id":"two","action_id":"core__http__request","params":{"url":"`+held.URL+`"}}]},
		{"id":"b","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","key_field":"id","row":"{{ input }}"}}]}]`),
		fmt.Sprintf(`{"records":[%s]}`, strings.Join(rowsOf(records), ",")))
	token := streamToken(s.Client, "")
	whole, parts := make([][]serverEvent, records), make([][]serverEvent, records)
	var opened, done sync.WaitGroup
	for position := range records {
		id := fmt.Sprintf("%s.%d.1", batch, position)
		opened.Add(2)
		done.Go(func() {
			stream := openStream(t, s.Client, id, "token="+token+"&last_event_id=1")
			opened.Done()
			whole[position] = stream.all()
		})
		done.Go(func() {
			parts[position] = piecewise(t, []*apitest.Client{other, s.Client}, id, token, 1+position%3, opened.Done)
		})
	}
	opened.Wait()
	close(gate)
	done.Wait()
	assert.Equal(t, "completed", s.await(batch)["status"])
	for position := range records {
		checkIDs(t, whole[position])
		require.Len(t, whole[position], len(parts[position]), "events of record %d", position)
		assert.Greater(t, len(whole[position]), 15)
		for i, e := range whole[position] {
			assert.Equal(t, e.id, parts[position][i].id)
			assert.Equal(t, e.word(t), parts[position][i].word(t))
		}
	}
}

// piecewise reads n events of a stream at a time, from one client after the other, to the end; opened is called when
// the first stream is open.
func piecewise(t *testing.T, clients []*apitest.Client, id, token string, n int, opened func()) (events []serverEvent) {
	t.Helper()
	last := "1"
	for i := 0; ; i++ {
		stream := openStream(t, clients[i%len(clients)], id, "token="+token, "Last-Event-ID", last)
		if i == 0 {
			opened()
		}
		for range n {
			e, ok := stream.next()
			require.True(t, ok)
			if events, last = append(events, e), e.id; e.name == "execution.closed" {
				return events
			}
		}
		stream.close()
	}
}

// TestStream_Cancelled: what was never sent ends without having begun.
func TestStream_Cancelled(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	batch := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"input_data":{"id":"a"},"scheduled_at":%q}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	id := batch + ".0.1"
	stream := openStream(t, s.Client, id, "token="+streamToken(s.Client, id))
	first, ok := stream.next()
	require.True(t, ok)
	assert.Equal(t, "pending", first.field(t, "status"))
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	assert.Equal(t, []string{"job.status unprocessed", "execution.status cancelled", "execution.closed cancelled"},
		words(t, stream.all()))
}

// TestStream_Failed tells why.
func TestStream_Failed(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	batch := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"no","action_id":"core__flow__fail","params":{"message":"not today"}}]}]`), oneRecord)
	id := batch + ".0.1"
	s.await(batch)
	events := replay(t, s, id, streamToken(s.Client, ""))
	assert.Equal(t, []string{"job.status queued", "execution.status running", "step.started s running",
		"task.attempt s no 1 failed", "step.failed s failed",
		"job.status failed", "execution.status failed", "execution.closed failed"}, words(t, events))
	for _, i := range []int{3, 4, 5, 6} {
		why, _ := events[i].field(t, "error").(map[string]any)
		assert.Equal(t, "not today", why["message"], events[i])
	}
}

const oneRecord = `{"input_data":{"n":1}}`

// TestStream_Refused goes through who may not open a stream, and with what.
func TestStream_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	definition := s.define(transformSteps)
	id, second := s.trigger(definition, oneRecord)+".0.1", s.trigger(definition, oneRecord)+".0.1"
	token, narrow := streamToken(s.Client, ""), streamToken(s.Client, id)
	get := func(c *apitest.Client, execution, query string, header ...string) apitest.Response {
		return c.Do(http.MethodGet, "/flows/executions/"+execution+"/stream"+query, nil, header...)
	}
	nobody := s.As("")
	for _, query := range []string{"", "?token=", "?token=x", "?token=" + token + "x", "?token=%00", "?token=" + s.Key,
		"?tokens=" + token} {
		get(nobody, id, query).Detail(http.StatusUnauthorized, "Authentication required")
		get(s.Client, id, query).Detail(http.StatusUnauthorized, "Authentication required")
	}
	bearer := s.As("")
	bearer.Token = s.issuer.Token(s.orgID(s.Key), nil)
	get(bearer, id, "").Detail(http.StatusUnauthorized, "Authentication required")

	missing := get(nobody, "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.0.1", "?token="+token).Detail(http.StatusNotFound,
		"Execution not found")
	for execution, query := range map[string]string{
		id: "?token=" + streamToken(s.other, ""), second: "?token=" + narrow, id[:len(id)-1] + "2": "?token=" + token,
		"x": "?token=" + token,
	} {
		assert.Equal(t, missing.Alike(), get(nobody, execution, query).Detail(http.StatusNotFound,
			"Execution not found").Alike())
	}
	for _, bad := range []string{"0", "-1", "x", "1.5", "01", "3", "99", "9999999999999999999"} {
		get(nobody, id, "?token="+token+"&last_event_id="+bad).Invalid("query.last_event_id value_error")
		get(nobody, id, "?token="+token, "Last-Event-ID", bad).Invalid("header.last-event-id value_error")
		get(nobody, id, "?token="+token+"&last_event_id=1", "Last-Event-ID",
			bad).Invalid("header.last-event-id value_error")
	}
	assert.NotContains(t, string(get(nobody, id, "?token="+token+"&last_event_id=%00").Want(
		http.StatusUnprocessableEntity).Body), token)

	// What ends a token ends it here too; a stream that is open goes on.
	stream := openStream(t, nobody, id, "token="+narrow)
	pgtest.MoveClock(t, s.owner, account.StreamTokenLife)
	s.eventually(func() bool {
		res, err := nobody.HTTP.Get(nobody.URL + "/v1/flows/executions/" + second + "/stream?token=" + token)
		require.NoError(t, err)
		_ = res.Body.Close()
		return res.StatusCode == http.StatusUnauthorized
	})
	e, ok := stream.next()
	assert.True(t, ok)
	assert.Equal(t, "execution.snapshot", e.name)
}

// TestStream_Snapshot: a stream begins with the execution as it is read, its key and its large outputs included.
func TestStream_Snapshot(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.made("/flows/definitions", fmt.Sprintf(`{"name":"f","status":"active","key":"{{ input.id }}","steps":[{"id":"s",
		"tasks":[{"id":"large","action_id":"core__flow__transform","params":{"value":{"text":%q}}},
			{"id":"small","action_id":"core__flow__transform","params":{"value":{"text":"{{ input.id }}"}}}]}]}`,
		strings.Repeat("0123456789", 2<<10)))
	batch := s.trigger(flow, `{"input_data":{"id":"ann"}}`)
	s.await(batch)
	whole := s.get("/flows/executions/" + batch + ".0.1")
	assert.Equal(t, "ann", whole["key"])
	e, ok := openStream(t, s.Client, batch+".0.1", "token="+streamToken(s.Client, "")).next()
	require.True(t, ok)
	assert.Equal(t, "execution.snapshot", e.name)
	var snapshot map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.data), &snapshot))
	assert.Equal(t, whole, snapshot)
	assert.Contains(t, e.data, strings.Repeat("0123456789", 2<<10))
}

func (s *stack) eventually(done func() bool) {
	s.t.Helper()
	assert.Eventually(s.t, done, waitLimit, 20*time.Millisecond)
}

// TestStream_Full: beyond what a process takes, and what it takes of one organization, it says when to come back.
func TestStream_Full(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false, func(c *app.Config) { c.MaxStreams = 2 })
	id := s.trigger(s.define(transformSteps), oneRecord) + ".0.1"
	token := streamToken(s.Client, "")
	stream := openStream(t, s.Client, id, "token="+token)
	refused := s.As("").Do(http.MethodGet, "/flows/executions/"+id+"/stream?token="+token,
		nil).Want(http.StatusServiceUnavailable)
	assert.Equal(t, "10", refused.Header.Get("Retry-After"))
	assert.Equal(t, 1, s.app.Streams.Listeners(), "one organization gets half of the places")
	stream.close()
	s.eventually(func() bool { return s.app.Streams.Listeners() == 0 })
	openStream(t, s.Client, id, "token="+token)
}

// TestStream_Stop: a process that ends ends its streams, and does not wait for their readers.
func TestStream_Stop(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := serveStack(t, false, func(c *app.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	id := s.trigger(s.define(transformSteps), oneRecord) + ".0.1"
	token := streamToken(s.Client, "")
	stream := openStream(t, s.Client, id, "token="+token)
	stream.until("execution.snapshot")
	s.stop()
	assert.Empty(t, stream.all())
	require.NoError(t, stream.lines.Err(), "it was cut off: the process waited for its reader first")
	assert.Contains(t, log.String(), "/stream", "requests are logged")
	assert.NotContains(t, log.String(), token)
	assert.NotContains(t, log.String(), "stream_")
}

// logBuffer can be written to by many.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
