package api_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/dispatch"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/provider/platformsim"
	"flowlane/internal/run"
)

type callBody struct {
	Size   int
	Text   string
	Base64 bool
}

type call struct {
	ID, Purpose, Outcome, Lane string
	About                      *string `json:"about_call_id"`
	ActionID                   string  `json:"action_id"`
	CredentialID               *string `json:"credential_id"`
	TenancyID                  *string `json:"tenancy_id"`
	Attempt                    int
	RecordCount                int `json:"record_count"`
	Batches                    []struct {
		BatchID string `json:"batch_id"`
		StepID  string `json:"step_id"`
		TaskID  string `json:"task_id"`
	}
	State   *string
	Failed  *string `json:"failed_at"`
	Error   map[string]any
	Request *struct {
		Method, URL string
		Body        callBody
	}
	Response *struct {
		Status  int
		Headers map[string]string
		Body    callBody
	}
	QueuedAt   time.Time  `json:"queued_at"`
	ClaimedAt  time.Time  `json:"claimed_at"`
	SentAt     *time.Time `json:"sent_at"`
	AnsweredAt *time.Time `json:"answered_at"`
}

// calls are those that a query finds, page by page.
func (s *stack) calls(query string) (out []call) {
	s.t.Helper()
	for cursor := ""; ; {
		var page struct {
			Items []call
			Next  *string `json:"next_cursor"`
		}
		s.Do(http.MethodGet, "/flows/calls?limit=3&"+query+cursor, nil).Want(http.StatusOK).Into(&page)
		if out = append(out, page.Items...); page.Next == nil {
			return out
		}
		cursor = "&cursor=" + *page.Next
	}
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// TestCalls: whatever came of a call, what it sent and was answered can be read, cut and without secrets.
func TestCalls(t *testing.T) {
	t.Parallel()
	const secret = "hush-hush-hush"
	long := strings.Repeat("é", 3000)
	mux := http.NewServeMux()
	answer := func(path string, status int, media, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("X-Request-Id", "req-1 "+r.Header.Get("X-Key"))
			w.Header().Set("X-Ratelimit-Remaining", "7")
			w.Header().Set("Set-Cookie", "a=b")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	answer("/refused", 422, "application/json", `{"code":"E1","message":"you sent `+secret+`"}`)
	answer("/fine", 201, "application/json", `{"of":"`+long+`"}`)
	answer("/binary", 400, "image/png", "\x89PNG\xff")
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if assert.NoError(t, err) {
			assert.NoError(t, conn.Close())
		}
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("begun"))
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done() // the caller has gone
	})
	receiver, secured := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(receiver.Close)
	t.Cleanup(secured.Close)
	closed := httptest.NewServer(mux)
	closed.Close()
	host := strings.TrimPrefix(receiver.URL, "http://")
	s := serveStack(t, true, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, host, strings.TrimPrefix(secured.URL, "https://"),
			strings.TrimPrefix(closed.URL, "http://"))
	})
	key := s.made("/credentials", fmt.Sprintf(
		`{"name":"k","platform_id":"core","auth_method":"api_key","allowed_origins":[%q,%q,%q,
		"https://no-such-name.invalid"],"credentials":{"api_key":%q},"api_key_placement":{"header_name":"X-Key"}}`,
		receiver.URL, secured.URL, closed.URL, secret))
	type want struct {
		address, outcome, code, failedAt, state string
		status, calls                           int
	}
	cases := map[string]want{
		"refused": {receiver.URL + "/refused?a=b&Access_Token=x&echo=" + secret, "refused", "provider_refused", "",
			"refused", 422, 1},
		"fine":    {receiver.URL + "/fine", "success", "", "", "settled", 201, 1},
		"binary":  {receiver.URL + "/binary", "refused", "provider_refused", "", "refused", 400, 1},
		"cut":     {receiver.URL + "/cut", "unknown", "outcome_unknown", "write|wait", "settled", 0, 2},
		"short":   {receiver.URL + "/short", "unknown", "outcome_unknown", "read", "settled", 200, 2},
		"slow":    {receiver.URL + "/slow", "unknown", "outcome_unknown", "wait", "settled", 0, 2},
		"dns":     {"https://no-such-name.invalid/x", "not_arrived", "provider_unreachable", "dns", "refused", 0, 2},
		"connect": {closed.URL + "/x", "not_arrived", "provider_unreachable", "connect", "refused", 0, 2},
		"tls":     {secured.URL + "/x", "not_arrived", "provider_unreachable", "tls", "refused", 0, 2},
	}
	batches := map[string]string{}
	for name, c := range cases {
		timeout := 10 // more than a busy machine keeps the service from its turn
		if name == "slow" {
			timeout = 5
		}
		batches[name] = s.trigger(s.define(
			fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":%q,
			"timeout_seconds":%d,"retry":{"max_attempts":2,"initial_seconds":0.1},"params":{"method":"PUT","url":%q,
			"body":{"ab":%q,"text":"{{ input.text }}"}}}]}]`, key, timeout, c.address, secret)),
			fmt.Sprintf(`{"input_data":{"text":%q}}`, long))
	}
	fractions := 0
	for name, c := range cases {
		batch := batches[name]
		s.settledJob(batch)
		got := s.calls("batch_id=" + batch)
		require.Len(t, got, c.calls, name)
		for i, one := range got {
			assert.Equal(t, c.calls-i, one.Attempt, "%s: newest first", name)
			assert.Equal(t, []string{c.outcome, c.state}, []string{one.Outcome, deref(one.State)}, name)
			assert.Contains(t, strings.Split(c.failedAt, "|"), deref(one.Failed), name)
			assert.Equal(t, []any{"core__http__request", key, 1, "interactive"},
				[]any{one.ActionID, deref(one.CredentialID), one.RecordCount, one.Lane}, name)
			assert.Nil(t, one.TenancyID)
			require.Len(t, one.Batches, 1)
			assert.Equal(t, []string{batch, "s", "t"}, []string{one.Batches[0].BatchID, one.Batches[0].StepID,
				one.Batches[0].TaskID})
			require.NotNil(t, one.SentAt, name)
			assert.False(t, one.SentAt.Before(one.ClaimedAt.Add(-time.Second)) || one.AnsweredAt.Before(*one.SentAt),
				name)
			fractions += one.SentAt.Nanosecond()
			assert.Equal(t, "PUT", one.Request.Method)
			assert.Equal(t, len(`{"ab":"","text":""}`)+len(secret)+len(long), one.Request.Body.Size, name)
			assert.True(t, strings.HasPrefix(one.Request.Body.Text, `{"ab":"**************","text":"éé`),
				one.Request.Body.Text)
			assert.Len(t, one.Request.Body.Text, 1023, "1 KiB, but for a character that is cut")
			if c.status == 0 {
				assert.Nil(t, one.Response, name)
			} else {
				assert.Equal(t, c.status, one.Response.Status, name)
			}
			if c.code == "" {
				assert.Nil(t, one.Error, name)
			} else {
				assert.Equal(t, c.code, one.Error["code"], name)
			}
			var again call
			res := s.Do(http.MethodGet, "/flows/calls/"+one.ID, nil).Want(http.StatusOK)
			res.Into(&again)
			assert.Equal(t, one, again, name)
			assert.NotContains(t, string(res.Body), secret)
			s.other.Do(http.MethodGet, "/flows/calls/"+one.ID, nil).Detail(http.StatusNotFound, "Call not found")
		}
		job := batch + ".0"
		assert.Equal(t, got, s.calls("job_id="+job), name)
		assert.Empty(t, s.calls("job_id="+batch+".1"), name)
	}

	assert.Positive(t, fractions, "times to the millisecond")
	refused := s.calls("batch_id=" + batches["refused"])[0]
	assert.Equal(t, receiver.URL+"/refused?a=b&Access_Token=***&echo="+strings.Repeat("*", len(secret)),
		refused.Request.URL)
	headers := map[string]string{"content-type": "application/json", "date": refused.Response.Headers["date"],
		"x-request-id": "req-1 " + strings.Repeat("*", len(secret)), "x-ratelimit-remaining": "7"}
	assert.Equal(t, headers, refused.Response.Headers)
	assert.Equal(t, `{"code":"E1","message":"you sent **************"}`, refused.Response.Body.Text)
	assert.Equal(t, []any{"E1", "you sent **************"}, []any{refused.Error["provider_code"],
		refused.Error["provider_message"]})
	fine := s.calls("batch_id=" + batches["fine"])[0]
	assert.Equal(t, []any{6009, 4095}, []any{fine.Response.Body.Size, len(fine.Response.Body.Text)})
	assert.Equal(t, callBody{5, "iVBOR/8=", true}, s.calls("batch_id=" + batches["binary"])[0].Response.Body)

	all := s.calls("")
	assert.Len(t, all, 15)
	for query, n := range map[string]int{
		"outcome=success": 1, "outcome=unknown": 6, "status=422": 1, "status=201": 1, "status=200": 2, "code=E1": 1,
		"code=provider_refused": 2,
		"code=E1&status=400":    0, "action_id=core__http__request&outcome=not_arrived": 6, "action_id=x": 0,
		"tenancy_id=" + s.tenancy: 0,
		"batch_id=x":              0, "job_id=x": 0, "batch_id=" + batches["cut"] + "&status=200": 0, "batch_id=" +
			batches["cut"] +
			"&job_id=" + batches["fine"] + ".0": 0,
	} {
		assert.Len(t, s.calls(query), n, query)
	}
	s.Do(http.MethodGet, "/flows/calls?limit=201", nil).Want(http.StatusUnprocessableEntity)
	s.Do(http.MethodGet, "/flows/calls/x", nil).Detail(http.StatusNotFound, "Call not found")
	var none struct{ Items []call }
	for _, query := range []string{"", "batch_id=" + batches["cut"], "job_id=" + batches["cut"] + ".0"} {
		s.other.Do(http.MethodGet, "/flows/calls?"+query, nil).Want(http.StatusOK).Into(&none)
		assert.Empty(t, none.Items, query)
	}
}

