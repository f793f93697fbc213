package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
	"flowlane/test/servers"
)

const dialerWS = `id: five
name: Five
description: A dialer.
status: active
services:
  - id: five__ws
    name: WS
    description: Lists.
    kind: api
    protocol: SOAP
    auth_method: basic_auth
    credential_fields:
      - {name: username, label: User, type: string, required: true, secret: false}
      - {name: password, label: Password, type: password, required: true, secret: true}
    base_url: https://five.example/ws
    requires_connection: true
    status: active
    soap: {namespaces: {ser: "http://service.admin.ws.five9.com/"}, security: username_digest}
    actions:
      - id: five__ws__simple
        name: Simple
        description: Adds one.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, properties: {list: {}, values: {}}}
        call:
          body:
            "ser:addRecordToListSimple":
              listName: "{{ params.list }}"
              listUpdateSimpleSettings:
                callAsap: false
                fieldsMapping: [{columnNumber: 1, fieldName: number1, key: true}, {columnNumber: 2, fieldName: first_name, key: false}]
                updateCRM: false
              record: {fields: "{{ params.values }}"}
          answer: {success: [200], reference: return.identifier}
`

// TestSOAP_Security holds the digest to the example of a fixed time and number: base64(SHA-1(nonce, created,
// password)).
func TestSOAP_Security(t *testing.T) {
	t.Parallel()
	svc, act := action(t, catalogOf(t, dialerWS), "five__ws__simple")
	secret, err := NewSecret(Spec{Method: "basic_auth", PlatformID: "five", Fields: map[string]string{"username": "ann",
		"password": "s3cret-word"}})
	require.NoError(t, err)
	r, err := Prepare(svc, act, json.RawMessage(`{"list":"a<b"}`), nil, secret, "")
	require.NoError(t, err)
	assert.NotContains(t, bodyOf(r), "ann")
	s := NewSender(Options{Now: func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) },
		Random: strings.NewReader("0123456789abcdef")})
	before := r
	require.NoError(t, s.sign(t.Context(), &r))
	assert.Empty(t, before.Body[1], "the prepared request has the token")
	for _, want := range []string{"<wsse:Username>ann</wsse:Username>", ">MDEyMzQ1Njc4OWFiY2RlZg==</wsse:Nonce>",
		"<wsu:Created>2030-01-02T03:04:05.000Z</wsu:Created>",
		"#PasswordDigest\">ZHCnMoVtcOCR9Mw4RiCKZwxQFQA=</wsse:Password>", "<listName>a&lt;b</listName>"} {
		assert.Contains(t, bodyOf(r), want)
	}
	assert.NotContains(t, bodyOf(r), "s3cret-word")
	assert.Error(t, s.sign(t.Context(), &before), "a number was used twice")
}

// TestRead_Fault: what faults prove, by their codes.
func TestRead_Fault(t *testing.T) {
	t.Parallel()
	_, act := action(t, catalogOf(t, dialerWS), "five__ws__simple")
	envelope := func(body string) string {
		return `<S:Envelope xmlns:S="http://schemas.xmlsoap.org/soap/envelope/"><S:Body>` + body +
			`</S:Body></S:Envelope>`
	}
	for name, c := range map[string]struct {
		status int
		body   string
		want   Kind
		code   string
	}{
		"accepted": {200, envelope(`<n:r xmlns:n="u"><return><identifier>i-1</identifier></return></n:r>`),
			Success, ""},
		"no reference": {200, envelope(`<n:r xmlns:n="u"/>`), Unknown, ""},
		"no envelope":  {200, `<html/>`, Unknown, ""},
		"JSON":         {200, `{"return":{"identifier":"i-1"}}`, Unknown, ""},
		"DOCTYPE": {200, `<!DOCTYPE a>` + envelope(`<r><return><identifier>i-1</identifier></return></r>`),
			Unknown, ""},
		"client": {500, envelope(
			`<S:Fault><faultcode>S:Client.Bad</faultcode><faultstring>no</faultstring></S:Fault>`), Refused,
			"Client.Bad"},
		"server": {500, envelope(
			`<S:Fault><faultcode>S:Server</faultcode><faultstring>no</faultstring></S:Fault>`), Unknown, "Server"},
		"server in 200": {200, envelope(
			`<S:Fault><faultcode>S:Server</faultcode><faultstring>no</faultstring></S:Fault>`), Unknown, "Server"},
	} {
		r := Read(act, Answer{Sent: Answered, Status: c.status, Header: http.Header{"Content-Type": {"text/xml"}},
			Body: []byte(c.body), soap: true}, 0)
		assert.Equal(t, c.want, r.Kind, name)
		assert.Equal(t, c.code, r.Code, name)
	}
}

// TestSOAP_Schema holds a rendered request to the types that the vendor's description gives: each element is one of its
// parent's type, in the order of its sequence.
func TestSOAP_Schema(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "..", "shared", "data", "wsdl", "five9_config_webservices_v13.wsdl")
	text, err := os.ReadFile(path)
	if err != nil {
		servers.Missing(t, "there is no %s", path)
	}
	svc, act := action(t, catalogOf(t, dialerWS), "five__ws__simple")
	r, err := Prepare(svc, act, json.RawMessage(`{"list":"a","values":["5","x"]}`), nil,
		Placeholder(Spec{Method: "basic_auth", PlatformID: "five"}), "")
	require.NoError(t, err)
	rendered := treeOf(t, []byte(bodyOf(r)))
	call := rendered.child("Body").children[0]
	types := map[string]*node{}
	treeOf(t, text).each(func(n *node) {
		if n.name == "complexType" && n.attributes["name"] != "" {
			types[n.attributes["name"]] = n
		}
	})
	require.NotEmpty(t, types)
	fits(t, call, types[call.name], types)
	assert.Contains(t, string(bytes.Join(r.Body, nil)), "CREDENTIAL")
}

// fits reports elements that their type does not have, or not there.
func fits(t *testing.T, n, of *node, types map[string]*node) {
	t.Helper()
	require.NotNil(t, of, "the description has no type for %s", n.name)
	var sequence []*node
	of.each(func(e *node) {
		if e.name == "element" {
			sequence = append(sequence, e)
		}
	})
	at := 0
	for _, c := range n.children {
		for at < len(sequence) && sequence[at].attributes["name"] != c.name {
			at++
		}
		if at == len(sequence) {
			t.Errorf("%s: %s is no element of its type, or at the wrong place", n.name, c.name)
			return
		}
		_, kind, _ := strings.Cut(sequence[at].attributes["type"], ":")
		if len(c.children) > 0 {
			fits(t, c, types[kind], types)
		}
	}
}

func catalogOf(t *testing.T, text string) *catalog.Catalog {
	t.Helper()
	file := filepath.Join(t.TempDir(), "platform.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := catalog.Load(catalog.Options{Files: []string{file}})
	require.NoError(t, err)
	return c
}
