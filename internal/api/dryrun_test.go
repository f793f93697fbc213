package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dryRunTasks are the tasks of a dry-run by id.
func dryRunTasks(res map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, step := range res["steps"].([]any) {
		for _, task := range step.(map[string]any)["tasks"].([]any) {
			out[task.(map[string]any)["id"].(string)] = task.(map[string]any)
		}
	}
	return out
}

const dryRunSteps = `[
	{"id":"look","name":"Look up","tasks":[
		{"id":"get","action_id":"core__http__request","params":{"url":"https://api.example/c/{{ input.id }}","headers":{"X-Batch":"{{ batch.record_count }}"}},"when":"{{ input.id != \"\" }}"},
		{"id":"off","action_id":"core__http__request","params":{"url":"https://api.example"},"when":"{{ metadata.on ?? false }}"},
		{"id":"mix","action_id":"core__flow__transform","params":{"value":{"n":"{{ input.n }}","twice":"{{ int(input.n) * 2 }}"}},"on_error":"continue"},
		{"id":"bad","action_id":"core__http__request","params":{"url":"https://{{ input.missing }}"}},
		{"id":"method","action_id":"core__http__request","params":{"url":"https://api.example","method":"{{ input.id }}"}}]},
	{"id":"send","tasks":[
		{"id":"post","action_id":"core__http__request","credential_id":"KEY","params":{"method":"POST","url":"https://api.example/x","idempotency_header":"Idempotency-Key","body":{"country":"{{ steps.look.get.output.body.country }}","n":"{{ steps.look.mix.output.n }}"}}},
		{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","key_field":"id","row":"{{ input }}"}},
		{"id":"stop","action_id":"core__flow__fail","params":{"message":"No {{ input.id }}"},"when":"{{ input.id == \"17\" }}"}]}]`

func TestDryRun(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	key := s.Do(http.MethodPost, "/credentials",
		`{"name":"k","platform_id":"core","auth_method":"api_key","allowed_origins":["https://api.example"],"credentials":{"api_key":"hush-hush"},"api_key_placement":{"header_name":"X-Key","scheme":"Token"}}`)
	id := s.define(strings.ReplaceAll(dryRunSteps, "KEY", key.Want(http.StatusCreated).JSON()["id"].(string)))
	path := "/flows/definitions/" + id + "/dry-run"
	before := s.sim.Counters("acme")

	res := s.Do(http.MethodPost, path,
		`{"input_data":{"id":"17","n":1.50},"outputs":{"look":{"get":{"body":{"country":"CZ"}}}},"record_count":120000}`).Want(http.StatusOK)
	got := res.JSON()
	assert.Equal(t, 1.0, got["version"])
	tasks := dryRunTasks(got)
	require.Len(t, tasks, 8)
	headers := map[string]any{"Accept": "application/json", "User-Agent": "flowlane", "X-Batch": "120000"}
	assert.Equal(t, map[string]any{"method": "GET", "url": "https://api.example/c/17", "headers": headers, "body": nil},
		tasks["get"]["call"])
	assert.Equal(t, []any{"resolved", true, nil}, []any{tasks["get"]["status"], tasks["get"]["when"],
		tasks["get"]["error"]})
	assert.Equal(t, map[string]any{"body": map[string]any{"country": "CZ"}}, tasks["get"]["output"], "as it was given")
	assert.Equal(t, []any{"skipped", false, nil}, []any{tasks["off"]["status"], tasks["off"]["when"],
		tasks["off"]["call"]})
	assert.Contains(t, string(res.Body), `"output":{"n":1.50,"twice":2}`, "digits are kept")
	assert.Equal(t, "failed", tasks["bad"]["status"])
	assert.Equal(t, "invalid_parameters", tasks["bad"]["error"].(map[string]any)["code"])
	assert.Equal(t, "invalid_parameters", tasks["method"]["error"].(map[string]any)["code"])
	assert.Contains(t, tasks["method"]["error"].(map[string]any)["message"], "method must be one of GET,")

	post := tasks["post"]["call"].(map[string]any)
	assert.Equal(t, "Token CREDENTIAL", post["headers"].(map[string]any)["X-Key"])
	assert.Equal(t, "IDEMPOTENCY-KEY", post["headers"].(map[string]any)["Idempotency-Key"])
	assert.Contains(t, string(res.Body), `"body":{"country":"CZ","n":1.50}`)
	up := tasks["up"]["call"].(map[string]any)
	assert.True(t, strings.HasPrefix(up["url"].(string), s.simURL), up["url"])
	assert.Equal(t, "Basic CREDENTIAL", up["headers"].(map[string]any)["Authorization"])
	assert.Contains(t, string(res.Body), `[{"id":"17","n":1.50}]`)
	assert.Equal(t, "flow_failed", tasks["stop"]["error"].(map[string]any)["code"])
	assert.Equal(t, "No 17", tasks["stop"]["error"].(map[string]any)["message"])

	estimate := got["estimate"].(map[string]any)
	assert.Equal(t, []any{s.tenancy, 120000.0, 3.0}, []any{estimate["tenancy_id"], estimate["record_count"],
		estimate["estimated_calls"]})
	for _, secret := range []string{"hush-hush", "YWNtZTp4"} {
		assert.NotContains(t, string(res.Body), secret)
	}
	assert.Equal(t, before, s.sim.Counters("acme"), "nothing is sent")
	assert.Zero(t, s.get("/flows/batches")["total"], "nothing is stored")
}