// TestCalls_Bulk: a call that carries records of several batches is listed with each, and with none of the others.
func TestCalls_Bulk(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "n",
		Value: []byte(`1`)}}})
	flow := s.define(`[{"id":"s","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
		"when":"{{ input.n != 2 }}","params":{"list":"demo","row":"{{ input }}"}}]}]`)
	one := s.trigger(flow, `{"records":[{"id":"a","n":1},{"id":"b","n":2},{"id":"c","n":3}]}`)
	two := s.trigger(flow, `{"records":[{"id":"d","n":4}]}`)
	s.restart(true)
	s.await(one)
	s.await(two)
	got := s.calls("batch_id=" + one)
	require.Len(t, got, 1)
	assert.Equal(t, got, s.calls("batch_id="+two))
	assert.Equal(t, got, s.calls("tenancy_id="+url.QueryEscape(s.tenancy)))
	assert.Equal(t, got, s.calls("credential_id="+*got[0].CredentialID))
	assert.Empty(t, s.calls("credential_id="+one))
	assert.Empty(t, s.calls("credential_id=x"))
	assert.Len(t, got[0].Batches, 2)
	assert.Equal(t, []any{"success", 3, s.tenancy}, []any{got[0].Outcome, got[0].RecordCount, *got[0].TenancyID})
	for job, n := range map[string]int{one + ".0": 1, one + ".1": 0, one + ".2": 1, one + ".3": 0, two + ".0": 1} {
		assert.Len(t, s.calls("job_id="+job), n, job)
	}
}

