package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/blob"
	"flowlane/internal/cell"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/recordset"
	"flowlane/test/pgtest"
	"flowlane/test/servers"
)

// bucket is a stack's store of large bodies: a server that others wrote, behind a proxy that can break.
type bucket struct {
	*stack

	direct string
	store  blob.Store
	// down lists methods that are answered as a broken gateway does; empty for none.
	down atomic.Pointer[string]
	// next is called once, behind the next request of a method that the store has carried out.
	next atomic.Pointer[behind]
}

type behind struct {
	method string
	do     func()
}

// serveBucket starts a stack with a store of large bodies.
func serveBucket(t *testing.T, options ...func(c *app.Config)) *bucket {
	t.Helper()
	b := &bucket{direct: "http://" + servers.S3(t)}
	b.breaks("")
	at, err := url.Parse(b.direct)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ModifyResponse = func(res *http.Response) error {
		if next := b.next.Load(); next != nil && res.Request.Method == next.method && b.next.CompareAndSwap(next, nil) {
			next.do()
		}
		return nil
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(*b.down.Load(), r.Method) {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	address := "s3://stock/bodies?path_style=true&endpoint="
	b.store, err = blob.Open(address + b.direct)
	require.NoError(t, err)
	b.stack = serveStack(t, true, append(options, func(c *app.Config) { c.BlobURL = address + front.URL })...)
	return b
}

func (b *bucket) breaks(methods string) { b.down.Store(&methods) }

// keys are those of all objects.
func (b *bucket) keys() []string {
	b.t.Helper()
	keys, err := b.store.List(b.t.Context(), "", "", 1000)
	require.NoError(b.t, err)
	return keys
}

// later lives until the sweep has been through the store twice: it finds what nothing names, and an hour later
// deletes it.
func (b *bucket) later() {
	b.t.Helper()
	for range 3 {
		pgtest.MoveClock(b.t, b.owner, 61*time.Minute)
		b.eventually(func() bool {
			return b.count("flow.due WHERE kind = 'blob_sweep' AND NOT leased AND due_at > flow.clock()") == 1
		})
	}
}

// wideRows are rows that do not get much smaller.
func wideRows(from, n int) []string {
	rows := make([]string, n)
	for i := range rows {
		h := fnv.New64a()
		fmt.Fprint(h, from+i)
		r := rand.New(rand.NewPCG(h.Sum64(), 1))
		rows[i] = fmt.Sprintf(`{"id":"k%d","n":%d,"a":"%016x%016x%016x%016x"}`, from+i, from+i, r.Uint64(), r.Uint64(),
			r.Uint64(), r.Uint64())
	}
	return rows
}

// chunk sends a chunk of a set.
func (b *bucket) chunk(set string, index int, rows []string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.app.URL()+"/v1/data/record-sets/"+set+
		"/records",
		strings.NewReader(fmt.Sprintf(`{"chunk_index":%d,"records":[%s]}`, index, strings.Join(rows, ","))))
	require.NoError(b.t, err)
	req.Header.Set("X-API-Key", b.Key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// uploadWide makes a sealed set of chunks of 2,000 rows, of which the last has some rows too few to be worth an object.
func (b *bucket) uploadWide(chunks int) (set string) {
	b.t.Helper()
	set = b.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":2000}`).Want(http.StatusCreated).
		JSON()["id"].(string)
	for i := range chunks {
		require.Equal(b.t, http.StatusOK, b.chunk(set, i, wideRows(2000*i, 2000)).StatusCode)
	}
	require.Equal(b.t, http.StatusOK, b.chunk(set, chunks, wideRows(2000*chunks, 20)).StatusCode)
	b.Do(http.MethodPost, "/data/record-sets/"+set+"/seal", fmt.Sprintf(`{"expected_count":%d}`, 2000*chunks+20)).Want(
		http.StatusOK)
	return set
}

// bothSteps evaluates each record in process, then sends it to the platform.
const bothSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.a }}"}}]},
	{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
	"params":{"list":"demo","key_field":"id","row":{"id":"{{ input.id }}","a":"{{ steps.s.t.output }}"}}}]}]`

// TestBlob: the pages of large chunks are in the store, and everybody who reads records finds them there: work in
// process, calls, results, executions, lists with input and by key, previews, the export of the organization and a
// retry. Once no batch has them, they are deleted.
func TestBlob(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	set := b.uploadWide(3)
	require.Len(t, b.keys(), 3)
	var inRows int
	b.scan("SELECT sum(length(body)) FROM flow.page WHERE set_id = $1", &inRows, set)
	assert.Less(t, inRows, 10_000, "rows have but the places, and the few rows of the last chunk")
	assert.Equal(t, 3, b.count("flow.blob WHERE set_id = $1", set))
	replay := b.chunk(b.made("/data/record-sets", `{"chunk_size":2000}`), 0, wideRows(0, 2000))
	require.Equal(t, http.StatusOK, replay.StatusCode)

	flow, want := b.define(bothSteps), wideRows(0, 6020)
	batch := b.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, set))
	assert.Equal(t, map[string]int{"accepted": 6020}, counted(b.await(batch)))
	for _, at := range []int{0, 249, 1999, 2000, 5999, 6019} {
		input := b.get(fmt.Sprintf("/flows/executions/%s.%d.1", batch, at))["input_data"]
		text, err := json.Marshal(input)
		require.NoError(t, err)
		assert.JSONEq(t, want[at], string(text))
		preview := b.get(fmt.Sprintf("/data/record-sets/%s/records?from=%d&count=1", set, at))["items"].([]any)
		text, err = json.Marshal(preview[0].(object)["data"])
		require.NoError(t, err)
		assert.JSONEq(t, want[at], string(text))
	}
	assert.Len(t, b.lines("/flows/batches/"+batch+"/results?format=ndjson"), 6020)
	jobs := b.pages("/flows/jobs?batch_id="+batch, 100)
	require.Len(t, jobs, 6020)
	assert.Contains(t, string(jobs[4321]), `"input_data":`+want[4321])
	files, _ := b.exportOf(b.orgID(b.Key))
	assert.Equal(t, strings.Join(want, "\n")+"\n", files["records/"+set+".ndjson"])

	// Of a batch whose records come to the step piece by piece several calls are made.
	b.sim.AddFault(dialersim.Fault{Operation: "upload", Kind: "status", Status: http.StatusBadRequest, Count: 2020})
	failed := b.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, b.uploadWide(1)))
	assert.Equal(t, map[string]int{"failed": 2020}, counted(b.await(failed)))
	b.sim.ClearFaults()
	b.restart(true) // it forgets what it has read
	retry := b.Do(http.MethodPost, "/flows/batches/"+failed+"/retry", nil).Want(http.StatusOK).
		JSON()["batch_id"].(string)
	assert.Equal(t, map[string]int{"accepted": 2020}, counted(b.await(retry)))

	b.later()
	require.Len(t, b.keys(), 5, "what is named stays")
	for _, id := range []string{batch, failed} { // with its retry
		b.Do(http.MethodDelete, "/flows/batches/"+id, nil).Want(http.StatusNoContent)
	}
	b.aDayLater(1)
	b.later()
	assert.Len(t, b.keys(), 1, "the other set is open yet")
	assert.Equal(t, 1, b.count("flow.blob"))
}

// TestBlob_Replay: a chunk that comes again is known by its rows, also where only their spelling differs.
func TestBlob_Replay(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	set := b.made("/data/record-sets", `{"chunk_size":2000}`)
	rows := wideRows(0, 2000)
	for range 2 {
		require.Equal(t, http.StatusOK, b.chunk(set, 0, rows).StatusCode)
	}
	for i, row := range rows {
		rows[i] = strings.Replace(row, `,"n"`, `, "n"`, 1)
	}
	require.Equal(t, http.StatusOK, b.chunk(set, 0, rows).StatusCode, "by value")
	require.Equal(t, http.StatusConflict, b.chunk(set, 0, wideRows(1, 2000)).StatusCode)
	assert.Len(t, b.keys(), 1)
	b.Do(http.MethodDelete, "/data/record-sets/"+set, nil).Want(http.StatusNoContent)
	b.later()
	assert.Empty(t, b.keys())
}

// TestBlob_StoreDown: the store goes down in the middle of a run, with the first of two objects read. While it is,
// uploads and reads are refused with 503 and a time, batches start, no record fails, and the process is ready for all
// else. Once it is back, everything goes on by itself.
func TestBlob_StoreDown(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	set, other := b.uploadWide(2), b.uploadWide(1)
	flow := b.define(bothSteps)
	b.next.Store(&behind{http.MethodGet, func() { b.breaks("GET PUT DELETE") }})
	batch := b.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, set))
	b.eventually(func() bool { return b.count("flow.due WHERE kind = 'slices' AND failures > 0") > 0 })
	refused := b.chunk(b.made("/data/record-sets", `{"chunk_size":2000}`), 0, wideRows(0, 2000))
	assert.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	assert.NotEmpty(t, refused.Header.Get("Retry-After"))
	calls := b.trigger(b.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, other))
	unread := b.Do(http.MethodGet, "/flows/executions/"+batch+".2500.1", nil).Want(http.StatusServiceUnavailable)
	assert.NotEmpty(t, unread.Header.Get("Retry-After"))
	assert.Contains(t, string(b.ready()), "store of large bodies has not answered")
	b.await(b.trigger(flow, `{"records":[{"id":"x","a":"y"}]}`)) // whose records are in Postgres
	for id, n := range map[string]int{batch: 2000, calls: 2000} {
		had := counted(b.get("/flows/batches/" + id))
		assert.Zero(t, had["failed"]+had["rejected"]+had["unresolved"])
		assert.GreaterOrEqual(t, had["queued"]+had["pending"], n, had)
	}
	b.breaks("")
	assert.Equal(t, map[string]int{"accepted": 4020}, counted(b.await(batch)))
	assert.Equal(t, map[string]int{"accepted": 2020}, counted(b.await(calls)))
	assert.NotContains(t, string(b.ready()), "has not answered")
}

func (b *bucket) ready() []byte {
	b.t.Helper()
	res, err := http.Get(b.app.URL() + "/readyz")
	require.NoError(b.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, res.StatusCode, string(body))
	return body
}

// TestBlob_Killed: an upload that is cut off between its object and its rows leaves an object that the sweep finds,
// and nothing else. Objects that are young, of others, or not ours, stay.
func TestBlob_Killed(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	set := b.made("/data/record-sets", `{"chunk_size":2000}`)
	lock, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE flow.record_chunk IN SHARE MODE")
	require.NoError(t, err)
	b.breaks("DELETE") // as one that is killed deletes nothing
	answered := make(chan int, 1)
	go func() { answered <- b.chunk(set, 0, wideRows(0, 2000)).StatusCode }()
	var pid int
	b.eventually(func() bool {
		return b.owner.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND query LIKE '%record_chunk%'`).Scan(&pid) == nil
	})
	_, err = b.owner.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, <-answered, 500)
	require.NoError(t, lock.Rollback(t.Context()))
	left := b.keys()
	require.Len(t, left, 1)
	assert.Zero(t, b.count("flow.blob"))
	b.breaks("")

	require.Equal(t, http.StatusOK, b.chunk(set, 0, wideRows(0, 2000)).StatusCode)
	old := strings.Replace(left[0], b.orgID(b.Key), uuid.NewString(), 1)
	for _, key := range []string{old, "somebody/else", b.orgID(b.Key) + "/notes.txt"} {
		require.NoError(t, b.store.Put(t.Context(), key, []byte("x")))
	}
	require.Len(t, b.keys(), 5)
	b.later()
	assert.NotContains(t, b.keys(), left[0])
	assert.Len(t, b.keys(), 4)
	b.Do(http.MethodPost, "/data/record-sets/"+set+"/seal", `{"expected_count":2000}`).Want(http.StatusOK)
	assert.Len(t, b.get("/data/record-sets/" + set + "/records?from=1990")["items"], 10)
}

