package app_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"flowlane/internal/app"
)

// TestOperator_Metrics: what callers name in addresses stands in no metric, and no number of addresses makes it grow.
func TestOperator_Metrics(t *testing.T) {
	t.Parallel()
	p := start(t)
	get := func(path, key string) (int, string) { return get(t, p.URL()+path, key) }
	_, _ = get("/v1/account/me", p.key)
	_, _ = get("/v1/account/me", "")
	_, _ = get("/v1/data/stores/people/records/ada@example.com", p.key)
	_, _ = get("/v1/data/stores/people/records/bob@example.com", "")
	before := len(metricsOf(t, p))
	for i := range 100 {
		for _, path := range []string{"/v1/catalog/platforms/canary-%d", "/v1/data/stores/canary-%d/records/x",
			"/v1/canary-%d", "/canary-%d", "/v1/flows/webhooks/canary-%d/x"} {
			_, _ = get(fmt.Sprintf(path, i), p.key)
		}
	}
	lines := metricsOf(t, p)
	if text := strings.Join(lines, "\n"); strings.Contains(text, "canary") || strings.Contains(text, "@example.com") ||
		strings.Contains(text, "people") {
		t.Error("metrics tell what callers named")
	}
	if n := len(lines) - before; n > 100 {
		t.Errorf("500 addresses added %d lines", n)
	}
	for _, want := range []string{
		`flowlane_http_requests_total{operation="getMe",status="200"} 1`,
		`flowlane_http_requests_total{operation="getMe",status="401"} 1`,
		`flowlane_http_requests_total{operation="getStoreRecord",status="404"} 101`,
		`flowlane_http_requests_total{operation="",status="404"} 200`,
		`flowlane_due_rows{kind="housekeeping",state="waiting"} 1`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func metricsOf(t *testing.T, p *process) []string {
	t.Helper()
	status, body := get(t, p.OperatorURL()+"/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("GET /metrics: %d %s", status, body)
	}
	return strings.Split(body, "\n")
}

// getAs is a GET with a bearer token.
func getAs(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return do(t, req)
}

func TestOperator_Pages(t *testing.T) {
	t.Parallel()
	open := start(t)
	token := "operators-of-acme-only"
	locked := startWith(t, func(cfg *app.Config) { cfg.Operator.Token = token })
	for path, want := range map[string]string{
		"/healthz": `"ok"`, "/readyz": `"ok"`, "/metrics": "flowlane_database_up 1", "/debug/pprof/": "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		if status, body := get(t, open.OperatorURL()+path, ""); status != http.StatusOK || !strings.Contains(body,
			want) {
			t.Errorf("GET %s: %d %s", path, status, body)
		}
		if status, body := getAs(t, locked.OperatorURL()+path, token); status != http.StatusOK ||
			!strings.Contains(body, want) {
			t.Errorf("GET %s with the token: %d %s", path, status, body)
		}
		for _, wrong := range []string{"", token[1:], token + "x", strings.ToUpper(token), locked.key} {
			status, body := getAs(t, locked.OperatorURL()+path, wrong)
			if health := strings.HasSuffix(path, "z"); health != (status == http.StatusOK) || !health &&
				status != http.StatusUnauthorized {
				t.Errorf("GET %s with the token %q: %d %s", path, wrong, status, body)
			}
		}
	}
	for _, path := range []string{"/", "/v1", "/debug/pprof/cmdline"} {
		if status, body := get(t, open.OperatorURL()+path, open.key); status != http.StatusNotFound {
			t.Errorf("GET %s: %d %s", path, status, body)
		}
	}
}

// TestOperator_Queue: the page shows what the views of ops do, to who has the token or is on this machine, and runs
// nothing.
func TestOperator_Queue(t *testing.T) {
	t.Parallel()
	open := start(t)
	token := "operators-of-acme-only"
	locked := startWith(t, func(cfg *app.Config) { cfg.Operator.Token = token })
	show := func(p *process, prepare func(r *http.Request)) (int, string, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.OperatorURL()+"/queue", nil)
		if err != nil {
			t.Fatal(err)
		}
		prepare(req)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body), res.Header
	}
	status, body, header := show(open, func(*http.Request) {})
	for _, want := range []string{"Operator&#39;s queue", "What waits for calls, by budget, lane and organization.",
		"<td>housekeeping</td>", "<td>batch_count</td>", `id="river_backlog"`} {
		if status != http.StatusOK || !strings.Contains(body, strings.ReplaceAll(want, "&#39;", "'")) {
			t.Errorf("the page lacks %s: %d %s", want, status, body)
		}
	}
	if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy,
		"default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "script") {
		t.Errorf("policy %q", policy)
	}
	if status, _, _ := show(open, func(r *http.Request) {
		r.Host =
			"rebound.example"
	}); status != http.StatusForbidden {
		t.Errorf("by the name of another site: %d", status)
	}
	for password, want := range map[string]int{token: http.StatusOK, "": http.StatusUnauthorized, token +
		"x": http.StatusUnauthorized, locked.key: http.StatusUnauthorized} {
		status, _, header := show(locked, func(r *http.Request) { r.SetBasicAuth("anna", password) })
		if status != want || (status == http.StatusUnauthorized) != strings.HasPrefix(header.Get("WWW-Authenticate"),
			"Basic ") {
			t.Errorf("with the password %q: %d %s", password, status, header.Get("WWW-Authenticate"))
		}
	}
	if status, _, _ := show(locked, func(*http.Request) {}); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
}

// TestOperator_Listen: whoever lets others reach the pages must give them a token.
func TestOperator_Listen(t *testing.T) {
	t.Parallel()
	const token = "operators-of-acme-only"
	for _, c := range []struct {
		operator app.Operator
		want     string
	}{
		{app.Operator{Listen: "0.0.0.0:0"}, "set FLOWLANE_OPERATOR_TOKEN"},
		{app.Operator{Listen: ":0"}, "set FLOWLANE_OPERATOR_TOKEN"},
		{app.Operator{Listen: "example.com:0"}, "set FLOWLANE_OPERATOR_TOKEN"},
		{app.Operator{Listen: "10.0.0.1:0"}, "set FLOWLANE_OPERATOR_TOKEN"},
		{app.Operator{Listen: "here"}, "HOST:PORT"},
		{app.Operator{Listen: "0.0.0.0:0", Token: "short"}, "16 characters"},
	} {
		_, err := app.New(t.Context(), app.Config{KEK: testKEK(t), Operator: c.operator})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.operator, err)
		}
	}
	taken := start(t)
	other := startWith(t, func(cfg *app.Config) {
		cfg.Operator = app.Operator{Listen: strings.TrimPrefix(taken.OperatorURL(), "http://"), OrFree: true}
	})
	if taken.OperatorURL() == other.OperatorURL() || other.OperatorURL() == "" {
		t.Errorf("beside %s it listens on %s", taken.OperatorURL(), other.OperatorURL())
	}
	for _, operator := range []app.Operator{{Listen: "0.0.0.0:0", Token: token}, {Listen: "localhost:0"},
		{Listen: "[::1]:0"}, {}} {
		p := startWith(t, func(cfg *app.Config) { cfg.Operator = operator })
		if got := p.OperatorURL() != ""; got != (operator.Listen != "") {
			t.Errorf("%+v listens: %t", operator, got)
		}
	}
}