// TestCalls_SenderLost: a call whose process ended is listed once somebody finds out, with what is known of it.
func TestCalls_SenderLost(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(uploadSteps), `{"records":[{"id":"a","n":1}]}`)
	s.doubt(batch, "intent")
	s.restart(true)
	require.NoError(t, pg.InTx(t.Context(), s.owner, func(ctx context.Context, tx pgx.Tx) error {
		return s.app.Scheduler.Wake(ctx, tx, dispatch.DueReconcile, run.DispatchKey(s.tenancy, "upload"), time.Time{})
	}))
	s.until(batch, func(b map[string]any) bool { return counted(b)["needs_reconcile"] == 1 })
	got := s.calls("job_id=" + batch + ".0&purpose=call")
	require.Len(t, got, 1)
	lost := got[0]
	assert.Equal(t, []any{"dialer__api__upload", 1, "unknown", "unknown"}, []any{lost.ActionID, lost.RecordCount,
		lost.Outcome, *lost.State})
	assert.Equal(t, map[string]any{"code": "outcome_unknown", "provider_code": nil, "provider_message": nil,
		"message": "The provider " +
			"gave no clear answer: the process that sent the call ended before an answer came"}, lost.Error)
	assert.Nil(t, lost.Request)
	assert.Nil(t, lost.SentAt)
	assert.Equal(t, s.began(batch), lost.QueuedAt)
}

// began is when the records of a batch were queued, as times of calls show it.
func (s *stack) began(batch string) (at time.Time) {
	s.t.Helper()
	require.NoError(s.t, s.owner.QueryRow(s.t.Context(),
		"SELECT greatest(created_at, scheduled_at) FROM flow.batch WHERE id = $1", batch).Scan(&at))
	return at.UTC().Truncate(time.Millisecond)
}

