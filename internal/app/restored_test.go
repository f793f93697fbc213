package app_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// contacts can be asked whether a contact was made.
const contacts = `
id: people
name: People
description: A platform of the operator.
status: active
docs_url: https://people.example/docs
services:
  - id: people__api
    name: API
    description: Contacts.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://people.example
    docs_url: https://people.example/docs
    requires_connection: false
    status: active
    actions:
      - id: people__api__find
        name: Find
        description: Finds contacts.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, properties: {id: {}}}
        output_schema: {}
        call:
          method: GET
          path: /asked
          query: {id: "{{ params.id }}"}
          answer: {success: [200]}
      - id: people__api__create
        name: Create
        description: Creates a contact.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: lookup
        params_schema: {type: object, required: [id], properties: {id: {}}}
        output_schema: {}
        call:
          method: POST
          path: /asked
          body: {id: "{{ params.id }}"}
          max_in_flight: 2
          answer: {success: [201], output: [id]}
          lookup:
            action: people__api__find
            params: {id: "{{ params.id }}"}
            whole: true
            items: items
            match: {id: "{{ params.id }}"}
            reference: id
            output: [id]
            settles_within_seconds: 1
            horizon_seconds: 3600
`

// receiver counts by path which records arrived, with the idempotency keys that they had. While it hangs, nobody gets
// an answer.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]map[string][]string
	hang chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{keys: map[string]map[string][]string{}, hang: make(chan struct{})}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if req.Method == http.MethodGet {
		items, id := []any{}, req.URL.Query().Get("id")
		if len(r.arrived(req.URL.Path)[id]) > 0 {
			items = []any{map[string]any{"id": id}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
		return
	}
	var record struct{ ID string }
	_ = json.NewDecoder(req.Body).Decode(&record)
	r.mu.Lock()
	of := r.keys[req.URL.Path]
	if of == nil {
		of = map[string][]string{}
		r.keys[req.URL.Path] = of
	}
	of[record.ID] = append(of[record.ID], req.Header.Get("Key"))
	r.mu.Unlock()
	select {
	case <-r.hang:
	case <-req.Context().Done():
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"id": record.ID})
}

func (r *receiver) arrived(path string) map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.keys[path])
}

// sum is how often records arrived.
func (r *receiver) sum() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.keys {
		for _, keys := range of {
			n += len(keys)
		}
	}
	return n
}

// lost is a test of a database that lost commits, and of what was sent meanwhile.
type lost struct {
	losing
	cfg app.Config
	// plain, keyed and asked receive calls of which nobody can say whether they arrived, with a key, and that can be
	// asked for; slots receives those of a schedule.
	plain, keyed, asked, slots *receiver
	sim                        *dialersim.Sim
	// ahead is by how much the clocks of the database and of the sim are.
	ahead atomic.Int64
}

func newLost(t *testing.T, way func(*testing.T) losing) *lost {
	t.Helper()
	l := &lost{losing: way(t), plain: newReceiver(t), keyed: newReceiver(t), asked: newReceiver(t),
		slots: newReceiver(t)}
	l.sim = dialersim.New(dialersim.Options{Clock: func() time.Time {
		return time.Now().Add(time.Duration(l.ahead.Load()))
	}})
	close(l.slots.hang)
	platform := httptest.NewServer(l.sim)
	t.Cleanup(platform.Close)
	t.Cleanup(l.sim.Close)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "people.yaml"), []byte(contacts), 0o600))
	host := func(r *receiver) string {
		u, err := url.Parse(r.URL)
		require.NoError(t, err)
		return u.Host
	}
	l.cfg = app.Config{Listen: "127.0.0.1:0", Workers: true, KEK: testKEK(t), Migrate: true,
		Drain: 50 * time.Millisecond, CatalogDir: dir,
		BaseURLs:   map[string]string{"dialer": platform.URL, "people": l.asked.URL},
		AllowHosts: []string{host(l.plain), host(l.keyed), host(l.slots)}, Log: slog.New(slog.DiscardHandler)}
	return l
}

// start starts a process on a database.
func (l *lost) start(t *testing.T, dsn string) *process {
	t.Helper()
	cfg := l.cfg
	cfg.DatabaseURL = dsn
	a, err := app.New(t.Context(), cfg)
	require.NoError(t, err)
	return &process{App: a, stop: runs(t, a)}
}

