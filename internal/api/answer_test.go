package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// answerCase is what a receiver says to a request of a flow, and what becomes of the record.
type answerCase struct {
	method, params string
	status         int
	media, body    string
	// cut breaks the connection before an answer.
	cut bool

	want, code, message       string
	providerCode, providerSay string
}

const (
	personOnly = "; it cannot be asked whether it has taken the record: look there, " +
		"then resolve the job or have it sent again"
)

// shownStatus is the status that the error of a case shows.
func shownStatus(c answerCase) any {
	if c.status == 0 || c.code == "invalid_parameters" {
		return nil
	}
	return float64(c.status)
}

// TestHTTPRequest_Answers: the error of a record says what its receiver said, and what can be done, however the call
// came out.
func TestHTTPRequest_Answers(t *testing.T) {
	t.Parallel()
	const (
		refused = "The provider refused the call (status %d)"
		unclear = "The provider gave no clear answer: "
	)
	cases := map[string]answerCase{
		"message": {method: "POST", status: 422, body: `{"message": "phone must be E.164"}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 422),
			providerSay: "phone must be E.164"},
		"conflict": {method: "POST", status: 409, media: "application/problem+json",
			body: `{"title": "Conflict", "detail": "email is taken"}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 409),
			providerSay: "email is taken"},
		"soap": {method: "POST", status: 400, media: "text/xml",
			body: `<f><faultcode>Client</faultcode><faultstring>No list</faultstring></f>`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 400), providerCode: "Client",
			providerSay: "No list"},
		"errors": {method: "POST", status: 422, body: `{"errors":["name is too long","no phone"]}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 422),
			providerSay: "name is too long"},
		"errors in detail": {method: "POST", status: 400,
			body: `{"errors":[{"code":"E1","detail":"no list"},{"code":"E2","detail":"x"}]}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 400), providerCode: "E1",
			providerSay: "no list"},
		"precondition": {method: "POST", status: 412, body: `{"message":"changed meanwhile"}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 412),
			providerSay: "changed meanwhile"},
		"teapot": {method: "POST", status: 418, want: "failed", code: "provider_refused", message: fmt.Sprintf(refused,
			418)},
		"locked": {method: "POST", status: 423, body: `{"message":"in use"}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 423), providerSay: "in use"},
		"dependency": {method: "POST", status: 424, want: "failed", code: "provider_refused",
			message: fmt.Sprintf(refused, 424)},
		"failed": {method: "POST", status: 500, body: `{"error": {"code": "E7", "message": "boom"}}`,
			want: "unresolved", code: "outcome_unknown", message: unclear + "it failed (status 500)" + personOnly,
			providerCode: "E7", providerSay: "boom"},
		"cut": {method: "POST", cut: true, want: "unresolved", code: "outcome_unknown",
			message: unclear + "the connection broke before an answer came: the connection was closed" + personOnly},
		"redirect": {method: "POST", status: 302, want: "unresolved", code: "outcome_unknown",
			message: unclear + "it answered with a redirect, which is not followed (status 302)" + personOnly},
		"taken": {method: "POST", params: `,"outcome":{"success":[409]}`, status: 409, body: `{"id": 7}`,
			want: "completed"},
		"a lie": {method: "POST", params: `,"outcome":{"refused":[202]}`, status: 202, body: `{"error": "full"}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 202), providerSay: "full"},
		"again": {method: "POST", params: `,"outcome":{"retry":[409]}`, status: 409, body: `{"message": "locked"}`,
			want: "failed", code: "provider_refused", message: "The provider asked to come back later (status 409)",
			providerSay: "locked"},
		"unsure": {method: "POST", params: `,"outcome":{"unclear":[422]}`, status: 422, want: "unresolved",
			code:    "outcome_unknown",
			message: unclear + "its answer does not say what was done (status 422)" + personOnly},
		"harmless": {method: "PUT", status: 500, body: `{"message": "boom"}`, want: "failed", code: "outcome_unknown",
			message: unclear + "it failed (status 500)", providerSay: "boom"},
		"keyed": {method: "POST", params: `,"idempotency_header":"Key"`, status: 409, body: `{"message": "in use"}`,
			want: "failed", code: "provider_refused", message: fmt.Sprintf(refused, 409), providerSay: "in use"},
		"no list": {method: "POST", params: `,"outcome":{"success":7}`, want: "failed", code: "invalid_parameters"},
	}
	s, host, calls := serveAnswers(t, cases)
	for name, c := range cases {
		path := strings.ReplaceAll(name, " ", "-")
		step := fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","retry":{"max_attempts":2,"initial_seconds":1},
			"params":{"method":%q,"url":"http://%s/%s","body":{"a":1}%s}}]}]`, c.method, host, path, c.params)
		if name == "no list" {
			s.Do("POST", "/flows/definitions", map[string]any{"name": name, "steps": json.RawMessage(step)}).Want(
				http.StatusUnprocessableEntity)
			continue
		}
		batch := s.trigger(s.define(step), `{"input_data":{}}`)
		job := s.settledJob(batch)
		assert.Equal(t, c.want, job["status"], name)
		if c.want == "completed" {
			assert.Nil(t, job["error"], name)
			assert.EqualValues(t, 409, job["output"].(map[string]any)["status"], name)
			continue
		}
		want := map[string]any{"code": c.code, "message": c.message, "step_id": "s", "task_id": "t",
			"provider_status": shownStatus(c), "provider_code": some(c.providerCode),
			"provider_message": some(c.providerSay)}
		assert.Equal(t, want, job["error"], name)
		assert.Equal(t, want, inside(s.get("/flows/batches/"+batch+"/results"), "items", 0, "error"), name)
		run := s.execution(batch, 0)
		assert.Equal(t, want, run.Error, name)
		assert.Equal(t, want, run.Steps[0].Tasks[0].Error, name)
	}
	for path, n := range map[string]int32{"again": 2, "harmless": 2, "keyed": 1, "message": 1, "failed": 1,
		"precondition": 1, "teapot": 1, "locked": 1, "dependency": 1} {
		assert.Equal(t, n, calls[path].Load(), path)
	}
}

