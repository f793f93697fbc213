package api_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// mailerStack serves the mailer with this budget, whose calls are answered by send, and has a credential of its account.
func mailerStack(t *testing.T, workers bool, bucket string, send http.HandlerFunc) (s *stack, credential, domain string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mailer.yaml"), []byte(strings.ReplaceAll(mailer, "$BUCKET", bucket)), 0o600))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /whoami", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":"m1"}`)) })
	mux.HandleFunc("POST /send", send)
	platform := httptest.NewServer(mux)
	t.Cleanup(platform.Close)
	s = serveStack(t, workers, func(c *app.Config) {
		c.CatalogDir, c.BaseURLs["mailer"] = dir, platform.URL
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(platform.URL, "http://"))
	})
	made := s.Do(http.MethodPost, "/credentials", `{"name":"m","platform_id":"mailer","auth_method":"api_key","credentials":{"api_key":"k"},
		"api_key_placement":{"header_name":"Authorization","scheme":"Bearer"}}`).Want(http.StatusCreated).JSON()
	return s, made["id"].(string), "/platforms/mailer/domains/" + made["tenancy_id"].(string)
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

	hold := s.openHold(domain, `{"duration_seconds":600}`)["id"].(string)
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
		s.Do(op.method, "/platforms/dialer/domains/"+id+op.path, op.body).Detail(http.StatusNotFound, "Domain not found")
		s.Do(op.method, "/platforms/mailer/domains/"+s.tenancy+op.path, op.body).Detail(http.StatusNotFound, "Domain not found")
		s.Do(op.method, domain+op.path, op.body).Want(http.StatusOK)
	}
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+id+"/pause", nil).Detail(http.StatusNotFound, "Domain not found")
	assert.Equal(t, []any{credential}, s.get(domain)["credential_ids"])
	minute := s.get(domain + "/headroom")["buckets"].(object)["send"].(object)["windows"].(object)["60"].(object)
	assert.Equal(t, 5.0, minute["cap"], "half of the catalog's")
}