// TestBlob_NamedWhileSwept: the sweep that comes upon an object whose upload is about to commit waits for it and
// leaves it alone; an upload that comes after the sweep may have been there names nothing.
func TestBlob_NamedWhileSwept(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	set := b.made("/data/record-sets", `{"chunk_size":2000}`)
	lock, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE flow.record_chunk IN SHARE MODE")
	require.NoError(t, err)
	answered := make(chan int, 1)
	go func() { answered <- b.chunk(set, 0, wideRows(0, 2000)).StatusCode }()
	waits := func(query string) bool {
		return b.count(`pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1`, "%"+query+"%") == 1
	}
	b.eventually(func() bool { return waits("INSERT INTO flow.record_chunk") })
	pgtest.MoveClock(t, b.owner, 2*time.Hour)
	b.eventually(func() bool { return waits("BlobsClaim") })
	require.NoError(t, lock.Rollback(t.Context()))
	assert.Equal(t, http.StatusOK, <-answered)
	b.later()
	assert.Len(t, b.keys(), 1)
	assert.Len(t, b.get("/data/record-sets/" + set + "/records?from=1990")["items"], 10)

	b.next.Store(&behind{http.MethodPut, func() { pgtest.MoveClock(t, b.owner, 31*time.Minute) }})
	assert.Equal(t, http.StatusServiceUnavailable, b.chunk(set, 1, wideRows(2000, 2000)).StatusCode)
	assert.Len(t, b.keys(), 1, "and takes its object away")
	assert.EqualValues(t, 2000, b.get("/data/record-sets/" + set)["received_count"])
	assert.Equal(t, http.StatusOK, b.chunk(set, 1, wideRows(2000, 2000)).StatusCode)
}

