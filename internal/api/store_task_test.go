package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func storeTask(id, action, params, more string) string {
	return fmt.Sprintf(`{"id":%q,"action_id":"core__store__%s","params":%s%s}`, id, action, params, more)
}

const (
	readCustomer  = `{"store":"customers","key":"{{ input.id }}"}`
	writeCustomer = `{"store":"customers","key":"{{ input.id }}","layer":"agent","values":"{{ input.values }}"}`
)

// TestStoreTasks writes a record for each of many records, and reads it in the next step.
func TestStoreTasks(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	path := s.store(customers)
	s.write(path, `k0 crm {"email":"<a>","score":1.50,"visits":3}`, `k1 agent {"visits":1}`)
	steps := `[{"id":"before","tasks":[` + storeTask("r", "read", readCustomer, "") + `]},
		{"id":"write","tasks":[` + storeTask("w", "write", writeCustomer, `,"when":"{{ input.n != 2 }}"`) + `,` +
		storeTask("same", "read", readCustomer, "") + `]},
		{"id":"after","tasks":[` + storeTask("last", "read", readCustomer, "") + `]},
		{"id":"all","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":["{{ steps.before.r.output }}","{{ steps.write.w.output }}","{{ steps.write.same.output }}","{{ steps.after.last.output }}"]}}]}]`
	flow := s.define(steps)
	rows := make([]string, 1200)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"k%d","n":%d,"values":{"score":%d.50,"visits":null}}`, i, i, i)
	}
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rows)))
	assert.Equal(t, "completed", s.await(batch)["status"])
	assert.InDelta(t, 1199, s.get(path)["record_count"], 0)
	results := s.lines("/flows/batches/" + batch + "/results?format=ndjson")
	require.Len(t, results, 1200)
	assert.Contains(t, string(results[0]), `[{"email":"<a>","score":1.50,"visits":3,`)
	shows := func(score, visits any) map[string]any {
		return map[string]any{"email": nil, "score": score, "visits": visits, "vip": nil, "since": nil, "address": nil,
			"tags": nil}
	}
	first := shows(1.5, 3.0)
	first["email"] = "<a>"
	after := shows(0.5, 3.0)
	after["email"] = "<a>"
	created := func(yes bool) any { return map[string]any{"created": yes} }
	assert.Equal(t, []any{first, created(false), first, after}, field[[]any](t, results[0], "output"))
	assert.Equal(t, []any{shows(nil, 1.0), created(false), shows(nil, 1.0), shows(1.5, nil)},
		field[[]any](t, results[1], "output"))
	assert.Equal(t, []any{nil, nil, nil, nil}, field[[]any](t, results[2], "output"), "it was not to be written")
	assert.Equal(t, []any{nil, created(true), nil, shows(1199.5, nil)}, field[[]any](t, results[1199], "output"))
	layer := s.get(path + "/records/k7?include=layers")["layers"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"agent", batch}, []any{layer["layer"], layer["updated_by"]})
}

// TestStoreTasks_Order: the writes of one key are done in the order of the records, and each sees the one before.
func TestStoreTasks_Order(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	path := s.store(customers)
	flow := s.define(`[{"id":"s","tasks":[` + storeTask("w", "write",
		`{"store":"customers","key":17,"layer":"{{ input.n % 2 == 0 ? 'crm' : 'agent' }}","values":{"visits":"{{ input.n }}"}}`, "") + `]}]`)
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(700))))
	assert.Equal(t, "completed", s.await(batch)["status"])
	got := s.get(path + "/records/17?include=layers")
	values := func(i int) any { return got["layers"].([]any)[i].(map[string]any)["values"] }
	assert.Equal(t, []any{map[string]any{"visits": 698.0}, map[string]any{"visits": 699.0}},
		[]any{values(0), values(1)})
	assert.InDelta(t, 1, s.get(path)["record_count"], 0)
	created := 0
	for _, line := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		if strings.Contains(string(line), `"created":true`) {
			created++
		}
	}
	assert.Equal(t, 1, created)
}

func TestStoreTasks_Fail(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	path := s.store(customers)
	s.other.Do(http.MethodPost, "/data/stores", strings.Replace(customers, `"customers"`, `"theirs"`, 1)).Want(
		http.StatusCreated)
	flow := s.define(`[{"id":"s","tasks":[` + storeTask("w", "write",
		`{"store":"{{ input.store }}","key":"{{ input.key }}","layer":"{{ input.layer }}","values":"{{ input.values }}"}`, "") + `]},
		{"id":"next","tasks":[` + storeTask("r", "read", `{"store":"{{ input.store }}","key":"{{ input.key }}"}`, "") +
		`]}]`)
	record := func(store, key, layer, values string) string {
		return fmt.Sprintf(`{"store":%s,"key":%s,"layer":%s,"values":%s}`, store, key, layer, values)
	}
	const fine, crm = `"customers"`, `"crm"`
	cases := [][2]string{
		{record(fine, `"good"`, crm, `{"email":"a"}`), ""},
		{record(`"none"`, `"k"`, crm, `{}`), `store: There is no store "none"`},
		{record(`"theirs"`, `"k"`, crm, `{}`), `store: There is no store "theirs"`},
		{record(`5`, `"k"`, crm, `{}`), "store and layer must be strings"},
		{record(fine, `null`, crm, `{}`), "key must be a string that is not empty, or a whole number"},
		{record(fine, `1.5`, crm, `{}`), "key must be a string that is not empty, or a whole number"},
		{record(fine, `"a\nb"`, crm, `{}`),
			"key: Must be 1 to 200 characters, none of them a control or replacement character, and not . or .."},
		{record(fine, `"k"`, `"none"`, `{}`), "layer: The store has no such layer; it has import, crm, agent"},
		{record(fine, `"k"`, crm, `[]`), "values: Must be an object"},
		{record(fine, `"k"`, crm, `{"vip":"secret","x":1}`),
			"values.vip: Must be true or false, because of the field's type; values.x: The store has no such field; " +
				"it has email, score, visits, vip, since, address, tags"},
		{record(fine, `"k"`, crm, `{"email":"`+strings.Repeat("x", 70_000)+`"}`),
			"values: The layers of the record would take 70015 bytes together, and may take 65536"},
	}
	var records []string
	for _, c := range cases {
		records = append(records, c[0])
	}
	batch := s.trigger(flow, `{"records":[`+strings.Join(records, ",")+`]}`)
	assert.Equal(t, "partially_failed", s.await(batch)["status"])
	for i, line := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		if cases[i][1] == "" {
			assert.Equal(t, "completed", field[string](t, line, "status"))
			continue
		}
		failure := field[map[string]any](t, line, "error")
		assert.Equal(t, []any{"store_refused", cases[i][1], "s", "w"}, []any{failure["code"], failure["message"],
			failure["step_id"], failure["task_id"]})
	}
	assert.InDelta(t, 1, s.get(path)["record_count"], 0)

	// A record may go on all the same; one that reads nothing reads null.
	flow = s.define(`[{"id":"s","tasks":[` + storeTask("w", "write",
		`{"store":"none","key":"k","layer":"l","values":{}}`, `,"on_error":"continue"`) + `]},
		{"id":"next","tasks":[` + storeTask("r", "read", `{"store":"customers","key":"none"}`, "") + `]}]`)
	batch = s.trigger(flow, noInput)
	assert.Equal(t, "completed", s.await(batch)["status"])
	assert.Equal(t, []any{nil}, s.outputs(batch))
	flow = s.define(`[{"id":"s","tasks":[` + storeTask("r", "read", `{"store":"none","key":"k"}`, "") + `]}]`)
	assert.Equal(t, "failed", s.await(s.trigger(flow, noInput))["status"])
	// An expression can make a text that no store takes.
	flow = s.define(`[{"id":"s","tasks":[` + storeTask("w", "write",
		`{"store":"customers","key":"k","layer":"crm","values":{"email":"{{ fromBase64('AA==') }}"}}`, "") + `]}]`)
	assert.Equal(t, "failed", s.await(s.trigger(flow, noInput))["status"])
	assert.InDelta(t, 1, s.get(path)["record_count"], 0)
}

// TestStoreTasks_BeforeCalls: a write stands before the calls of its step, which a record that it fails does not make.
func TestStoreTasks_BeforeCalls(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	path := s.store(customers)
	flow := s.define(`[{"id":"s","tasks":[` + storeTask("w", "write", writeCustomer, "") +
		`,{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
		"params":{"list":"demo","key_field":"id","row":{"id":"{{ input.id }}"}}}]}]`)
	batch := s.trigger(flow, `{"records":[{"id":"a","values":{"visits":1}},{"id":"b","values":{"visits":"1"}},{"id":"c","values":{}}]}`)
	assert.Equal(t, "partially_failed", s.await(batch)["status"])
	assert.Equal(t, map[string]int{"a": 1, "c": 1}, s.sim.Arrivals("demo"))
	assert.InDelta(t, 2, s.get(path)["record_count"], 0)
}

func TestStoreTasks_DryRun(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.store(customers)
	s.write(path, `k crm {"visits":3}`)
	flow := s.define(`[{"id":"s","tasks":[` + storeTask("r", "read", readCustomer, "") + `,` + storeTask("w", "write",
		writeCustomer, "") + `]}]`)
	before := s.stored(t)
	run := func(input string) map[string]map[string]any {
		return dryRunTasks(s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run", `{"input_data":`+input+
			`}`).Want(http.StatusOK).JSON())
	}
	tasks := run(`{"id":"k","values":{"visits":4}}`)
	assert.InDelta(t, 3, tasks["r"]["output"].(map[string]any)["visits"], 0)
	assert.Equal(t, map[string]any{"created": false}, tasks["w"]["output"])
	tasks = run(`{"id":"new","values":{"visits":4}}`)
	assert.Nil(t, tasks["r"]["output"])
	assert.Equal(t, map[string]any{"created": true}, tasks["w"]["output"])
	tasks = run(`{"id":"new","values":{"visits":"4"}}`)
	assert.Equal(t, "store_refused", tasks["w"]["error"].(map[string]any)["code"])
	assert.Equal(t, before["flow.store_record"], s.stored(t)["flow.store_record"], "nothing is written")
	assert.Equal(t, before["flow.store_state"], s.stored(t)["flow.store_state"])
}
