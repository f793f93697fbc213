package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api/violation"
	"flowlane/internal/app"
	"flowlane/internal/platform/vault"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

const idempotencyKey = "Idempotency-Key"

// replica is a second process on the database of the stack.
func (s *stack) replica(change ...func(*app.Config)) *apitest.Client {
	s.t.Helper()
	kek, err := vault.LoadKEK("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "")
	require.NoError(s.t, err)
	cfg := app.Config{
		DatabaseURL: s.config.DatabaseURL, Pooled: s.config.Pooled, KEK: kek,
		BaseURLs: map[string]string{"dialer": s.simURL}, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	a, err := app.New(s.t.Context(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(a.Close)
	return apitest.Serve(s.t, a.Handler(), s.Key)
}

// postOperation is a POST of the document.
type postOperation struct {
	id, path         string
	creates, takesIt bool
}

func postOperations(t *testing.T) (out []postOperation) {
	t.Helper()
	doc, err := violation.Document()
	require.NoError(t, err)
	for path, item := range doc["paths"].(map[string]any) {
		op, ok := item.(map[string]any)["post"].(map[string]any)
		if !ok {
			continue
		}
		_, created := op["responses"].(map[string]any)["201"]
		params, _ := op["parameters"].([]any)
		o := postOperation{id: op["operationId"].(string), path: path, creates: created}
		for _, p := range params {
			o.takesIt = o.takesIt || p.(map[string]any)["$ref"] == "#/components/parameters/IdempotencyKey"
		}
		out = append(out, o)
	}
	return out
}

// keyed is a request that creates something each time it is carried out, under a name of its own where UNIQUE stands
// for it.
type keyed struct {
	path, body, other string
	status            int
	list              string
}

func (s *stack) keyedRequests() map[string]keyed {
	steps := strings.ReplaceAll(transformSteps, "CRED", s.credential)
	credential := `{"name":%q,"platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"acme","password":"x"}}`
	return map[string]keyed{
		"createCredential": {"/credentials", fmt.Sprintf(credential, "a"), fmt.Sprintf(credential, "b"),
			http.StatusCreated, "/credentials"},
		"createDefinition": {"/flows/definitions", `{"name":"a","steps":` + steps + `}`, `{"name":"b","steps":` +
			steps + `}`, http.StatusCreated, "/flows/definitions"},
		"createRecordSet": {"/data/record-sets", `{"chunk_size":7}`, `{"chunk_size":8}`, http.StatusCreated,
			"/data/record-sets"},
		"createVariableSet": {"/flows/variables", `{"name":"UNIQUE","keys":[]}`, `{"name":"b","keys":[]}`,
			http.StatusCreated, "/flows/variables"},
		"createTenant": {"/tenants", `{"platform_id":"dialer","label":"UNIQUE"}`,
			`{"platform_id":"dialer","label":"b"}`, http.StatusCreated, "/tenants"},
		"importPlatform": {"/catalog/imports", s.importBody("sUNIQUE"), s.importBody("b"), http.StatusCreated,
			"/catalog/imports"},
		"createStore": {"/data/stores",
			`{"name":"sUNIQUE","fields":[{"name":"a","type":"string"}],"layers":["l"]}`,
			`{"name":"b","fields":[{"name":"a","type":"string"}],"layers":["l"]}`, http.StatusCreated, "/data/stores"},
		"upsertStoreRecords": {s.store(customers) + "/records", writes(`kUNIQUE crm {"email":"a"}`),
			writes(`k1 crm {"email":"b"}`), http.StatusOK, "/data/stores/customers/records"},
		"createSchedule": {"/flows/schedules", s.yearly(), s.yearly(), http.StatusCreated, "/flows/schedules"},
		"createEventSubscription": {"/flows/event-subscriptions", s.deaf(), s.deaf(), http.StatusCreated,
			"/flows/event-subscriptions"},
		"runSchedule": {"/flows/schedules/" + s.schedule(s.yearly()) + "/run", "", "", http.StatusOK,
			"/flows/batches"},
		"pauseDispatch": {"/admin/dispatch/pause", `{"reason":"a"}`, `{"reason":"b"}`, http.StatusCreated,
			pausesWithReleased},
		"pauseDomain": {s.domainPath() + "/pause", `{"lane":"bulk"}`, `{"lane":"backfill"}`,
			http.StatusCreated, pausesWithReleased},
		"pauseBatch": {"/flows/batches/" + s.trigger(s.define(transformSteps), "{}") + "/pause",
			`{"reason":"a"}`, `{"reason":"b"}`, http.StatusCreated, pausesWithReleased},
		"triggerDefinition": {"/flows/definitions/" + s.define(transformSteps) + "/trigger",
			`{"input_data":{"n":1}}`, `{"input_data":{"n":1} }`, http.StatusOK, "/flows/batches"},
		"retryBatch": {"/flows/batches/" + s.cancelled() + "/retry", `{"job_statuses":["unprocessed"]}`,
			`{"job_statuses":["failed"]}`, http.StatusOK, "/flows/batches"},
	}
}

const pausesWithReleased = "/admin/dispatch/pauses?include_released=true"

// cancelled is a batch that was cancelled before it began.
func (s *stack) cancelled() (batch string) {
	s.t.Helper()
	batch = s.trigger(s.define(transformSteps), `{"records":[{"n":1},{"n":2}]}`)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	return batch
}

// makeWay ends what another request to the operation would have to wait for.
func (s *stack) makeWay(operation string) {
	s.t.Helper()
	if operation == "pauseBatch" {
		for _, item := range s.pages("/admin/dispatch/pauses?scope=batch", 100) {
			s.resumed("/flows/batches/" + field[string](s.t, item, "batch_id") + "/resume")
		}
	}
	if operation != "retryBatch" {
		return
	}
	for _, item := range s.pages("/flows/batches?trigger_type=retry&status=queued", 100) {
		s.Do(http.MethodPost, "/flows/batches/"+field[string](s.t, item, "id")+"/cancel", nil).Want(http.StatusOK)
	}
}

// secretOnce are the operations that create a secret and show it once: they take no key.
var secretOnce = map[string]bool{"createApiKey": true, "createSession": true, "createSessionLink": true,
	"createStreamToken": true, "createWebhook": true}

func TestIdempotency_EveryOperation(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	replica := s.replica()
	requests := s.keyedRequests()
	for _, op := range postOperations(t) {
		if !op.takesIt {
			assert.False(t, op.creates && !secretOnce[op.id], "%s creates something and takes no key", op.id)
			continue
		}
		r, ok := requests[op.id]
		require.True(t, ok, "%s takes a key: add a request to this test", op.id)
		t.Run(op.id, func(t *testing.T) {
			before := s.get(r.list)["total"].(float64)
			named := func(name string) string { return strings.ReplaceAll(r.body, "UNIQUE", name) }
			first := s.Do(http.MethodPost, r.path, named("1"), idempotencyKey, "k").Want(r.status)
			assert.Empty(t, first.Header.Get("Idempotency-Replayed"))
			for _, c := range []*apitest.Client{s.Client, replica} {
				again := c.Do(http.MethodPost, r.path, named("1"), idempotencyKey, "k").Want(r.status)
				assert.Equal(t, string(first.Body), string(again.Body))
				assert.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
				assert.Equal(t, first.Header.Get("Content-Type"), again.Header.Get("Content-Type"))
				assert.Empty(t, again.Header.Get("Retry-After"))
				assert.NotEqual(t, first.Header.Get("X-Request-Id"), again.Header.Get("X-Request-Id"))
				if r.other == "" { // it takes no body
					continue
				}
				c.Do(http.MethodPost, r.path, r.other, idempotencyKey, "k").Detail(http.StatusConflict,
					"Idempotency key reused with a different request")
			}
			assert.InDelta(t, before+1, s.get(r.list)["total"], 0)
			s.makeWay(op.id)
			s.Do(http.MethodPost, r.path, named("2"), idempotencyKey, "K").Want(r.status)
			s.makeWay(op.id)
			s.Do(http.MethodPost, r.path, named("3")).Want(r.status)
			assert.InDelta(t, before+3, s.get(r.list)["total"], 0)
		})
	}
}

func TestIdempotency_Scope(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	one, two := s.define(transformSteps), s.define(transformSteps)
	set := func(c *apitest.Client) any {
		return c.Do(http.MethodPost, "/data/record-sets", nil, idempotencyKey,
			"same").Want(http.StatusCreated).JSON()["id"]
	}
	assert.NotEqual(t, set(s.Client), set(s.other), "organizations")
	assert.Equal(t, set(s.Client), set(s.Client))
	s.Do(http.MethodPost, "/flows/definitions/"+one+"/trigger", nil, idempotencyKey, "same").Want(http.StatusOK)
	s.Do(http.MethodPost, "/flows/definitions/"+two+"/trigger", nil, idempotencyKey, "same").Want(http.StatusOK)
	assert.InDelta(t, 2, s.get("/flows/batches")["total"], 0, "paths")
	s.other.Do(http.MethodPost, "/flows/definitions/"+one+"/trigger", nil, idempotencyKey,
		"same").Detail(http.StatusNotFound, "Definition not found")
	s.As("flow_wrong").Do(http.MethodPost, "/flows/definitions/"+one+"/trigger", nil, idempotencyKey,
		"same").Detail(http.StatusUnauthorized, "Authentication required")

	made := func() any {
		return s.Do(http.MethodPost, "/account/api-keys", `{"name":"x"}`, idempotencyKey,
			"same").Want(http.StatusCreated).JSON()["key"]
	}
	assert.NotEqual(t, made(), made(), "a secret is shown once, and never kept")
}

// TestIdempotency_Failure: only what succeeded is remembered.
func TestIdempotency_Failure(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	path := "/flows/definitions/" + id + "/trigger"
	for range 2 {
		res := s.Do(http.MethodPost, path, nil, idempotencyKey, "k").Detail(http.StatusBadRequest,
			"Definition is not active")
		assert.Empty(t, res.Header.Get("Idempotency-Replayed"))
	}
	s.Do(http.MethodPatch, "/flows/definitions/"+id, `{"status":"active"}`).Want(http.StatusOK)
	s.Do(http.MethodPost, path, `{"records":1}`, idempotencyKey, "k").Invalid("body.records array_type")
	first := s.Do(http.MethodPost, path, nil, idempotencyKey, "k").Want(http.StatusOK)
	s.Do(http.MethodPatch, "/flows/definitions/"+id, `{"status":"archived"}`).Want(http.StatusOK)
	assert.Equal(t, string(first.Body), string(s.Do(http.MethodPost, path, nil, idempotencyKey,
		"k").Want(http.StatusOK).Body), "whatever happened since")
}

func TestIdempotency_Header(t *testing.T) {
	t.Parallel()
	b := setup(t)
	longest := strings.Repeat("ä", 255)
	b.Do(http.MethodPost, "/data/record-sets", nil, idempotencyKey, longest).Want(http.StatusCreated)
	b.Do(http.MethodPost, "/data/record-sets", nil, idempotencyKey, longest+
		"x").Invalid("header.idempotency-key string_too_long")
	b.Do(http.MethodPost, "/data/record-sets", nil, idempotencyKey, "\xff' --").Want(http.StatusCreated)
	b.Do(http.MethodPost, "/data/record-sets", nil, idempotencyKey, "\xfe' --").Want(http.StatusCreated)
	b.Do(http.MethodPost, "/data/record-sets", nil, idempotencyKey,
		" ").Invalid("header.idempotency-key string_too_short")
	assert.InDelta(t, 3, b.Do(http.MethodGet, "/data/record-sets", nil).Want(http.StatusOK).JSON()["total"], 0)
}

// TestIdempotency_Concurrent sends 50 copies of one trigger at once, half of them to another process.
func TestIdempotency_Concurrent(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	replica := s.replica()
	path := "/flows/definitions/" + s.define(transformSteps) + "/trigger"
	rows := rowsOf(900)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", 1000))
	}
	for name, body := range map[string]string{
		"Large":     `{"records":[` + strings.Join(rows, ",") + `]}`,
		"RecordSet": fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(5000))),
		"Empty":     "",
	} {
		t.Run(name, func(t *testing.T) {
			before := s.get("/flows/batches")["total"].(float64)
			answers := make([]apitest.Response, 50)
			var group sync.WaitGroup
			for i := range answers {
				group.Go(func() {
					c := s.Client
					if i%2 == 1 {
						c = replica
					}
					var sent any
					if body != "" {
						sent = body
					}
					answers[i] = c.Do(http.MethodPost, path, sent, idempotencyKey, name)
				})
			}
			group.Wait()
			firsts := 0
			for _, a := range answers {
				a.Want(http.StatusOK)
				assert.Equal(t, string(answers[0].Body), string(a.Body))
				if a.Header.Get("Idempotency-Replayed") == "" {
					firsts++
				}
			}
			assert.Equal(t, 1, firsts, "answers that say that they are the first")
			assert.InDelta(t, before+1, s.get("/flows/batches")["total"], 0)
		})
	}
}

// TestIdempotency_LostAnswer: the process that carried the request out is gone before the answer is read.
func TestIdempotency_LostAnswer(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := "/flows/definitions/" + s.define(transformSteps) + "/trigger"
	lost := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.app.Handler().ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(lost.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, lost.URL+"/v1"+path, nil)
	require.NoError(t, err)
	req.Header.Set("X-API-Key", s.Key)
	req.Header.Set(idempotencyKey, "k")
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	require.Error(t, err, "the answer must get lost")
	again := s.replica().Do(http.MethodPost, path, nil, idempotencyKey, "k").Want(http.StatusOK)
	assert.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
	batches := s.pages("/flows/batches", 10)
	require.Len(t, batches, 1)
	assert.Equal(t, again.JSON()["batch_id"], field[string](t, batches[0], "id"))
}

func TestIdempotency_ADay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func() (id any, replayed bool) {
		res := b.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":5}`, idempotencyKey,
			"k").Want(http.StatusCreated)
		return res.JSON()["id"], res.Header.Get("Idempotency-Replayed") == "true"
	}
	first, _ := post()
	pgtest.MoveClock(t, b.pool, 24*time.Hour-time.Minute)
	id, replayed := post()
	assert.True(t, replayed)
	assert.Equal(t, first, id)
	pgtest.MoveClock(t, b.pool, 2*time.Minute)
	b.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":6}`, idempotencyKey, "k").Want(http.StatusCreated)
	b.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":5}`, idempotencyKey, "k").Want(http.StatusConflict)
}