// defineTask makes a flow of one task.
func defineTask(t *testing.T, client *apitest.Client, task string) string {
	t.Helper()
	doc := fmt.Sprintf(`{"name":"flow","status":"active","steps":[{"id":"s","tasks":[%s]}]}`, task)
	return client.Do("POST", "/flows/definitions", json.RawMessage(doc)).Want(http.StatusCreated).JSON()["id"].(string)
}

// startBatch starts a flow over n records.
func startBatch(t *testing.T, client *apitest.Client, flow string, n int) string {
	t.Helper()
	records := make([]any, n)
	for i := range records {
		records[i] = map[string]any{"id": fmt.Sprint(i)}
	}
	return client.Do("POST", "/flows/definitions/"+flow+"/trigger", map[string]any{"records": records}).Want(
		http.StatusOK).JSON()["batch_id"].(string)
}

// awaitCounts waits until so many jobs of a batch stand there.
func awaitCounts(t *testing.T, client *apitest.Client, batch, status string, n int) {
	t.Helper()
	var last any
	assert.Eventually(t, func() bool {
		last = client.Do("GET", "/flows/batches/"+batch, nil).Want(http.StatusOK).JSON()["job_counts"]
		return last.(map[string]any)[status] == float64(n)
	}, 30*time.Second, 50*time.Millisecond)
	require.EqualValues(t, n, last.(map[string]any)[status], "%v", last)
}

// clockOf is the time by the clock of a database.
func clockOf(t *testing.T, db pg.DB) (now time.Time) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), "SELECT flow.clock()").Scan(&now))
	return now
}

// schedule makes a schedule whose next slot comes within seconds, for which it moves the clocks.
func (l *lost) schedule(t *testing.T, client *apitest.Client, db pg.DB, flow string) (path string) {
	t.Helper()
	made := client.Do("POST", "/flows/schedules", map[string]any{"definition_id": flow, "description": "hourly",
		"cron_expression": "0 * * * *", "input_data": map[string]any{"id": "slot"}}).Want(http.StatusCreated).JSON()
	slot, err := time.Parse(time.RFC3339, made["next_fire_at"].(string))
	require.NoError(t, err)
	ahead := slot.Add(-3 * time.Second).Sub(clockOf(t, db))
	l.ahead.Store(int64(ahead))
	pgtest.MoveClock(t, db, ahead)
	return "/flows/schedules/" + made["id"].(string)
}

// TestRun_Lost restores a database from before batches were sent in part, in each way in which that can be done.
// Nothing is sent before somebody says from when on commits are lost. Then what may have been sent is sent again only
// where the provider drops it, found where the provider can be asked, and else left to people. A slot of a schedule
// that had fired is passed over.
func TestRun_Lost(t *testing.T) {
	t.Parallel()
	for name, way := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLost(t, newLost(t, way))
		})
	}
}

// lostRecords are those of a batch of calls of one record, lostInFlight how many of these core__http sends at once.
const lostRecords, lostInFlight = 40, 32