func TestDryRun_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.define(strings.ReplaceAll(dryRunSteps, "KEY", s.credential))
	path := "/flows/definitions/" + id + "/dry-run"

	tasks := dryRunTasks(s.Do(http.MethodPost, path, nil).Want(http.StatusOK).JSON())
	assert.Equal(t, "expression_failed", tasks["mix"]["error"].(map[string]any)["code"],
		"each task says what is wrong with it")
	assert.Equal(t, "resolved", tasks["up"]["status"])

	s.Do(http.MethodPost, path, `{"outputs":{"look":{"mix":1,"no":2,"get":3},"send":4},"record_count":1}`).
		Invalid("body.outputs.look.mix value_error", "body.outputs.look.no value_error",
			"body.outputs.send object_type")
	s.Do(http.MethodPost, path, `{"input_data":[],"record_count":0,"also":1}`).
		Invalid("body.also extra_forbidden", "body.input_data object_type", "body.record_count greater_than_equal")
	for _, missing := range []string{id, uuid.NewString(), "x"} {
		s.other.Do(http.MethodPost, "/flows/definitions/"+missing+"/dry-run", nil).Detail(http.StatusNotFound,
			"Definition not found")
	}

	c := s.get("/credentials/" + s.credential)
	c["status"] = "revoked"
	s.Do(http.MethodPut, "/credentials/"+s.credential, c).Want(http.StatusOK)
	got := s.Do(http.MethodPost, path, `{"input_data":{"id":"1","n":1}}`).Want(http.StatusOK).JSON()
	assert.Equal(t, "credential_unusable", dryRunTasks(got)["up"]["error"].(map[string]any)["code"])
	assert.Nil(t, got["estimate"])
}