// TestHTTPRequest_Later: a call that is told by 429 to come back comes back, not before the time that the answer names,
// and loses no attempt.
func TestHTTPRequest_Later(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	arrived := map[string][]time.Time{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived[r.URL.Path] = append(arrived[r.URL.Path], time.Now())
		if len(arrived[r.URL.Path]) > 1 {
			return
		}
		if r.URL.Path == "/named" {
			w.Header().Set("Retry-After", "3")
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(receiver.Close)
	// Two names, because calls to one receiver wait together.
	_, port, _ := strings.Cut(strings.TrimPrefix(receiver.URL, "http://"), ":")
	hosts := map[string]string{"/named": "127.0.0.1:" + port, "/unnamed": "localhost:" + port}
	s, _, _ := serveAnswers(t, nil, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, hosts["/named"],
			hosts["/unnamed"])
	})
	batches := map[string]string{}
	for path, host := range hosts {
		batches[path] = s.trigger(s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",
			"retry":{"max_attempts":1},"params":{"method":"POST","url":"http://%s%s","body":{"a":1}}}]}]`, host, path)),
			`{"input_data":{}}`)
	}
	for path, least := range map[string]time.Duration{"/named": 3 * time.Second, "/unnamed": 0} {
		job := s.settledJob(batches[path])
		assert.Equal(t, []any{"completed", nil, 1.0}, []any{job["status"], job["error"], job["attempts"]}, path)
		assert.Len(t, s.calls("batch_id="+batches[path]+"&outcome=retry_later&status=429"), 1, path)
		assert.Len(t, s.calls("batch_id="+batches[path]), 2, path)
		mu.Lock()
		if assert.Len(t, arrived[path], 2, path) {
			assert.GreaterOrEqual(t, arrived[path][1].Sub(arrived[path][0]), least, path)
		}
		mu.Unlock()
	}
}

func some(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// serveAnswers starts a stack, and a receiver that answers each path as its case says.
func serveAnswers(
	t *testing.T, cases map[string]answerCase, options ...func(c *app.Config),
) (s *stack, host string, calls map[string]*atomic.Int32) {
	t.Helper()
	calls = map[string]*atomic.Int32{}
	mux := http.NewServeMux()
	for name, c := range cases {
		path, n := strings.ReplaceAll(name, " ", "-"), new(atomic.Int32)
		calls[path] = n
		mux.HandleFunc("/"+path, func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			if c.cut {
				if conn, _, err := w.(http.Hijacker).Hijack(); assert.NoError(t, err) {
					assert.NoError(t, conn.Close())
				}
				return
			}
			if c.media == "" {
				c.media = "application/json"
			}
			w.Header().Set("Content-Type", c.media)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		})
	}
	receiver := httptest.NewServer(mux)
	t.Cleanup(receiver.Close)
	host = strings.TrimPrefix(receiver.URL, "http://")
	allow := func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host, "127.0.0.1:1") }
	return serveStack(t, true, append(options, allow)...), host, calls
}

// settledJob waits until the one record of a batch is over, or left to a person.
func (s *stack) settledJob(batch string) (job map[string]any) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		job = s.get("/flows/jobs/" + batch + ".0")
		switch job["status"] {
		case "queued", "pending", "started", "needs_reconcile":
			return false
		}
		return true
	}, waitLimit, 10*time.Millisecond)
	return job
}

// TestHTTPRequest_Unreachable: where no connection comes about, the error says why.
func TestHTTPRequest_Unreachable(t *testing.T) {
	t.Parallel()
	secret := httptest.NewUnstartedServer(http.NotFoundHandler())
	secret.Config.ErrorLog = log.New(io.Discard, "", 0)
	secret.StartTLS()
	t.Cleanup(secret.Close)
	host := strings.TrimPrefix(secret.URL, "https://")
	s, _, _ := serveAnswers(t, nil, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	for address, cause := range map[string]string{
		"http://127.0.0.1:1/":                "no connection to 127.0.0.1:1: connection refused",
		"https://nothing-is-here.invalid/?k": "the name nothing-is-here.invalid",
		secret.URL:                           "the certificate is not accepted: ",
	} {
		batch := s.trigger(s.define(fmt.Sprintf(
			`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","retry":{"max_attempts":1},
			"params":{"method":"POST","url":%q}}]}]`, address)), `{"input_data":{}}`)
		e := s.settledJob(batch)["error"].(map[string]any)
		assert.Equal(t, "provider_unreachable", e["code"])
		assert.Contains(t, e["message"], "The provider cannot be reached: "+cause)
		assert.NotContains(t, e["message"], "?k")
	}
}

// TestBulk_Doubt: while it is found out what became of a call, the error of each of its records says why that is not
// known.
func TestBulk_Doubt(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Operation: "upload", Kind: "status", Status: http.StatusBadGateway, Accept: true,
		Count: 1})
	s.sim.AddFault(dialersim.Fault{Operation: "query", Kind: "status", Count: 100_000})
	batch := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(300))))
	s.until(batch, func(b map[string]any) bool { return counted(b)["needs_reconcile"] == 300 })
	message := "The provider gave no clear answer: it failed (status 502); whether it has taken the record is being " +
		"found out; the last question failed: it answered with status 503"
	s.saying(batch+".0", message)
	for _, position := range []int{0, 299} {
		job := s.get(fmt.Sprintf("/flows/jobs/%s.%d", batch, position))
		assert.Equal(t, "needs_reconcile", job["status"])
		e := job["error"].(map[string]any)
		assert.Equal(t, []any{"outcome_unknown", message, "send", "up"}, []any{e["code"], e["message"], e["step_id"],
			e["task_id"]})
	}
	results := s.pages("/flows/batches/"+batch+"/results", 100)
	require.Len(t, results, 300)
	assert.Contains(t, string(results[150]), message)

	s.sim.ClearFaults()
	s.await(batch)
	assert.Nil(t, s.get("/flows/jobs/" + batch + ".0")["error"])
}

// saying waits until the error of a job has this message.
func (s *stack) saying(job, message string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		e, _ := s.get("/flows/jobs/" + job)["error"].(object)
		assert.Equal(c, message, e["message"])
	}, waitLimit, 10*time.Millisecond)
}

// TestCalls_Log: each call that failed has one line in the log, without what the receiver said; others have theirs at
// debug.
func TestCalls_Log(t *testing.T) {
	t.Parallel()
	var lines logBuffer
	s, host, _ := serveAnswers(t, map[string]answerCase{
		"refused": {status: 422, body: `{"code": "bad_phone", "message": "ada@example.com has no phone"}`},
		"worded":  {status: 422, body: `{"code": "ada@example.com", "message": "m"}`},
		"fine":    {status: 200, body: `{}`},
	}, func(c *app.Config) {
		c.Log = slog.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	want := map[string]string{"refused": "INFO refused refused bad_phone 422", "worded": "INFO refused refused  422",
		"fine": "DEBUG success   0"}
	for path, line := range want {
		batch := s.trigger(s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",
			"params":{"url":"http://%s/%s?secret=1"}}]}]`, host, path)), `{"input_data":{}}`)
		s.settledJob(batch)
		var got []string
		for text := range strings.Lines(lines.String()) {
			if !strings.Contains(text, batch) || !strings.Contains(text, `"msg":"call"`) {
				continue
			}
			var l struct {
				Level, Outcome, Reason, Action, Domain string
				Code                                   string `json:"provider_code"`
				Method, Host                           string
				Status                                 int
			}
			require.NoError(t, json.Unmarshal([]byte(text), &l))
			got = append(got, fmt.Sprintf("%s %s %s %s %d", l.Level, l.Outcome, l.Reason, l.Code, l.Status))
			assert.Equal(t, []string{"core__http__request", "GET", host}, []string{l.Action, l.Method, l.Host})
			assert.NotContains(t, text, "secret")
			assert.NotContains(t, text, "ada@") // ids are hexadecimal: "ada" alone may stand in one
		}
		assert.Equal(t, []string{line}, got, path)
	}
}

// TestBulk_LeftToPerson: a call that is given up keeps what was said of it first.
func TestBulk_LeftToPerson(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Operation: "upload", Kind: "status", Status: http.StatusBadGateway, Accept: true,
		Count: 1})
	s.sim.AddFault(dialersim.Fault{Operation: "query", Kind: "status", Count: 100_000})
	batch := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(3))))
	s.until(batch, func(b map[string]any) bool { return counted(b)["needs_reconcile"] == 3 })
	s.saying(batch+".1", "The provider gave no clear answer: it failed (status 502); "+
		"whether it has taken the record is being found out; the last question failed: it answered with status 503")
	pgtest.MoveClock(t, s.owner, 3*24*time.Hour) // the platform has forgotten it
	s.until(batch, func(b map[string]any) bool { return counted(b)["unresolved"] == 3 })
	e := s.get("/flows/jobs/" + batch + ".1")["error"].(map[string]any)
	assert.Contains(t, e["message"], "The provider gave no clear answer: it failed (status 502); "+
		"the provider was asked for as long as it can be, and did not say; the last question failed: ")
	assert.Contains(t, e["message"], ": look there, then resolve the job or have it sent again")
}
