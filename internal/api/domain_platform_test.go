package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// mailer is a metered platform beside the dialer; $BUCKET stands for its budget.
const mailer = `
id: mailer
name: Mailer
description: Sends mail.
status: active
docs_url: https://mailer.example/docs
account:
  time_zone: UTC
  whoami: {path: /whoami, account_number: id}
services:
  - id: mailer__api
    name: API
    description: Sends mail.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://mailer.example
    docs_url: https://mailer.example/docs
    requires_connection: true
    status: active
    credential_fields:
      - {name: api_key, label: Key, type: password, required: true, secret: true}
    rate_buckets:
      send: {label: Sending, default_lane: interactive, $BUCKET}
    actions:
      - id: mailer__api__send
        name: Send
        description: Sends one mail.
        buckets: [send]
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, properties: {to: {type: string}}}
        output_schema: {}
        call:
          method: POST
          path: /send
          body: {to: "{{ params.to }}"}
          answer: {success: [200], refused: [400], retry_later: [{status: 429, wait_seconds: 1}]}`

// mailerStack serves the mailer with this budget, whose calls are answered by send, and has a credential of its
// account.
func mailerStack(t *testing.T, workers bool, bucket string,
	send http.HandlerFunc) (s *stack, credential, domain string) {
	t.Helper()
	return serveMailer(t, workers, strings.ReplaceAll(mailer, "$BUCKET", bucket), send)
}

// serveMailer is a mailerStack whose catalog says this.
func serveMailer(t *testing.T, workers bool, text string, send http.HandlerFunc) (s *stack, credential, domain string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mailer.yaml"), []byte(text), 0o600))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /whoami", func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte(`{"id":"m1"}`))
	})
	mux.HandleFunc("POST /send", send)
	platform := httptest.NewServer(mux)
	t.Cleanup(platform.Close)
	s = serveStack(t, workers, func(c *app.Config) {
		c.CatalogDir, c.BaseURLs["mailer"] = dir, platform.URL
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(platform.URL, "http://"))
	})
	made := s.Do(http.MethodPost, "/credentials",
		`{"name":"m","platform_id":"mailer","auth_method":"api_key","credentials":{"api_key":"k"},
		"api_key_placement":{"header_name":"Authorization","scheme":"Bearer"}}`).Want(http.StatusCreated).JSON()
	return s, made["id"].(string), "/platforms/mailer/domains/" + made["tenancy_id"].(string)
}

