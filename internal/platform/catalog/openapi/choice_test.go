package openapi_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
)

const choices = `
openapi: 3.1.0
info: {title: Choices}
servers: [{url: "https://choices.example"}]
security: [{token: []}, {user: []}, {key: []}]
components:
  securitySchemes:
    token: {type: oauth2, flows: {authorizationCode: {authorizationUrl: "https://a.example", tokenUrl: "https://t.example", scopes: {}}}}
    machine: {type: oauth2, flows: {clientCredentials: {tokenUrl: "https://t.example/token", scopes: {}}}}
    user: {type: http, scheme: basic}
    key: {type: apiKey, in: query, name: k}
    bearer: {type: http, scheme: bearer}
paths:
  /orders:
    get: {operationId: orders.list, tags: [Orders], responses: {"200": {description: ok}}}
    post: {operationId: orders.make, tags: [Orders], security: [{key: []}], responses: {"200": {description: ok}}}
  /orders/{id}:
    get: {operationId: orders_list, tags: [Orders], responses: {"200": {description: ok}}}
    delete: {operationId: orders.cancel, tags: [Orders, Danger], security: [{token: []}, {machine: []}], responses: {"200": {description: ok}}}
  /ping:
    get: {operationId: ping, security: [], responses: {"200": {description: ok}}}
  /maybe:
    get: {operationId: maybe, security: [{bearer: []}, {}], responses: {"200": {description: ok}}}
`

func imported(t *testing.T, o openapi.Options) (*openapi.Result, *catalog.Catalog) {
	t.Helper()
	o.PlatformID = "c"
	r, err := openapi.Import([]byte(choices), o)
	if err != nil {
		t.Fatal(err)
	}
	return r, load(t, r)
}

// ways lists an import's actions, each with the way by which it authenticates.
func ways(c *catalog.Catalog) string {
	var out []string
	for _, s := range c.Services("c") {
		for _, a := range s.Actions {
			out = append(out, strings.TrimPrefix(a.ID, "c__")+" "+s.AuthMethod)
		}
	}
	return strings.Join(out, ", ")
}

func TestImport_Auth(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		auth []string
		want string
	}{
		// A fixed secret before a token, and of those the one that most operations take.
		{"chosen", nil, "orders__orders_list api_key, orders__orders_make api_key, orders__orders_list_2 api_key, " +
			"orders_2__orders_cancel oauth2, api__ping none, api_2__maybe api_key"},
		// What has no such way is left out, unless it needs none.
		{"told", []string{"user"},
			"orders__orders_list basic_auth, orders__orders_list_2 basic_auth, api__ping none, api__maybe none"},
		{"told an order", []string{"machine", "user", "key"},
			"orders__orders_list basic_auth, orders__orders_list_2 basic_auth, orders_2__orders_make api_key, " +
				"orders_3__orders_cancel oauth2, api__ping none, api__maybe none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, c := imported(t, openapi.Options{Auth: tc.auth})
			if got := ways(c); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if r.Actions+r.LeftOut != r.Operations || r.Skipped != 0 {
				t.Errorf("%+v", r)
			}
			for _, e := range r.Report {
				if e.Effect == openapi.LeftOut && !strings.Contains(e.Message, "--auth key") &&
					!strings.Contains(e.Message, "--auth token or --auth machine") {
					t.Errorf("what was left out does not say how it gets in: %s", e.Message)
				}
			}
		})
	}
	if _, err := openapi.Import([]byte(choices), openapi.Options{Auth: []string{"kye"}}); err == nil ||
		!strings.Contains(err.Error(), "token, machine, user, key, bearer") {
		t.Errorf("an unknown scheme: %v", err)
	}
}

