package provider

import (
	"os"
	"path/filepath"
	"testing"

	"flowlane/internal/platform/catalog"
)

// parcels is a REST platform with what the shipped ones lack: a keyed action, values in path and query, nested fields.
const parcels = `id: parcels
name: Parcels
description: Sends parcels.
status: active
services:
  - id: parcels__api
    name: API
    description: Parcels and labels.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://parcels.example/v1
    requires_connection: true
    status: active
    credential_fields:
      - {name: api_key, label: Key, type: password, required: true, secret: true}
    actions:
      - id: parcels__api__send
        name: Send
        description: Sends a parcel.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: keyed
        params_schema:
          type: object
          required: [depot]
          properties: {depot: {}, q: {}, weight: {}, headers: {}, note: {}}
        call:
          method: POST
          path: '/depots/{{ params.depot }}/parcels?q={{ params.q ?? "" }}&v=2'
          headers: {X-Note: "{{ params.note }}", X-Static: always}
          body: {weight: "{{ params.weight }}", note: "say {{ params.note }}", zebra: 1, ant: 2}
          idempotency_header: Idempotency-Key
          answer:
            success: [200, 201, 204]
            refused: [400]
            retry_later: [{status: 503, wait_seconds: 7}]
            output: [parcel.id, missing]
            code: error.code
            message: error.text
      - id: parcels__api__peek
        name: Peek
        description: Reads a parcel.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, properties: {id: {}}}
        call:
          method: GET
          path: /parcels/{{ params.id }}
          answer: {success: [200, 204]}
`

func testCatalog(t testing.TB) *catalog.Catalog {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "parcels.yaml"), []byte(parcels), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load(catalog.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// action returns an action of the test catalog and its service.
func action(t testing.TB, c *catalog.Catalog, id string) (*catalog.Service, *catalog.Action) {
	t.Helper()
	a, ok := c.Action(id)
	if !ok {
		t.Fatalf("there is no action %s", id)
	}
	s, _ := c.Service(a.ServiceID)
	return s, a
}

func basic(t *testing.T) Secret {
	t.Helper()
	s, err := NewSecret(Spec{
		Method: "basic_auth", PlatformID: "dialer", Origins: []string{"http://a.example"},
		Fields: map[string]string{"username": "ann", "password": "s3cret-word"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func apiKey(t *testing.T, p Placement) Secret {
	t.Helper()
	s, err := NewSecret(Spec{
		Method: "api_key", PlatformID: "parcels", Origins: []string{"http://a.example"},
		Fields: map[string]string{"api_key": "k3y&="}, Placement: p,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