func testLost(t *testing.T, l *lost) {
	t.Helper()
	const n, inFlight = lostRecords, lostInFlight
	first := startWith(t, func(c *app.Config) {
		operator := c.Operator
		*c = l.cfg
		c.DatabaseURL, c.Workers, c.Operator = l.dsn, false, operator
	})
	client := apitest.NewClient(t, first.URL(), first.key)
	post := func(r *receiver, more string) string {
		return fmt.Sprintf(`{"id":"t","action_id":"core__http__request","params":{"method":"POST","url":%q,"body":"{{ input }}"%s}}`, r.URL+"/sent", more)
	}
	plain := defineTask(t, client, post(l.plain, ""))
	hourly := l.schedule(t, client, first.Pool, defineTask(t, client, post(l.slots, "")))
	batches := map[string]string{
		"plain": startBatch(t, client, plain, n),
		"keyed": startBatch(t, client, defineTask(t, client, post(l.keyed, `,"idempotency_header":"Key"`)), n),
		"asked": startBatch(t, client, defineTask(t, client,
			`{"id":"t","action_id":"people__api__create","params":{"id":"{{ input.id }}"}}`), 6),
		"bulk": startBatch(t, client, first.define(t), 3),
	}
	l.point(t)
	since := clockOf(t, first.Pool)
	require.NoError(t, first.stop())

	second := l.start(t, l.dsn)
	require.Eventually(t, func() bool {
		return l.plain.sum() == inFlight && l.keyed.sum() == inFlight && l.asked.sum() == 2 &&
			len(l.sim.Arrivals("l")) == 3 && l.slots.sum() == 1
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, second.stop())
	second.Close()
	for _, r := range []*receiver{l.plain, l.keyed, l.asked} {
		close(r.hang)
	}

	dsn := l.restore(t)
	third := l.start(t, dsn)
	<-time.After(3 * time.Second) // a lease and a sweep would have found the work by now
	assert.Equal(t, 2*inFlight+3, l.plain.sum()+l.keyed.sum()+l.asked.sum()+l.slots.sum())
	owner, err := pg.Open(t.Context(), dsn, pg.Options{MaxConns: 1})
	require.NoError(t, err)
	defer owner.Close()
	require.NoError(t, pg.Confirm(t.Context(), owner, &since))

	client = apitest.NewClient(t, third.URL(), first.key)
	l.cameOut(t, client, batches)
	l.passedOver(t, client, hourly)
	l.decide(t, client, plain, batches["plain"])
	assert.Equal(t, inFlight+3, l.plain.sum(), "what people have queued again, or started since, is sent")
}

// cameOut waits until the batches came to their ends, and sees that of what had been sent only that came again which
// has a key.
func (l *lost) cameOut(t *testing.T, client *apitest.Client, batches map[string]string) {
	t.Helper()
	const n, inFlight = lostRecords, lostInFlight
	awaitCounts(t, client, batches["plain"], "unresolved", n)
	awaitCounts(t, client, batches["keyed"], "completed", n)
	awaitCounts(t, client, batches["asked"], "completed", 6)
	awaitCounts(t, client, batches["bulk"], "accepted", 3)
	assert.Equal(t, inFlight, l.plain.sum(), "none of those that nobody can tell of is sent")
	assert.Equal(t, map[string]int{"0": 1, "1": 1, "2": 1}, l.sim.Arrivals("l"))
	for id, keys := range l.asked.arrived("/asked") {
		assert.Len(t, keys, 1, id)
	}
	assert.Len(t, l.asked.arrived("/asked"), 6)
	assert.Equal(t, n+inFlight, l.keyed.sum())
	for id, keys := range l.keyed.arrived("/sent") {
		assert.NotEmpty(t, keys[0], id)
		assert.Equal(t, keys[0], keys[len(keys)-1], id)
	}
}

// passedOver waits until the slot is decided that was sent before, and sees that it is not sent again.
func (l *lost) passedOver(t *testing.T, client *apitest.Client, schedule string) {
	t.Helper()
	var fires []any
	require.Eventually(t, func() bool {
		fires = client.Do("GET", schedule+"/fires", nil).Want(http.StatusOK).JSON()["items"].([]any)
		return len(fires) > 0
	}, 30*time.Second, 50*time.Millisecond)
	slot := fires[0].(map[string]any)
	assert.Equal(t, "skipped", slot["status"])
	assert.Contains(t, slot["reason"], "a restore of the service's database has lost whether it fired before")
	assert.Equal(t, 1, l.slots.sum())
}

// decide has a person queue a job again that may have been sent, and start another batch.
func (l *lost) decide(t *testing.T, client *apitest.Client, flow, batch string) {
	t.Helper()
	job := client.Do("GET", "/flows/jobs/"+batch+".0", nil).Want(http.StatusOK).JSON()
	assert.Contains(t, job["error"].(map[string]any)["message"],
		"may have been sent in the time that a restore of the service's database lost")
	client.Do("POST", "/flows/jobs/"+batch+".0/resolve", map[string]any{"outcome": "requeue"}).Want(http.StatusOK)
	awaitCounts(t, client, batch, "completed", 1)
	awaitCounts(t, client, startBatch(t, client, flow, 2), "completed", 2)
}
