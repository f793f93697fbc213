package provider

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flowlane/internal/platform/catalog"
)

// clouds is a platform whose address stands in the answer with the token; PORT is that of a server on this machine.
const clouds = `id: clouds
name: Clouds
description: Tells its address with the token.
status: active
labels:
  instance: {token: instance_url, match: 'http://(127\.0\.0\.[0-9]+):PORT', values: [127.0.0.1]}
services:
  - id: clouds__api
    name: API
    description: Things.
    kind: api
    protocol: REST
    auth_method: oauth2
    base_url: http://{instance}:PORT/api
    requires_connection: true
    status: active
    check: /me
    credential_fields:
      - {name: client_id, label: Id, type: string, required: true, secret: false}
      - {name: client_secret, label: Secret, type: password, required: true, secret: true}
    actions:
      - id: clouds__api__get
        name: Get
        description: Gets a thing.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, properties: {id: {}}}
        call: {method: GET, path: '/things/{{ params.id }}', answer: {success: [200]}}
`

// TestSend_AddressOfToken: the call goes where the answer with its token says, and the token goes nowhere else.
func TestSend_AddressOfToken(t *testing.T) {
	t.Parallel()
	b := withIssuer(t)
	port := b.url[strings.LastIndex(b.url, ":")+1:]
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "clouds.yaml"), []byte(strings.ReplaceAll(clouds, "PORT", port)),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load(catalog.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	svc, act := action(t, c, "clouds__api__get")
	platform, _ := c.Platform("clouds")
	for at, want := range map[string]string{
		"http://127.0.0.1:" + port: "",
		"http://127.0.0.2:" + port: "not sent",
		"http://evil.example":      "not sent",
		"":                         "not sent",
	} {
		b.mu.Lock()
		before := b.calls
		b.refuse = func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"access_token":"t1","token_type":"Bearer","instance_url":%q}`, at)
		}
		b.mu.Unlock()
		spec := b.spec("")
		spec.PlatformID = "clouds"
		secret, err := NewSecret(*spec)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Prepare(svc, act, []byte(`{"id":"a b"}`), nil, secret, "")
		if err != nil || r.URL != "http://*:"+port+"/api/things/a%20b" {
			t.Fatalf("prepared %s, %v", r.URL, err)
		}
		ans := b.sender.Send(t.Context(), r)
		_, tested := b.sender.Whoami(t.Context(), platform, svc, secret)
		if want == "" {
			if ans.Status != http.StatusOK || tested != nil {
				t.Errorf("%s: %+v, test %v", at, ans, tested)
			}
			continue
		}
		var refused *ProbeError
		if ans.Sent != NotSent || !errors.As(ans.Err, &refused) || !strings.Contains(refused.Details,
			"http://{instance}:"+port+"/api") {
			t.Errorf("%s: %v, %v", at, ans.Sent, ans.Err)
		}
		if tested == nil || b.calls != before {
			t.Errorf("%s: test %v, %d calls", at, tested, b.calls-before)
		}
	}
	// What was prepared without a token is no address.
	ans := b.sender.Send(t.Context(), Request{Method: http.MethodGet, URL: "http://*:" + port + "/api"})
	if ans.Sent != NotSent || !errors.Is(ans.Err, ErrBadRequest) {
		t.Errorf("an open address: %v, %v", ans.Sent, ans.Err)
	}
}
