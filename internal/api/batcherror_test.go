package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// fussy is a receiver whose answer to POST /{kind}/{id} its kind says, until it is mended.
type fussy struct {
	mu     sync.Mutex
	mended bool
	// taken counts what it was sent, by path.
	taken map[string]int
	// host is where it listens.
	host string
}

func (f *fussy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken[r.URL.Path]++
	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	answer := func(status int, body string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, body, args...)
	}
	switch {
	case f.mended || kind == "good":
		answer(http.StatusCreated, `{"id":%q}`, id)
	case kind == "exists":
		answer(http.StatusConflict, `{"code":"EXISTS","message":"Contact %s exists with 'x%s'"}`, id, id)
	case kind == "phone":
		answer(http.StatusUnprocessableEntity, `{"message":"phone must be E.164"}`)
	default:
		answer(http.StatusInternalServerError, `{"message":"node n%s is on fire"}`, strings.Repeat(id, 5))
	}
}

func (f *fussy) sent(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken[path]
}

func serveFussy(t *testing.T) (*stack, *fussy, string) {
	t.Helper()
	f := &fussy{taken: map[string]int{}}
	receiver := httptest.NewServer(f)
	t.Cleanup(receiver.Close)
	f.host = strings.TrimPrefix(receiver.URL, "http://")
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, f.host) })
	return s, f, s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","retry":{"max_attempts":1},
		"params":{"method":"POST","url":"http://%s/{{ input.kind }}/{{ input.id }}","body":{"a":1}}}]}]`, f.host))
}

func (f *fussy) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mended = true
}

// fussyRows are so many rows of each kind, in turn.
func fussyRows(n int, kinds ...string) string {
	var rows []string
	for id := range n {
		for _, kind := range kinds {
			rows = append(rows, fmt.Sprintf(`{"kind":%q,"id":"%d"}`, kind, 10+id))
		}
	}
	return `{"records":[` + strings.Join(rows, ",") + `]}`
}

type errorGroup struct {
	ID, Status string
	Error      map[string]any
	Count      int
	Examples   []struct {
		JobID    string `json:"job_id"`
		Position int
		Error    map[string]any
	}
}

func (s *stack) errors(batch, query string) (groups []errorGroup, records, others int) {
	s.t.Helper()
	var out struct {
		Items           []errorGroup
		Records, Others int
	}
	s.Do(http.MethodGet, "/flows/batches/"+batch+"/errors"+query, nil).Want(http.StatusOK).Into(&out)
	return out.Items, out.Records, out.Others
}

// TestBatchErrors_Groups: records that failed alike are one group, and a retry can take one.
func TestBatchErrors_Groups(t *testing.T) {
	t.Parallel()
	s, f, flow := serveFussy(t)
	batch := s.trigger(flow, fussyRows(5, "good", "exists", "phone", "exists"))
	s.await(batch)
	groups, records, others := s.errors(batch, "")
	require.Len(t, groups, 2)
	assert.Equal(t, []int{15, 0}, []int{records, others})
	exists, phone := groups[0], groups[1]
	assert.Equal(t, []any{10, "failed", 5, "failed"}, []any{exists.Count, exists.Status, phone.Count, phone.Status})
	assert.Equal(t, map[string]any{"code": "provider_refused", "message": "The provider refused the call (status 409)",
		"step_id": "s",
		"task_id": "t", "provider_status": 409.0, "provider_code": "EXISTS",
		"provider_message": "Contact # exists with '#'"}, exists.Error)
	assert.Equal(t, "phone must be E.164", phone.Error["provider_message"])
	require.Len(t, exists.Examples, 3)
	for i, position := range []int{1, 3, 5} {
		e := exists.Examples[i]
		assert.Equal(t, fmt.Sprintf("%s.%d", batch, position), e.JobID)
		assert.Equal(t, position, e.Position)
		assert.Equal(t, fmt.Sprintf("Contact %d exists with 'x%[1]d'", 10+position/4), e.Error["provider_message"])
		assert.Equal(t, s.get("/flows/jobs/" + e.JobID)["error"], e.Error)
	}
	none, _, _ := s.errors(batch, "?status=unresolved")
	assert.Empty(t, none)
	s.other.Do(http.MethodGet, "/flows/batches/"+batch+"/errors", nil).Detail(http.StatusNotFound, "Batch not found")

	all := s.trigger(flow, fussyRows(3, "exists", "phone"))
	s.await(all)

	f.mend()
	whole := s.Do(http.MethodPost, "/flows/batches/"+all+"/retry", `{"groups":["`+phone.ID+
		`"]}`).Want(http.StatusOK).JSON()
	assert.EqualValues(t, 3, whole["record_count"],
		"groups have the same ids in another batch, of which no job was well")
	retry := func(body string) string {
		return s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", body).Want(http.StatusOK).
			JSON()["batch_id"].(string)
	}
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", `{"groups":["nothing"]}`).Want(http.StatusConflict)
	again := retry(`{"groups":["` + phone.ID + `"]}`)
	s.await(again)
	assert.Equal(t, map[string]int{"completed": 5}, counted(s.get("/flows/batches/"+again)))
	assert.Equal(t, []int{2, 2}, []int{f.sent("/phone/14"), f.sent("/exists/14")}, "those that exist are two")
	rest := retry(`{"groups":["` + phone.ID + `","` + exists.ID + `"]}`)
	s.await(rest)
	assert.Equal(t, map[string]int{"completed": 10}, counted(s.get("/flows/batches/"+rest)), "the others are done")
}

