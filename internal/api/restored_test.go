package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
	"flowlane/test/pgtest"
)

// restored has the database be one that a restore left, which lost all commits of a time up to now, and starts the
// process again.
func (s *stack) restored(lost time.Duration) {
	s.t.Helper()
	s.stop()
	since := s.clock().Add(-lost)
	require.NoError(s.t, pg.Confirm(s.t.Context(), s.owner, &since))
	s.restart(true)
}

// inbox counts the paths of POST requests, and answers the first one of those with an r that it should be tried again.
type inbox struct {
	*httptest.Server
	mu    sync.Mutex
	paths map[string]int
}

func newInbox(t *testing.T) (*inbox, func(*app.Config)) {
	t.Helper()
	in := &inbox{paths: map[string]int{}}
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.paths[r.URL.Path]++; strings.HasPrefix(r.URL.Path, "/r") && in.paths[r.URL.Path] == 1 {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	t.Cleanup(in.Close)
	return in, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(in.URL, "http://")) }
}

func (in *inbox) got(path string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.paths[path]
}

// post is a step that posts to a path, with more fields of its task.
func (in *inbox) post(path, more string) string {
	return fmt.Sprintf(`{"id":"post","tasks":[{"id":"t","action_id":"core__http__request"%s,"params":{"method":"POST","url":%q,"outcome":{"retry":[409]}}}]}`,
		more, in.URL+path)
}

// TestRestored_Waits: what waited for a time, in its flow or for its next attempt, was not sent in the time that a
// restore lost, if that time is behind it; else it may have been.
func TestRestored_Waits(t *testing.T) {
	t.Parallel()
	in, reach := newInbox(t)
	s := serveStack(t, true, reach)
	delay := func(seconds int) string {
		return fmt.Sprintf(`{"id":"d","tasks":[{"id":"d","action_id":"core__flow__delay","params":{"seconds":%d}}]}`,
			seconds)
	}
	retry := func(seconds int) string {
		return fmt.Sprintf(`,"retry":{"max_attempts":2,"initial_seconds":%d,"max_seconds":%d}`, seconds, seconds)
	}
	transform := `{"id":"n","tasks":[{"id":"n","action_id":"core__flow__transform","params":{"value":1}}]}`
	start := func(steps ...string) string {
		return s.trigger(s.define("["+strings.Join(steps, ",")+"]"), `{"records":[{},{}]}`)
	}
	longWait, shortWait := start(delay(3600), transform, in.post("/d-long", "")), start(delay(60), transform,
		in.post("/d-short", ""))
	longRetry, shortRetry := start(in.post("/r-long", retry(3600))), start(in.post("/r-short", retry(60)))
	s.eventually(func() bool {
		return s.count("flow.wait") == 2 && s.count("flow.part WHERE call_id IS NULL AND attempt = 2") == 2 &&
			in.got("/r-long")+in.got("/r-short") == 4
	})
	s.stop()
	pgtest.MoveClock(t, s.owner, 10*time.Minute)
	s.restored(11 * time.Minute)
	for _, batch := range []string{shortWait, shortRetry} {
		s.until(batch, func(b map[string]any) bool {
			return counted(b)["unresolved"] >= 1 &&
				counted(b)["queued"] == 0
		})
	}
	assert.Equal(t, []int{0, 2}, []int{in.got("/d-short"), in.got("/r-short")})
	later := start(delay(1200), in.post("/d-later", ""))
	s.eventually(func() bool { return s.count("flow.wait") == 2 })
	pgtest.MoveClock(t, s.owner, time.Hour)
	for _, batch := range []string{longWait, longRetry, later} {
		assert.Equal(t, map[string]int{"completed": 2}, counted(s.await(batch)))
	}
	assert.Equal(t, []int{2, 3, 2}, []int{in.got("/d-long"), in.got("/r-long"), in.got("/d-later")})
}