// TestCalls_Queued: a call tells since when its work was ready: since its batch began, its step did, or the pause
// before another attempt was over.
func TestCalls_Queued(t *testing.T) {
	t.Parallel()
	s, host, _ := serveAnswers(t, map[string]answerCase{"fine": {status: 200, body: `{}`}, "busy": {status: 503}})
	step := func(id, path, more string) string {
		return fmt.Sprintf(`{"id":%q,"tasks":[{"id":"t%s","action_id":"core__http__request","params":{"url":"http://%s/%s"}%s}]}`, id, id, host, path, more)
	}
	flow := s.define("[" + step("one", "fine", "") + "," +
		step("two", "busy", `,"retry":{"max_attempts":2,"initial_seconds":0.2}`) + "]")
	for name, body := range map[string]string{
		"alone":   `{"input_data":{}}`,
		"several": `{"records":[{},{}]}`,
		"scheduled": fmt.Sprintf(`{"input_data":{},"scheduled_at":%q}`,
			time.Now().Add(2*time.Second).UTC().Format(time.RFC3339)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := *s
			own.t, own.Client = t, s.In(t)
			batch := own.trigger(flow, body)
			own.await(batch)
			got := own.calls("job_id=" + batch + ".0")
			require.Len(t, got, 3)
			again, second, first := got[0], got[1], got[2]
			assert.Equal(t, []string{"two", "two", "one"}, []string{again.Batches[0].StepID, second.Batches[0].StepID,
				first.Batches[0].StepID})
			assert.Equal(t, own.began(batch), first.QueuedAt)
			assert.True(t, second.QueuedAt.After(first.QueuedAt), "the step before was over")
			assert.False(t, second.QueuedAt.Before(first.ClaimedAt))
			assert.False(t, again.QueuedAt.Before(second.ClaimedAt.Add(100*time.Millisecond)),
				"half of the pause at least")
			for _, c := range got {
				assert.False(t, c.ClaimedAt.Before(c.QueuedAt))
			}
		})
	}
}

// TestCalls_QueuedTogether: records that were queued together and are too many for one call wait since the same time,
// whichever call takes them: also one that fails, of which nothing is known from memory.
func TestCalls_QueuedTogether(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	flow := p.define(fmt.Sprintf(`[{"id":"one","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]},
		{"id":"two","tasks":[{"id":"u","action_id":"airtable__records__upsert","credential_id":%q,"retry":{"max_attempts":5,"initial_seconds":0.1},
			"params":{"base":"app1","table":"People","merge_on":["Email"],"record":{"fields":"{{ input }}"}}}]}]`,
		p.signIn("airtable")))
	for name, failures := range map[string]int{"fine": 0, "failed": 2} {
		for range failures {
			require.NoError(t, p.sims["airtable"].AddFault(platformsim.Fault{Kind: "status",
				Action: "airtable__records__upsert"}))
		}
		batch := p.trigger(flow, recordsOf(numbered(25, `{"Email":"%d@example.com"}`)))
		require.Equal(t, map[string]int{"accepted": 25}, counted(p.await(batch)), name)
		first := map[time.Time]int{} // calls of records that were not sent before
		for _, c := range p.calls("batch_id=" + batch) {
			assert.True(t, c.QueuedAt.After(p.began(batch)), "%s: when the step before was over", name)
			assert.False(t, c.ClaimedAt.Before(c.QueuedAt), name)
			if c.Attempt == 1 {
				first[c.QueuedAt]++
			}
		}
		assert.Len(t, first, 1, "%s: all since the same time", name)
		if failures == 0 {
			assert.Equal(t, []int{3}, slices.Collect(maps.Values(first)), "ten records at most are in a call")
		}
	}
}