// TestBatchErrors_Resolve settles what is in doubt alike, group by group.
func TestBatchErrors_Resolve(t *testing.T) {
	t.Parallel()
	s, f, flow := serveFussy(t)
	batch := s.trigger(flow, fussyRows(6, "fire", "good", "phone"))
	s.until(batch, func(b map[string]any) bool { return counted(b)["unresolved"] == 6 })
	groups, _, _ := s.errors(batch, "?status=unresolved")
	require.Len(t, groups, 1)
	fire := groups[0]
	assert.Equal(t, []any{"outcome_unknown", "node # is on fire"}, []any{fire.Error["code"],
		fire.Error["provider_message"]})
	assert.Equal(t, 6, fire.Count)

	path := "/flows/batches/" + batch + "/resolve"
	s.Do(http.MethodPost, path, `{"outcome":"accepted","expected_count":7}`).
		Detail(http.StatusConflict, "6 jobs are in doubt, not 7; look at them again")
	settled := func(body string, resolved, remaining float64) {
		t.Helper()
		got := s.Do(http.MethodPost, path, body).Want(http.StatusOK).JSON()
		assert.Equal(t, map[string]any{"resolved": resolved, "remaining": remaining}, got)
	}
	settled(`{"outcome":"accepted","groups":["nothing"]}`, 0, 0)
	settled(`{"outcome":"accepted","status":"needs_reconcile"}`, 0, 0)
	s.other.Do(http.MethodPost, path, `{"outcome":"accepted"}`).Detail(http.StatusNotFound, "Batch not found")
	s.resolve(batch, 0, `{"outcome":"rejected","note":"not there"}`)
	f.mend()
	settled(`{"outcome":"requeue","groups":["`+fire.ID+`"],"expected_count":5,"note":"they lost it"}`, 5, 0)
	s.await(batch)
	assert.Equal(t, map[string]int{"completed": 11, "failed": 7}, counted(s.get("/flows/batches/"+batch)))
	assert.Equal(t, []int{1, 2, 2}, []int{f.sent("/fire/10"), f.sent("/fire/11"), f.sent("/fire/15")})
	first := s.get("/flows/executions/" + batch + ".15.1")
	assert.Equal(t, []any{"cancelled", 1.0}, []any{first["status"], first["run"]})
	assert.Contains(t, first["error"].(map[string]any)["message"], "they lost it")
	settled(`{"outcome":"accepted"}`, 0, 0)
	s.Do(http.MethodPost, path, `{"outcome":"lost","status":"failed"}`).Invalid("body.outcome enum", "body.status enum")
}