// TestRestored_LaterSteps: what comes after a call that is sent again may have come before, too; after a delay that is
// longer than the lost time it did not.
func TestRestored_LaterSteps(t *testing.T) {
	t.Parallel()
	in, reach := newInbox(t)
	s := serveStack(t, false, reach)
	keyed := strings.Replace(in.post("/keyed", ""), `"method"`, `"idempotency_header":"Key","method"`, 1)
	next := strings.NewReplacer(`"id":"post"`, `"id":"next"`, `"id":"t"`, `"id":"n"`).Replace(in.post("/next", ""))
	delay := `{"id":"d","tasks":[{"id":"d","action_id":"core__flow__delay","params":{"seconds":3600}}]}`
	soon := s.trigger(s.define("["+keyed+","+next+"]"), `{"records":[{}]}`)
	late := s.trigger(s.define("["+keyed+","+delay+","+next+"]"), `{"records":[{}]}`)
	s.restored(10 * time.Minute)
	s.until(soon, func(b map[string]any) bool { return counted(b)["unresolved"] == 1 })
	s.eventually(func() bool { return in.got("/keyed") == 2 && s.count("flow.wait") == 1 })
	assert.Equal(t, 0, in.got("/next"))
	pgtest.MoveClock(t, s.owner, time.Hour)
	s.await(late)
	assert.Equal(t, 1, in.got("/next"))
}

// TestRestored_Bulk: that the provider does not have a call of several records proves nothing after a restore: they may
// have gone with others.
func TestRestored_Bulk(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(uploadSteps)
	old := s.trigger(flow, `{"records":[{"id":"a"},{"id":"b"}]}`)
	s.restored(time.Minute)
	fresh := s.trigger(flow, `{"records":[{"id":"c"}]}`)
	assert.Equal(t, map[string]int{"accepted": 1}, counted(s.await(fresh)), "it goes in a call of its own")
	s.until(old, func(b map[string]any) bool { return counted(b)["unresolved"] == 2 })
	assert.Contains(t, s.get("/flows/jobs/" + old + ".0")["error"].(object)["message"],
		"they may have gone with others")
	s.Do(http.MethodPost, "/flows/batches/"+old+"/resolve", `{"outcome":"requeue"}`).Want(http.StatusOK)
	assert.Equal(t, map[string]int{"accepted": 2}, counted(s.await(old)))
}

// TestRestored_Schedule: a slot that came in the time that a restore lost, or before and was not decided, may have
// fired: it is passed over, and listed with the reason.
func TestRestored_Schedule(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.schedule(scheduleOf(s.define(transformSteps), "0 * * * *", `"catch_up_seconds":86400`))
	first := next(t, s.get("/flows/schedules/"+id))
	s.toSlot(first.Add(2*time.Hour + 2*time.Minute))
	s.restored(90 * time.Minute)
	for _, f := range s.decided(id, 3) {
		assert.Equal(t, "skipped", f.Status)
		assert.Contains(t, f.Reason, "a restore of the service's database has lost whether it fired before")
	}
	s.toSlot(first.Add(3 * time.Hour))
	assert.Equal(t, "fired", s.decided(id, 4)[3].Status)
}

// TestRestored_Delivery: a message whose batch was not started when a restore began to lose commits may have started
// one: it is dead until a person has it replayed. One that comes after is started.
func TestRestored_Delivery(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	h := s.webhook(hookOf(flow, `"dispatch_retry":{"max_attempts":5}`))
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"archived"}`).Want(http.StatusOK)
	id := s.send(h, "before", `{}`).Want(http.StatusAccepted).JSON()["delivery_id"].(string)
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"active"}`).Want(http.StatusOK)
	s.restored(time.Minute)
	dead := s.settledDeliveries(h, 1)[0]
	assert.Equal(t, []any{"dead", ""}, []any{dead.Status, dead.BatchID})
	assert.Contains(t, dead.LastError, "restore")
	s.send(h, "after", `{}`).Want(http.StatusAccepted)
	s.Do(http.MethodPost, "/flows/webhooks/"+h.id+"/deliveries/"+id+"/replay", nil).Want(http.StatusOK)
	for _, d := range s.settledDeliveries(h, 2) {
		assert.Equal(t, "dispatched", d.Status)
	}
}

