package expr

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMatch_Key: where a condition holds, the key of the record is one of the event's, so that an index finds it.
func TestMatch_Key(t *testing.T) {
	t.Parallel()
	scope := Scope{Input: true, Metadata: true, Steps: map[string][]string{"s": {"t"}}}
	events := []string{
		`{"kind":"k","payload":{"id":"a","n":1.50,"on":true,"none":null,"list":["a"],"deep":{"id":"a","":{"x y":7}}}}`,
		`{"kind":"k","payload":{ "id" : "\u0061", "n":15e-1,"on":false,"list":["a"],"deep":{"id":"b","":{"x y":7.0}}}}`,
		`{"kind":"k","payload":{"id":"b","id":"a","n":"1.5","deep":null}}`,
		`{"kind":"k","payload":"a"}`,
	}
	inputs := []string{`{"id":"a","n":1.5}`, `{"id":"b","n":1.5000}`, `{"id":null,"n":"1.5"}`, `{"id":true,"n":7}`,
		`{"id":["a"],"n":0.1}`, `{}`}
	keyed := map[string]bool{
		`{{ event.payload.id == input.id }}`: true,
		`{{ input.n == event.payload.n }}`:   true,
		`{{ event.payload.on == input.id }}`: true,
		`{{ event.kind == "k" && (event.payload.deep.id ?? "") != "x" and event.payload["deep"]["id"] == input.id }}`: true,
		`{{ event.payload.deep[""]["x y"] == input.n }}`:                                                              true,
		`{{ event.payload.n == input.n + 0 }}`:                                                                        true,
		`{{ event.payload.id == lower(string(input.id ?? "A")) && event.payload.n == 1.5 }}`:                          true,
		`{{ steps.s.t.output == event.payload.id }}`:                                                                  true,
		`{{ event.payload.list[0] == input.id }}`:                                                                     false,
		`{{ event.payload.id == metadata.id }}`:                                                                       false,
		`{{ event.payload.id == "a" }}`:                                                                               false,
		`{{ event.payload.id == input.id || event.payload.n == input.n }}`:                                            false,
		`{{ !(event.payload.id == input.id) }}`:                                                                       false,
		`{{ event.payload.id == event.payload.deep.id }}`:                                                             false,
		`true`: false,
	}
	matches := 0
	for source, want := range keyed {
		m, errs := CompileMatch(source, scope)
		require.Empty(t, errs, source)
		assert.Equal(t, want, m.own != nil, source)
		for _, event := range events {
			keys := EventKeys([]byte(event))
			for _, input := range inputs {
				env := Env{Input: json.RawMessage(input), Metadata: json.RawMessage(`{"id":"a"}`),
					Event:  json.RawMessage(event),
					Result: func(TaskRef) json.RawMessage { return json.RawMessage(`"a"`) }}
				yes, err := m.Eval(&env)
				key := m.Key(&env)
				found := key == nil || slices.ContainsFunc(keys,
					func(k []byte) bool { return string(k) == string(key) })
				if err == nil && yes {
					matches++
					assert.True(t, found, "%s of %s with %s", source, input, event)
				}
			}
		}
	}
	assert.Greater(t, matches, 50)
	env := Env{Input: json.RawMessage(`{"id":"b"}`)}
	m, _ := CompileMatch(`{{ event.payload.id == input.id }}`, scope)
	assert.NotContains(t, EventKeys([]byte(events[0])), m.Key(&env), "keys tell events apart")
	assert.Contains(t, EventKeys([]byte(`{"payload":{"id":"b"}}`)), m.Key(&env))
	assert.NotContains(t, EventKeys([]byte(`{"payload":{"x":"b"}}`)), m.Key(&env))
	_, errs := CompileMatch(`{{ event.x == inputs.id }}`, scope)
	assert.Len(t, errs, 1)
	_, errs = CompileCondition(`{{ event.x == 1 }}`, scope)
	assert.Len(t, errs, 1, "nothing else sees events")
	_, errs = CompileCondition(`{{ let event = input.id; event == 1 }}`, scope)
	assert.Empty(t, errs, "it is free elsewhere")
}