// TestBatchErrors_ResolveBulk settles the rest of a bulk call at once, each record in its own place of it.
func TestBatchErrors_ResolveBulk(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(700))))
	s.doubt(batch, "unresolved")
	s.resolve(batch, 300, `{"outcome":"accepted"}`)
	s.resolve(batch, 0, `{"outcome":"requeue"}`)
	got := s.Do(http.MethodPost, "/flows/batches/"+batch+"/resolve",
		`{"outcome":"rejected","note":"no list","expected_count":698}`).
		Want(http.StatusOK).JSON()
	assert.Equal(t, map[string]any{"resolved": 698.0, "remaining": 0.0}, got)
	want := map[string]int{"accepted": 1, "rejected": 698, "queued": 1}
	require.Equal(t, want, counted(s.get("/flows/batches/"+batch)))
	groups, records, _ := s.errors(batch, "")
	require.Len(t, groups, 1)
	assert.Equal(t, []any{698, 698, "resolved_by_person"}, []any{records, groups[0].Count, groups[0].Error["code"]})
	var wrong, state string
	var places int
	require.NoError(t, s.owner.QueryRow(t.Context(),
		`SELECT count(*), count(*) FILTER (WHERE call_row <> position)::text,
		(SELECT string_agg(state, ' ') FROM flow.call) FROM flow.resolution`).Scan(&places, &wrong, &state))
	assert.Equal(t, []any{700, "0", "settled"}, []any{places, wrong, state},
		"the place in the call is that in the batch")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)

	again := s.trigger(s.define(uploadSteps), `{"records":[{"id":"a"},{"id":"b"}]}`)
	s.doubt(again, "unknown")
	s.Do(http.MethodPost, "/flows/batches/"+again+"/cancel", nil).Want(http.StatusOK)
	s.Do(http.MethodPost, "/flows/batches/"+again+"/resolve", `{"outcome":"requeue"}`).Detail(http.StatusConflict,
		"Batch sends nothing any more: its jobs cannot be queued again; resolve the job as accepted or rejected")
	s.Do(http.MethodPost, "/flows/batches/"+again+"/resolve", `{"outcome":"accepted"}`).Want(http.StatusOK)
	assert.Equal(t, map[string]int{"accepted": 2}, counted(s.get("/flows/batches/"+again)))
}

// TestBatchErrors_ResolveBesides: what has to run again of which several calls are in doubt runs again once.
func TestBatchErrors_ResolveBesides(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	modify := func(id string) string {
		return `{"id":"` + id + `","action_id":"dialer__api__modify","credential_id":"CRED",
			"params":{"list":"l","key":"{{ input.id }}","fields":{"a":1}}}`
	}
	flow := s.define(`[{"id":"one","tasks":[` + modify("a") + `,` + modify("b") + `]}]`)
	batch := s.trigger(flow, `{"records":[{"id":"a"},{"id":"b"}]}`)
	s.doubt(batch, "unresolved")
	got := s.Do(http.MethodPost, "/flows/batches/"+batch+"/resolve", `{"outcome":"requeue"}`).Want(http.StatusOK).JSON()
	assert.Equal(t, map[string]any{"resolved": 2.0, "remaining": 0.0}, got)
	assert.Equal(t, map[string]int{"queued": 2}, counted(s.get("/flows/batches/"+batch)))
	runs := s.pages("/flows/executions?batch_id="+batch, 50)
	assert.Len(t, runs, 4, "two runs of each")

	batch = s.trigger(flow, `{"records":[{"id":"a"},{"id":"b"}]}`)
	s.doubt(batch, "unresolved")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/resolve", `{"outcome":"accepted"}`).Want(http.StatusOK)
	assert.Equal(t, "completed", s.get("/flows/batches/" + batch)["status"])
}
