package torture_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
)

const stepsRecords = 2000

// stepsFlow asks a slow address that fails at times, changes a record with what it said, and uploads a row of both
// outputs.
const stepsFlow = `[
	{"id":"ask","tasks":[{"id":"work","action_id":"core__http__request",` + again + `,"params":{"method":"POST",
		"url":"SIM/work?key={{ input.id }}&fail_rate=0.1&latency_ms=40","idempotency_header":"Idempotency-Key",
		"body":{"id":"{{ input.id }}","square":"{{ input.n * input.n }}"}}}]},
	{"id":"change","tasks":[{"id":"write","action_id":"dialer__api__modify","credential_id":"CRED",` + again + `,
		"params":{"list":"changed","key":"{{ input.id }}","fields":{"square":"{{ steps.ask.work.output.body.received.square }}","done":"{{ steps.ask.work.output.body.n }}"}}}]},
	{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",` + again + `,
		"params":{"list":"sent","row":{"id":"{{ input.id }}","square":"{{ steps.ask.work.output.body.received.square }}","revision":"{{ steps.change.write.output.revision }}"}}}]}]`

// Three steps over 2,000 records, each step with what the ones before it said, while the process is killed again and
// again.
func TestSteps(t *testing.T) {
	t.Parallel()
	w := setup(t, 1)
	w.everywhere(dialersim.AccountSettings{LatencyByOperation: map[string]dialersim.Range{"modify": {MinMS: 5,
		MaxMS: 40}, "upload": {MinMS: 20, MaxMS: 200}}})
	w.front.rows = map[string]string{}
	p := w.serve(hasty).ready(w)
	b := w.trigger(p, w.define(0, stepsFlow), stepsRecords)
	n, killed, caught := 3+kills(t)/10, 0, 0
	for killed < n {
		// The kills are spread over the whole run: a record takes two calls of its own, and a share of an upload.
		far := 2 * stepsRecords * (killed + 1) / (n + 1)
		w.until("the run gets on", time.Minute,
			func() bool { return w.count("SELECT count(*) FROM flow.exchange WHERE records > 0") >= far })
		pass(t.Context(), w.between(0, 300*time.Millisecond))
		p.kill()
		killed++
		caught += len(w.inFlight())
		p = w.serve(hasty)
	}
	w.settle(2 * time.Minute)
	w.checkSteps()
	again := w.checkExecutions(p.ready(w), b)
	p.kill()
	sum := w.tally()
	t.Logf("%d kills with %d calls under way; %d records, %d calls, %d of them retries; %d unknown outcomes: "+
		"lookups found %d and did not find %d; %d executions show more than one attempt",
		killed, caught, stepsRecords, sum.Calls, sum.Retries, sum.Unknown, sum.Found, sum.NotFound, again)
	if killed == 0 || caught == 0 || again == 0 {
		t.Error("nothing was interrupted, or nothing was tried again: the test shows nothing")
	}
}

// trigger uploads records and starts a batch of them over HTTP.
func (w *world) trigger(p *process, def uuid.UUID, n int) *liveBatch {
	w.Helper()
	client := apitest.NewClient(w.T, p.url, w.key)
	var set, started struct {
		ID      string `json:"id"`
		BatchID string `json:"batch_id"`
	}
	client.Do("POST", "/data/record-sets", map[string]any{}).Want(http.StatusCreated).Into(&set)
	records := make([]map[string]any, n)
	for i := range records {
		records[i] = map[string]any{"id": fmt.Sprintf("s%d", i), "n": i}
	}
	client.Do("POST", "/data/record-sets/"+set.ID+"/records", map[string]any{"chunk_index": 0,
		"records": records}).Want(http.StatusOK)
	client.Do("POST", "/data/record-sets/"+set.ID+"/seal", map[string]any{"expected_count": n}).Want(http.StatusOK)
	client.Do("POST", "/flows/definitions/"+def.String()+"/trigger", map[string]any{"record_set_id": set.ID}).Want(
		http.StatusOK).Into(&started)
	b := &liveBatch{id: uuid.MustParse(started.BatchID), org: w.org, records: n, accepted: n, started: time.Now()}
	w.batches = append(w.batches, b)
	return b
}

// checkSteps checks what the platform got in the three steps.
func (w *world) checkSteps() {
	w.Helper()
	w.arrivedOnce(dialersim.KindHTTP, stepsRecords, "work")
	w.arrivedOnce(dialersim.KindUpload, stepsRecords, "sent")
	wrong := 0
	for i := range stepsRecords {
		want := fmt.Sprintf(`{"id":"s%d","square":%d,"revision":1}`, i, i*i)
		got := w.front.rows[fmt.Sprintf("s%d", i)]
		fields := w.changed(fmt.Sprintf("s%d", i))
		if got == want && fields == fmt.Sprintf(`{"done":1,"square":%d}`, i*i) {
			continue
		}
		if wrong++; wrong <= 5 {
			w.Errorf("record %d: the row was %s, the changed fields were %s", i, got, fields)
		}
	}
	if wrong > 0 {
		w.Errorf("%d records have wrong results", wrong)
	}
}

// changed returns the fields of a record on the platform, with sorted names.
func (w *world) changed(key string) string {
	w.Helper()
	req := must(http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+"/lists/changed/records/"+key, nil))
	req.SetBasicAuth(w.accounts[0], "x")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var record struct{ Fields map[string]any }
	if err := json.NewDecoder(resp.Body).Decode(&record); err != nil {
		w.Fatal(err)
	}
	return string(must(json.Marshal(record.Fields)))
}

// execution is what the test reads of one.
type execution struct {
	Status string
	Steps  []struct {
		ID, Status string
		Tasks      []struct {
			ID, Status string
			Attempts   int
			Output     any
		}
	}
}

// checkExecutions reads every record's path, and returns how many show more than one attempt.
func (w *world) checkExecutions(p *process, b *liveBatch) (again int) {
	w.Helper()
	client := apitest.NewClient(w.T, p.url, w.key)
	wrong := 0
	for i := range b.records {
		var e execution
		answer := client.Do("GET", fmt.Sprintf("/flows/executions/%s.%d.1", b.id, i), nil).Want(http.StatusOK).Into(&e)
		whole := e.Status == "completed" && len(e.Steps) == 3
		more := false
		for s := range e.Steps {
			step := &e.Steps[s]
			whole = whole && step.ID == []string{"ask", "change", "send"}[s] && step.Status == "completed" &&
				len(step.Tasks) == 1 &&
				step.Tasks[0].Status == "completed" && step.Tasks[0].Attempts >= 1 && step.Tasks[0].Output != nil
			more = more || whole && step.Tasks[0].Attempts > 1
		}
		if more {
			again++
		}
		if !whole {
			if wrong++; wrong <= 3 {
				w.Errorf("the path of record %d is not whole: %s", i, answer.Body)
			}
		}
	}
	if wrong > 0 {
		w.Errorf("the paths of %d records are not whole", wrong)
	}
	lines := client.Do("GET", "/flows/batches/"+b.id.String()+"/results?format=ndjson", nil).Want(http.StatusOK).Body
	if n := bytes.Count(lines, []byte("\n")); n != b.records || strings.Count(string(lines),
		`"accepted"`) != b.records {
		w.Errorf("the results have %d lines, want %d, each accepted", n, b.records)
	}
	return again
}