// TestImport_Grants: tokens of oauth2 are got by the grants of the document, at its addresses where they are whole.
func TestImport_Grants(t *testing.T) {
	t.Parallel()
	const frame = `{"openapi": "3.1.0", "info": {"title": "Grants"}, "servers": [{"url": "https://grants.example"}], "security": [{"in": []}],
		"components": {"securitySchemes": {"in": %s}}, "paths": {"/things": {"get": {"operationId": "things", "responses": {"200": {"description": "ok"}}}}}}`
	for name, tc := range map[string]struct {
		scheme string
		want   catalog.SignIn
		fields string
	}{
		"a person": {`{"type": "oauth2", "flows": {"implicit": {}, "authorizationCode": {"authorizationUrl": "https://in.example/ask", "tokenUrl": "https://in.example/token"}}}`,
			catalog.SignIn{Grant: "authorization_code", TokenURL: "https://in.example/token",
				AuthorizeURL: "https://in.example/ask"}, "client_id client_secret?"},
		"a machine": {`{"type": "oauth2", "flows": {"authorizationCode": {}, "clientCredentials": {"tokenUrl": "https://in.example/token"}}}`,
			catalog.SignIn{Grant: "client_credentials", TokenURL: "https://in.example/token"},
			"client_id client_secret"},
		"a password": {`{"type": "oauth2", "flows": {"password": {"tokenUrl": "/token"}}}`,
			catalog.SignIn{Grant: "password"}, "client_id username password client_secret?"},
		"implicit": {`{"type": "oauth2", "flows": {"implicit": {"authorizationUrl": "https://in.example/ask"}}}`,
			catalog.SignIn{Header: "Authorization", Scheme: "Bearer"}, "api_key"},
		"a signature": {`{"type": "apiKey", "in": "header", "name": "Authorization", "x-amazon-apigateway-authtype": "awsSigv4"}`,
			catalog.SignIn{AWSService: "execute-api"}, "access_key_id secret_access_key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := openapi.Import(fmt.Appendf(nil, frame, tc.scheme), openapi.Options{PlatformID: "g"})
			if err != nil {
				t.Fatal(err)
			}
			s := load(t, r).Services("g")[0]
			var fields []string
			for _, f := range s.CredentialFields {
				fields = append(fields, f.Name+map[bool]string{false: "?"}[f.Required])
			}
			if got := strings.Join(fields, " "); !reflect.DeepEqual(s.SignIn, tc.want) || got != tc.fields {
				t.Errorf("got  %+v with %s\nwant %+v with %s", s.SignIn, got, tc.want, tc.fields)
			}
		})
	}
}

func TestImport_Only(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		only []string
		want string
	}{
		{[]string{"ping"}, "api__ping none"},
		// The name is that of a whole import, where another action has the first.
		{[]string{"orders_list"}, "orders__orders_list_2 api_key"},
		{[]string{"GET /orders/{id}"}, "orders__orders_list_2 api_key"},
		{[]string{"/orders"}, "orders__orders_list api_key, orders__orders_make api_key"},
		{[]string{"orders.*", "/ma*"}, "orders__orders_list api_key, orders__orders_make api_key, " +
			"orders_2__orders_cancel oauth2, api_2__maybe api_key"},
		{[]string{"tag:Dan*"}, "orders_2__orders_cancel oauth2"},
		{[]string{"delete *"}, ""},
	} {
		r, err := openapi.Import([]byte(choices), openapi.Options{PlatformID: "c", Only: tc.only})
		if tc.want == "" {
			if err == nil || !strings.Contains(err.Error(), `"`+tc.only[0]+`"`) {
				t.Errorf("%v: %v", tc.only, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", tc.only, err)
			continue
		}
		if got := ways(load(t, r)); got != tc.want {
			t.Errorf("%v: got  %s\nwant %s", tc.only, got, tc.want)
		}
		if r.Actions+r.Skipped != r.Operations {
			t.Errorf("%v: %+v", tc.only, r)
		}
		for _, e := range r.Report {
			if strings.HasPrefix(e.Pointer, "/paths") && tc.only[0] == "ping" {
				t.Errorf("%v: a report of what nobody asked for: %+v", tc.only, e)
			}
		}
	}
	if _, err := openapi.Import([]byte(choices), openapi.Options{Only: []string{"ping", "pong", "tag:"}}); err == nil ||
		!strings.Contains(err.Error(), `"tag:"`) {
		t.Errorf("an empty pattern: %v", err)
	}
	if _, err := openapi.Import([]byte(choices), openapi.Options{Only: []string{"ping", "pong"}}); err == nil ||
		!strings.Contains(err.Error(), `matches "pong";`) {
		t.Errorf("a pattern that matches nothing: %v", err)
	}
}