// TestBlob_Organization: an organization that is deleted has nothing in the store, not even what no row knows of,
// before its receipt is complete; that counts its objects. What others have stays. A store that is down is waited
// for.
func TestBlob_Organization(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	b.uploadWide(3)
	b.await(b.trigger(b.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, b.uploadWide(2))))
	org := b.orgID(b.Key)
	lost := recordset.BlobKey(uuid.MustParse(org), uuid.Must(uuid.NewV7()))
	require.NoError(t, b.store.Put(t.Context(), lost, []byte("x")))
	others := recordset.BlobKey(uuid.MustParse(b.orgID(b.other.Key)), uuid.Must(uuid.NewV7()))
	require.NoError(t, b.store.Put(t.Context(), others, []byte("x")))
	require.Len(t, b.keys(), 7)
	deletions, err := app.Deletions(b.owner, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	b.breaks("DELETE")
	require.NoError(t, deletions.Begin(t.Context(), uuid.MustParse(org)))
	pgtest.MoveClock(t, b.owner, 11*time.Second)
	b.eventually(func() bool { return b.count("flow.due WHERE kind = 'organization_deletion' AND failures > 0") == 1 })
	assert.Zero(t, b.count("flow.deletion WHERE ended_at IS NOT NULL"))
	b.breaks("")
	b.eventually(func() bool { return b.count("flow.deletion WHERE ended_at IS NOT NULL") == 1 })
	assert.Equal(t, []string{others}, b.keys())
	assert.Zero(t, b.count("flow.blob WHERE org_id = $1", org))
	var counted int
	b.scan("SELECT (rows ->> 'blob')::int FROM flow.deletion", &counted)
	assert.Equal(t, 5, counted)
}

