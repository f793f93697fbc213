package provider

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flowlane/internal/platform/catalog"
)

// asked is a platform that is asked by calls: of SOAP or of JSON, as COUNTERS and CALL say.
const asked = `id: asked
name: Asked
description: Tells what it counts when it is called.
status: active
account:
  time_zone: UTC
  time_zones: {127.0.0.1: Europe/London}
  whoami: {action: asked__api__ask, account_number: return.domain, account_name: return.name}
  counters:
    action: asked__api__ask
    every_seconds: 30
    COUNTERS
services:
  - id: asked__api
    name: API
    description: One operation.
    kind: api
    protocol: PROTOCOL
    auth_method: basic_auth
    base_url: https://asked.example
    requires_connection: true
    status: active
    SOAP
    credential_fields:
      - {name: username, label: User, type: string, required: true, secret: false}
      - {name: password, label: Password, type: password, required: true, secret: true}
    rate_buckets:
      upload: {label: Uploads, default_lane: bulk, windows: {60: 20}}
    actions:
      - id: asked__api__ask
        name: Ask
        description: Asks.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        buckets: [upload]
        params_schema: {type: object}
        call: CALL
`

func askedPlatform(t *testing.T, url string, with ...string) (*Sender, *catalog.Platform, *catalog.Service) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "asked.yaml"), []byte(strings.NewReplacer(with...).Replace(asked)),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load(catalog.Options{Dir: dir, BaseURLs: map[string]string{"asked": url}})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := c.Platform("asked")
	s, _ := c.Service("asked__api")
	return newTestSender(t, hostOf(url)), p, s
}

func askedSecret(t *testing.T, url string) Secret {
	t.Helper()
	s, err := NewSecret(Spec{
		Method: "basic_auth", PlatformID: "asked", Origins: []string{url},
		Fields: map[string]string{"username": "ann", "password": "s3cret-word"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	askedSOAP = `{body: {"t:ask": {}}, soap: {action: ""}, answer: {success: [200], cases: [
            {when: '{{ answer.fault.name == "DeniedFault" }}', is: refused}, {when: '{{ answer.fault.name == "BusyFault" }}', is: retry_later, wait_seconds: 5}]}}`
	askedJSON = `{method: POST, path: /limits, body: {what: all}, answer: {success: [200]}}`

	bySOAP = "items: return\n    within: counter\n    window_seconds: timeout\n    bucket: type\n" +
		"    names: {Upload: upload}\n    limit: limit\n    value: value"
	byName = "items: limits\n    names: {Daily: upload}\n    window: 60\n    limit: Max\n    remaining: Remaining"
	byList = "items: limits\n    bucket: name\n    window_seconds: window\n    value: used"
)

func soapAnswer(content string) string {
	return `<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>` + content +
		`</e:Body></e:Envelope>`
}

// TestCounters_Asked: counters are read from answers to calls of SOAP and of JSON, be they nested, named or told by
// what is left.
func TestCounters_Asked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		counters, call, answer string
		want                   []Counter
	}{
		"nested, by other names": {
			bySOAP, askedSOAP, soapAnswer(
				`<r><return><counter><limit>20</limit><type>Upload</type><value>3</value></counter><counter><limit>9</limit><type>Other</type>` +
					`<value>1</value></counter><timeout>60</timeout></return><return><counter><limit>400</limit><type>Upload</type><value>7</value></counter><timeout>3600</timeout></return></r>`),
			[]Counter{{"upload", 60, 20, 3}, {"upload", 3600, 400, 7}},
		},
		"one element": {bySOAP, askedSOAP,
			soapAnswer(`<r><return><counter><limit>20</limit><type>Upload</type><value>3</value></counter><timeout>60</timeout></return></r>`), []Counter{{"upload", 60, 20, 3}}},
		"no number": {bySOAP, askedSOAP,
			soapAnswer(`<r><return><counter><limit>20</limit><type>Upload</type><value>3x</value></counter><timeout>60</timeout></return></r>`), nil},
		"none": {bySOAP, askedSOAP, soapAnswer(`<r/>`), nil},
		"an object, left": {byName, askedJSON,
			`{"limits":{"Daily":{"Max":15,"Remaining":11},"Other":{"Max":1,"Remaining":1}}}`,
			[]Counter{{"upload", 60, 15, 4}}},
		"left without limit": {byName, askedJSON, `{"limits":{"Daily":{"Remaining":11}}}`, nil},
		"a list without caps": {byList, askedJSON, `{"limits":[{"name":"upload","window":60,"used":4}]}`,
			[]Counter{{"upload", 60, 0, 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			soap := c.call == askedSOAP
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				user, _, _ := r.BasicAuth()
				if r.Method != http.MethodPost || user != "ann" || !strings.Contains(string(body),
					map[bool]string{true: "<t:ask/>", false: `{"what":"all"}`}[soap]) {
					t.Errorf("asked %s by %s: %s", r.Method, user, body)
				}
				w.Header().Set("Content-Type", map[bool]string{true: "text/xml", false: "application/json"}[soap])
				_, _ = io.WriteString(w, c.answer)
			}))
			defer srv.Close()
			protocol, extra := "REST", ""
			if soap {
				protocol, extra = "SOAP", `soap: {version: "1.1", namespaces: {t: "urn:t"}}`
			}
			s, p, svc := askedPlatform(t, srv.URL, "COUNTERS", c.counters, "CALL", c.call, "PROTOCOL", protocol, "SOAP",
				extra)
			got, _, err := s.Counters(t.Context(), p, svc, askedSecret(t, srv.URL))
			if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
				t.Errorf("counters are %+v, error %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestWhoami_Asked: an action tells the account, and its cases what is wrong with a credential; the host tells the time
// zone.
func TestWhoami_Asked(t *testing.T) {
	t.Parallel()
	fault := func(name string) string {
		return soapAnswer(`<e:Fault><faultcode>e:Server</faultcode><faultstring>Not s3cret now</faultstring><detail><` +
			name + `/></detail></e:Fault>`)
	}
	for name, c := range map[string]struct {
		status            int
		answer, want, say string
	}{
		"account": {200, soapAnswer(`<r><return><domain>77</domain><name>Demo</name></return></r>`), "", ""},
		"unnamed": {200, soapAnswer(`<r/>`), UnknownClass, "names no account"},
		"denied":  {500, fault("DeniedFault"), PermissionDenied, "DeniedFault"},
		"busy":    {500, fault("BusyFault"), RateLimitedClass, "BusyFault"},
		"failed":  {500, fault("OddFault"), UnknownClass, "OddFault"},
		"401":     {401, "", AuthFailed, "401"},
		"503":     {503, "<html>", UnknownClass, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/xml")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			}))
			defer srv.Close()
			s, p, svc := askedPlatform(t, srv.URL, "COUNTERS", bySOAP, "CALL", askedSOAP, "PROTOCOL", "SOAP",
				"SOAP", `soap: {version: "1.1", namespaces: {t: "urn:t"}}`)
			a, err := s.Whoami(t.Context(), p, svc, askedSecret(t, srv.URL))
			var failed *ProbeError
			switch {
			case c.want == "" && (err != nil || a != Account{Number: "77", Name: "Demo", TimeZone: "Europe/London"}):
				t.Errorf("account is %+v, error %v", a, err)
			case c.want != "" && (!errors.As(err, &failed) || failed.Class != c.want ||
				!strings.Contains(failed.Details, c.say)):
				t.Errorf("error is %v; want %s with %q", err, c.want, c.say)
			}
		})
	}
}