// TestDryRun_Results rehearses what later steps do behind a failure, one that is given and one that is computed.
func TestDryRun_Results(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.define(`[{"id":"s","tasks":[
			{"id":"t","action_id":"core__http__request","on_error":"continue","params":{"method":"POST","url":"https://api.example"}},
			{"id":"mix","action_id":"core__flow__transform","on_error":"continue","params":{"value":"{{ 1 / input.n }}"}},
			{"id":"off","action_id":"core__http__request","on_error":"continue","when":"{{ input.on ?? false }}","params":{"url":"https://api.example"}}]},
		{"id":"then","tasks":[
			{"id":"patch","action_id":"core__http__request","when":"{{ steps.s.t.error.status == 409 }}",
				"params":{"method":"PATCH","url":"https://api.example/{{ steps.s.t.error.body.id }}"}},
			{"id":"all","action_id":"core__flow__transform","params":{"value":
				["{{ steps.s.t.error.status }} {{ steps.s.t.error.code }}","{{ steps.s.mix.error.code }}","{{ steps.s.off.skipped }}","{{ steps.s.off.error }}"]}}]}]`)
	path := "/flows/definitions/" + id + "/dry-run"
	tasks := func(body string) map[string]map[string]any {
		return dryRunTasks(s.Do(http.MethodPost, path, body).Want(http.StatusOK).JSON())
	}
	got := tasks(`{"input_data":{"n":0},"errors":{"s":{"t":{"status":409,"body":{"id":"77"}}}}}`)
	assert.Equal(t, []any{"failed", nil}, []any{got["t"]["status"], got["t"]["output"]})
	assert.NotNil(t, got["t"]["call"], "it is what the platform would have refused")
	assert.Equal(t, map[string]any{"code": "provider_refused", "message": "The provider refused the call",
		"step_id": "s", "task_id": "t",
		"provider_status": 409.0, "provider_code": nil, "provider_message": nil}, got["t"]["error"])
	assert.Equal(t, "https://api.example/77", got["patch"]["call"].(map[string]any)["url"])
	assert.Equal(t, []any{"409 provider_refused", "expression_failed", true, nil}, got["all"]["output"])

	got = tasks(`{"input_data":{"n":1,"on":true},"outputs":{"s":{"t":{"status":201}}}}`)
	assert.Equal(t, "skipped", got["patch"]["status"])
	assert.Equal(t, []any{" ", nil, false, nil}, got["all"]["output"])

	s.Do(http.MethodPost, path, `{"outputs":{"s":{"t":1}},"errors":{"s":{"t":{},"mix":{},"no":{}},"x":{"t":{}}}}`).
		Invalid("body.errors.s.mix value_error", "body.errors.s.no value_error", "body.errors.s.t value_error",
			"body.errors.x.t value_error")
	s.Do(http.MethodPost, path, `{"errors":{"s":{"t":{"status":7,"also":1}}}}`).
		Invalid("body.errors.s.t.also extra_forbidden", "body.errors.s.t.status greater_than_equal")
}

// TestDryRun_Bounded rehearses a flow whose tasks all show a large record: what is shown has an end, and says so.
func TestDryRun_Bounded(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	var copies, calls []string
	for i := range 12 {
		copies = append(copies, fmt.Sprintf(
			`{"id":"copy%d","action_id":"core__flow__transform","params":{"value":"{{ input }}"}}`, i))
		calls = append(calls, fmt.Sprintf(
			`{"id":"call%d","action_id":"core__http__request","params":{"method":"PUT","url":"https://api.example","body":"{{ input }}"}}`, i))
	}
	id := s.define(fmt.Sprintf(`[{"id":"a","tasks":[%s]},{"id":"b","tasks":[%s]}]`, strings.Join(copies, ","),
		strings.Join(calls, ",")))
	large := fmt.Sprintf(`{"input_data":{"text":%q}}`, strings.Repeat("x", 1_000_000))
	res := s.Do(http.MethodPost, "/flows/definitions/"+id+"/dry-run", large).Want(http.StatusOK)
	assert.Less(t, len(res.Body), 17<<20)
	tasks := dryRunTasks(res.JSON())
	assert.Equal(t, []any{"resolved", nil}, []any{tasks["copy11"]["status"], tasks["copy11"]["error"]})
	assert.Equal(t, []any{"resolved", nil}, []any{tasks["call3"]["status"], tasks["call3"]["error"]})
	last := tasks["call11"]
	assert.Equal(t, []any{"failed", nil, nil}, []any{last["status"], last["call"], last["output"]})
	assert.Equal(t, "The outputs and calls of this dry run take more than 16 MiB together; "+
		"give a smaller sample record", last["error"].(map[string]any)["message"])
}