// TestBlob_Moved: where two cells have one store, that from which an organization went deletes nothing that the other
// one has made. What was left behind before goes.
func TestBlob_Moved(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	org := uuid.MustParse(b.orgID(b.Key))
	theirs, ours := uuid.Must(uuid.NewV7()), cell.NewID()
	theirs[14], theirs[15] = theirs[14]&0xf0, 2
	for _, id := range []uuid.UUID{theirs, ours} {
		require.NoError(t, b.store.Put(t.Context(), recordset.BlobKey(org, id), []byte("x")))
	}
	_, err := b.owner.Exec(t.Context(), `WITH moved AS (
    INSERT INTO flow.move (org_id, to_url, was_status, closed_at, moved_at)
    VALUES ($1, 'https://there', 'active', flow.clock(), flow.clock())
) UPDATE flow.organization SET status = 'moved' WHERE id = $1`, org)
	require.NoError(t, err)
	deletions, err := app.Deletions(b.owner, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, deletions.Begin(t.Context(), org))
	pgtest.MoveClock(t, b.owner, 11*time.Second)
	b.eventually(func() bool { return b.count("flow.deletion WHERE ended_at IS NOT NULL") == 1 })
	assert.Len(t, b.keys(), 2)
	b.later()
	assert.Equal(t, []string{recordset.BlobKey(org, theirs)}, b.keys())
	assert.Zero(t, b.count("flow.blob"))
}

// TestBlob_Damaged: what somebody else has put in the place of an object is not taken for records.
func TestBlob_Damaged(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	set := b.uploadWide(1)
	key := b.keys()[0]
	body, err := b.store.Get(t.Context(), key, 0, 1<<20)
	require.NoError(t, err)
	at := "/data/record-sets/" + set + "/records?count=1&from="
	body[len(body)-1] ^= 1
	require.NoError(t, b.store.Put(t.Context(), key, body))
	assert.Len(t, b.get(at + "0")["items"], 1)
	b.restart(true) // it forgets what it has read
	b.Do(http.MethodGet, at+"1999", nil).Want(http.StatusInternalServerError)
	require.NoError(t, b.store.Delete(t.Context(), key))
	b.restart(true)
	b.Do(http.MethodGet, at+"0", nil).Want(http.StatusInternalServerError)
}

// TestBlob_Needed: a process without the address of the store does not start on a database that has bodies there.
func TestBlob_Needed(t *testing.T) {
	t.Parallel()
	b := serveBucket(t)
	b.uploadWide(1)
	without := b.config
	without.BlobURL = ""
	_, err := app.New(context.Background(), without)
	require.ErrorContains(t, err, "--blob-url")
	assert.Regexp(t, regexp.MustCompile("in a store"), err.Error())
}
