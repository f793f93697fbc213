package provider

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
)

const listsFile = `id: five
name: Five
description: Lists.
status: active
services:
  - id: five__ws
    name: WS
    description: Lists.
    kind: api
    protocol: PROTOCOL
    auth_method: none
    base_url: https://five.example/ws
    status: active
    actions:
      - id: five__ws__add
        name: Add
        description: Adds.
        default_lane: interactive
        max_records_per_request: 10
        max_bytes_per_request: 10000
        bulk: true
        outcome_check: none
        params_schema: {type: object, required: [row], properties: {row: {}, e: {}}}
        call: {CALL, records: {AT, param: row}, answer: {success: [200]}}
`

func load(t *testing.T, protocol, call, at string) (*catalog.Service, *catalog.Action) {
	t.Helper()
	return action(t, catalogOf(t, strings.NewReplacer("PROTOCOL", protocol, "CALL", call, "AT", at).Replace(listsFile)),
		"five__ws__add")
}

// TestPrepare_Records: records at a path, as the body, and as elements; they are not copied into JSON.
func TestPrepare_Records(t *testing.T) {
	t.Parallel()
	rows := []byte(`[{"a":1},{"a":"}"}]`)
	for _, c := range []struct{ call, at, want string }{
		{`method: POST, path: /x, body: {type: "}x", n: {k: "{{ params.e }}"}}`, `at: n.m.rows`,
			`{"type":"}x","n":{"k":"e\"}","m":{"rows":ROWS}}}`},
		{`method: POST, path: /x, body: {n: {m: {}}, z: [1]}`, `at: n.m.rows`, `{"n":{"m":{"rows":ROWS}},"z":[1]}`},
		{`method: POST, path: /x`, `at: n.m.rows`, `{"n":{"m":{"rows":ROWS}}}`},
		{`method: POST, path: /x, body: {"data": {"type": t, "attributes": {"profiles": {}, "x": 1}}}`,
			`at: data.attributes.profiles.data`,
			`{"data":{"type":"t","attributes":{"profiles":{"data":ROWS},"x":1}}}`},
		{`method: POST, path: /x`, `at: rows`, `{"rows":ROWS}`},
		{`method: POST, path: /x`, `at: ""`, `ROWS`},
	} {
		svc, act := load(t, "REST", c.call, c.at)
		r, err := Prepare(svc, act, json.RawMessage(`{"e":"e\"}"}`), rows, Secret{}, "")
		require.NoError(t, err)
		assert.Equal(t, strings.Replace(c.want, "ROWS", string(rows), 1), bodyOf(r))
		assert.True(t, json.Valid([]byte(bodyOf(r))))
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		assert.NoError(t, CheckRow(act, []byte(`{"a b":"\u0001"}`)))
	}
	svc, act := load(t, "SOAP", `body: {"s:add": {"@xmlns:s": "u", list: l, data: {}}}`, `at: "s:add.data.values"`)
	r, err := Prepare(svc, act, json.RawMessage(`{}`), []byte(`[{"item":["1","<"]},{"item":["2",null]}]`), Secret{}, "")
	require.NoError(t, err)
	assert.Contains(t, bodyOf(r),
		`<soap:Body><s:add xmlns:s="u"><list>l</list><data><values><item>1</item><item>&lt;</item></values>`+
			`<values><item>2</item></values></data></s:add></soap:Body>`)
	assert.NoError(t, CheckRow(act, []byte(`{"item":["a"]}`)))
	for _, bad := range []string{`{"a b":1}`, `{"item":"\u0001"}`} {
		if err := CheckRow(act, []byte(bad)); !errors.Is(err, ErrParams) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