// TestRestored_Chain: what an event of a batch that was there in the lost time starts, or the batch itself, may have
// been started before as another batch. So a key tells nobody that a call of it is the same.
func TestRestored_Chain(t *testing.T) {
	t.Parallel()
	in, reach := newInbox(t)
	s := serveStack(t, false, reach)
	by := func(path, more string) string {
		return s.define("[" + strings.Replace(in.post(path, ""), `"method"`, more+`"method"`, 1) + "]")
	}
	parent := s.define(transformSteps)
	heard := by("/heard", `"idempotency_header":"Key",`)
	s.subscribe(listening(heard, event.BatchCompleted, `"filter":"{{ payload.trigger_type == 'api_call' }}"`))
	s.subscribe(listening(by("/again", ""), event.BatchCompleted,
		fmt.Sprintf(`"filter":"{{ payload.definition_id == '%s' }}"`, heard)))
	started := by("/started", "")
	starter := s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__start_flow",
		"params":{"definition_id":%q,"input":{},"wait":false}}]}]`, started))
	s.trigger(parent, `{"records":[{"n":1}]}`)
	s.trigger(starter, `{"records":[{}]}`)
	s.restored(time.Minute)
	s.eventually(func() bool { return s.count("flow.batch_count WHERE unresolved = 1") == 3 })
	assert.Equal(t, []int{0, 0}, []int{in.got("/heard"), in.got("/started")})
	s.trigger(parent, `{"records":[{"n":1}]}`)
	s.trigger(starter, `{"records":[{}]}`)
	s.eventually(func() bool { return in.got("/heard") == 2 && in.got("/started") == 1 && in.got("/again") == 2 })
}

// late plays a platform that shows a contact from a time on, and gives nobody an answer who makes one.
type late struct {
	mu   sync.Mutex
	made int
	from time.Time
}

func (l *late) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

func (l *late) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method == http.MethodPost {
		l.made++
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.Close()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := `{"items":[]}`
	if !l.from.IsZero() && time.Now().After(l.from) {
		answer = `{"items":[{"id":"p","properties":{"email":"a@x.example","age":40}}]}`
	}
	_, _ = io.WriteString(w, answer)
}

// TestRestored_UnderWay: a call that was under way when a restore began to lose commits may have been sent again since.
// That a provider does not have it proves nothing before it has decided about what came last.
func TestRestored_UnderWay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	slow := strings.Replace(people, "settles_within_seconds: 1", "settles_within_seconds: 10", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "people.yaml"), []byte(slow), 0o600))
	l := &late{}
	platform := httptest.NewServer(l)
	t.Cleanup(platform.Close)
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["people"] = dir, platform.URL })
	batch := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"people__api__create","params":{"email":"{{ input.email }}","age":40}}]}]`),
		`{"records":[{"email":"a@x.example"}]}`)
	s.until(batch, func(b map[string]any) bool { return counted(b)["needs_reconcile"] == 1 })
	s.stop()
	_, err := s.owner.Exec(t.Context(),
		`UPDATE flow.call SET claimed_at = claimed_at - interval '20 s', send_before = send_before - interval '20 s';
		INSERT INTO flow.clock_watch (steady_since, watched_at) VALUES (flow.clock() - interval '1 hour', flow.clock())
		ON CONFLICT (only_row) DO UPDATE SET steady_since = excluded.steady_since, watched_at = excluded.watched_at`)
	require.NoError(t, err)
	l.mu.Lock()
	l.from = time.Now().Add(6 * time.Second)
	l.mu.Unlock()
	s.restored(5 * time.Second)
	assert.Equal(t, map[string]int{"completed": 1}, counted(s.await(batch)))
	assert.Equal(t, 1, l.calls())
}