// mails defines a flow of one task that has the mailer send to somebody, once.
func (s *stack) mails(credential, to string) (id string) {
	s.t.Helper()
	return s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"mailer__api__send","credential_id":%q,
		"retry":{"max_attempts":1},"params":{"to":%q}}]}]`, credential, to))
}

// TestDomain_Platforms: each operation on Domains works for every platform, and names a Domain of that platform alone.
func TestDomain_Platforms(t *testing.T) {
	t.Parallel()
	s, credential, domain := mailerStack(t, false, "windows: {60: 10}", http.NotFound)
	id := strings.TrimPrefix(domain, "/platforms/mailer/domains/")
	only := func(platform, tenancy string) {
		items := s.pages("/platforms/"+platform+"/domains", 2)
		require.Len(t, items, 1)
		assert.Equal(t, tenancy, field[string](t, items[0], "tenancy_id"))
	}
	only("mailer", id)
	only("dialer", s.tenancy)
	assert.Empty(t, s.pages("/platforms/core/domains", 2), "it meters nothing")
	s.Do(http.MethodGet, "/platforms/nothing/domains", nil).Detail(http.StatusNotFound, "Platform not found")

	hold := s.openPause(domain, `{"duration_seconds":600}`)["id"].(string)
	for _, op := range []struct {
		method, path string
		body         any
	}{
		{"GET", "", nil},
		{"GET", "/headroom", nil},
		{"GET", "/queue", nil},
		{"GET", "/attribution", nil},
		{"GET", "/usage-history", nil},
		{"GET", "/margins", nil},
		{"PUT", "/margins/send", `{"margin_percent":50}`},
		{"GET", "/lanes", nil},
		{"PUT", "/lanes/bulk", `{"weight":3}`},
		{"POST", "/estimate", `{"bucket":"send","record_count":3}`},
		{"POST", "/refresh-limits", nil},
		{"GET", "/pauses", nil},
		{"PATCH", "/pauses/" + hold, `{"duration_seconds":900}`},
		{"POST", "/resume", nil},
	} {
		s.Do(op.method, "/platforms/dialer/domains/"+id+op.path, op.body).Detail(http.StatusNotFound,
			"Domain not found")
		s.Do(op.method, "/platforms/mailer/domains/"+s.tenancy+op.path, op.body).Detail(http.StatusNotFound,
			"Domain not found")
		s.Do(op.method, domain+op.path, op.body).Want(http.StatusOK)
	}
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+id+"/pause", nil).Detail(http.StatusNotFound, "Domain not found")
	assert.Equal(t, []any{credential}, s.get(domain)["credential_ids"])
	minute := s.get(domain + "/headroom")["buckets"].(object)["send"].(object)["windows"].(object)["60"].(object)
	assert.Equal(t, 5.0, minute["cap"], "half of the catalog's")
}

// TestRates_Rolling: no second holds more calls than a rolling window allows, no more are under way than the budget
// allows at once, and headroom shows the window beside those of the contract.
func TestRates_Rolling(t *testing.T) {
	t.Parallel()
	const perSecond, atOnce, records = 6, 2, 20
	var mu sync.Mutex
	var arrived []time.Time
	var underWay, most int
	s, credential, domain := mailerStack(t, true,
		fmt.Sprintf(`max_in_flight: %d, windows: {86400: 1000}, further_windows: [
		{seconds: 1, calls: %d, kind: rolling}, {seconds: 300, calls: 900, kind: aligned}]`, atOnce, perSecond),
		func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			arrived = append(arrived, time.Now())
			underWay++
			most = max(most, underWay)
			mu.Unlock()
			<-time.After(10 * time.Millisecond)
			mu.Lock()
			underWay--
			mu.Unlock()
			_, _ = w.Write([]byte(`{}`))
		})
	batch := s.trigger(s.mails(credential, "{{ input.to }}"),
		`{"records":[`+strings.TrimSuffix(strings.Repeat(`{"to":"a@b.example"},`, records), ",")+`]}`)
	assert.Equal(t, map[string]int{"completed": records}, counted(s.await(batch)))
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, arrived, records)
	for i := perSecond; i < records; i++ {
		assert.Greater(t, arrived[i].Sub(arrived[i-perSecond]), time.Second, "call %d", i)
	}
	assert.LessOrEqual(t, most, atOnce)
	head := s.get(domain + "/headroom")["buckets"].(object)["send"].(object)
	assert.Equal(t, 20.0, head["windows"].(object)["86400"].(object)["used"])
	further := head["further_windows"].([]any)
	require.Len(t, further, 2)
	first, second := further[0].(object), further[1].(object)
	assert.Equal(t, []any{1.0, "rolling", 6.0}, []any{first["seconds"], first["kind"], first["cap"]})
	assert.Equal(t, []any{300.0, "aligned", 900.0}, []any{second["seconds"], second["kind"], second["cap"]})
	bucket := s.get("/catalog/services/mailer__api")["rate_buckets"].(object)["send"].(object)
	assert.Equal(t, 2.0, bucket["max_in_flight"])
	assert.Equal(t, object{"seconds": 1.0, "calls": 6.0, "kind": "rolling"}, bucket["further_windows"].([]any)[0])
	queue := s.get(domain + "/queue")["buckets"].(object)["send"].(object)["completion"].(object)
	assert.Equal(t, "empty", queue["binding_source"])
}

// TestRates_Told: what the headers of answers tell is taken over, in each of their forms: the plan's limit, and what
// others spent. Nothing is sent that the platform would refuse.
func TestRates_Told(t *testing.T) {
	t.Parallel()
	const plan, others = 10, 6
	number := strconv.Itoa
	for name, tell := range map[string]func(left int) map[string]string{
		"X-RateLimit": func(left int) map[string]string {
			return map[string]string{"X-RateLimit-Limit": number(plan), "X-RateLimit-Remaining": number(left)}
		},
		"RateLimit-Limit": func(left int) map[string]string {
			return map[string]string{"RateLimit-Limit": number(plan), "RateLimit-Remaining": number(left),
				"RateLimit-Reset": "40000"}
		},
		"RateLimit": func(left int) map[string]string {
			return map[string]string{"RateLimit-Policy": fmt.Sprintf(`"burst";q=7;w=1, "day";q=%d;w=86400`, plan),
				"RateLimit": fmt.Sprintf(`"burst";r=7;t=1, "day";r=%d;t=40000`, left)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var taken, refused atomic.Int32
			s, credential, domain := mailerStack(t, true, "windows: {86400: 100}", func(w http.ResponseWriter,
				_ *http.Request) {
				spent := others + int(taken.Add(1))
				if spent > plan {
					refused.Add(1)
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				for name, value := range tell(plan - spent) {
					w.Header().Set(name, value)
				}
				_, _ = w.Write([]byte(`{}`))
			})
			flow := s.mails(credential, "{{ input.to }}")
			day := func() object {
				return inside(s.get(domain+"/headroom"), "buckets", "send", "windows", "86400").(object)
			}
			assert.Equal(t, 100.0, day()["cap"], "the catalog's")
			s.await(s.trigger(flow, `{"records":[{"to":"a@b.example"}]}`))
			assert.Equal(t, []any{10.0, 7.0, 3.0}, []any{day()["cap"], day()["used"], day()["remaining"]})
			s.trigger(flow, `{"records":[`+strings.TrimSuffix(strings.Repeat(`{"to":"a@b.example"},`, 5), ",")+`]}`)
			s.eventually(func() bool { return taken.Load() == 4 && day()["remaining"] == 0.0 })
			assert.Equal(t, 2.0, s.get(domain + "/queue")["totals"].(object)["queued_records"])
			assert.Zero(t, refused.Load())
		})
	}
}