// TestCalls_Kept: the operator says which are kept, and for how long.
func TestCalls_Kept(t *testing.T) {
	t.Parallel()
	for keep, want := range map[dispatch.Keep][]string{dispatch.KeepAll: {"success", "refused"},
		dispatch.KeepFailed: {"refused"}, dispatch.KeepNone: nil} {
		t.Run(string(keep), func(t *testing.T) {
			t.Parallel()
			s, host, _ := serveAnswers(t, map[string]answerCase{"fine": {status: 200, body: `{}`},
				"bad": {status: 400}},
				func(c *app.Config) { c.Dispatch.Keep = keep })
			var got []string
			for _, path := range []string{"bad", "fine"} {
				s.settledJob(s.trigger(s.define(
					fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",
					"params":{"url":"http://%s/%s"}}]}]`, host, path)), `{"input_data":{}}`))
			}
			for _, c := range s.calls("") {
				got = append(got, c.Outcome)
			}
			assert.Equal(t, want, got)
		})
	}
}

// TestCalls_Questions: what is asked about a call stands with it, for each of its records, and of many questions the
// newest are kept.
func TestCalls_Questions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "news.yaml"), []byte(news), 0o600))
	j := &jobs{bad: map[string][]int{}, polls: map[string]int{}}
	platform := httptest.NewServer(j)
	t.Cleanup(platform.Close)
	s := serveStack(t, false, func(c *app.Config) { c.CatalogDir, c.BaseURLs["news"] = dir, platform.URL })
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"news__api__import","params":{"row":"{{ input }}"}}]}]`)
	batch := s.trigger(flow, `{"records":[{"kind":"denied"},{"kind":"denied"}]}`)
	other := s.trigger(flow, `{"records":[{"kind":"denied"}]}`)
	s.restart(true)
	polls := "batch_id=" + batch + "&purpose=poll"
	s.eventually(func() bool { return len(s.calls(polls)) > 0 })
	all := s.calls("batch_id=" + batch + "&purpose=call")
	require.Len(t, all, 1)
	made, poll := all[0], s.calls(polls)[0]
	assert.Equal(t, []any{"call", "pending", "awaiting", 3}, []any{made.Purpose, made.Outcome, deref(made.State),
		made.RecordCount})
	assert.Nil(t, made.About)
	assert.Equal(t, []any{"poll", made.ID, "news__api__job", 1, 0}, []any{poll.Purpose, deref(poll.About),
		poll.ActionID, poll.Attempt, poll.RecordCount})
	assert.Equal(t, made.Batches, poll.Batches)
	assert.Equal(t, []any{"GET", platform.URL + "/jobs/denied", 401}, []any{poll.Request.Method, poll.Request.URL,
		poll.Response.Status})
	assert.Equal(t, "the key may not read jobs", poll.Error["provider_message"])
	assert.True(t, poll.QueuedAt.After(made.ClaimedAt))
	var one call
	s.Do(http.MethodGet, "/flows/calls/"+poll.ID, nil).Want(http.StatusOK).Into(&one)
	assert.Equal(t, poll, one)
	s.other.Do(http.MethodGet, "/flows/calls/"+poll.ID, nil).Detail(http.StatusNotFound, "Call not found")

	_, err := s.owner.Exec(t.Context(), `
		INSERT INTO flow.exchange (org_id, id, about, purpose, domain, action_id, lane, attempt, records, batch_id, step_no, task_no, positions, outcome, claimed_at, detail)
		SELECT org_id, ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, id, 'poll', domain, action_id, lane, 1, 0, batch_id, 0, 0, positions,
			'success', claimed_at, '' FROM flow.exchange, generate_series(1, 30) i WHERE id = $1`, made.ID)
	require.NoError(t, err)
	j.mu.Lock()
	j.admits = true
	j.mu.Unlock()
	assert.Equal(t, map[string]int{"accepted": 2}, counted(s.await(batch)))
	kept := s.calls("job_id=" + batch + ".1&purpose=poll")
	require.Len(t, kept, 20)
	assert.Equal(t, []string{"news__api__errors", "news__api__job"}, []string{kept[0].ActionID, kept[1].ActionID},
		"newest first")
	assert.True(t, slices.ContainsFunc(kept,
		func(c call) bool { return c.ID == "00000000-0000-7000-8000-000000000030" }))
	assert.False(t, slices.ContainsFunc(kept,
		func(c call) bool { return c.ID == "00000000-0000-7000-8000-000000000001" }))
	assert.Len(t, s.calls("batch_id="+batch), 21)
	assert.Empty(t, s.calls("batch_id="+batch+"&purpose=lookup"))
	s.await(other)
	assert.Equal(t, kept[:2], s.calls("job_id=" + other + ".0&purpose=poll")[:2], "of each batch")
	s.Do(http.MethodGet, "/flows/calls?purpose=x", nil).Want(http.StatusUnprocessableEntity)
	points := s.get("/flows/batches/" + batch + "/timeline")["points"].([]any)
	require.Len(t, points, 1, "what the service asks carries nothing")
	assert.Equal(t, 1.0, points[0].(map[string]any)["calls"])
}
