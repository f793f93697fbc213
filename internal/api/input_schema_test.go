package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const contactSchema = `{"type":"object","required":["n"],"$defs":{"small":{"maximum":1.50}},"properties":{"n":{"type":"number","$ref":"#/$defs/small"},"id":{"type":"string"}}}`

func TestDefinitions_InputSchema(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	body := func(schema string) string {
		return fmt.Sprintf(`{"name":"f","input_schema":%s,"steps":%s}`, schema, transformSteps)
	}
	for schema, want := range map[string][]string{
		`{"properties":{"n":{"minimum":"1"}},"required":"n"}`: {"body.input_schema.properties.n.minimum type_error",
			"body.input_schema.required type_error"},
		`{"allOf":[{"$ref":"https://example.com/s"}]}`: {"body.input_schema.allOf.0.$ref value_error"},
		`{"properties":{"n":{"$ref":"#"}}}`:            {"body.input_schema value_error"},
		`[]`:                                           {"body.input_schema object_type"},
	} {
		for _, path := range []string{"/flows/definitions", "/flows/definitions/validate"} {
			s.Do(http.MethodPost, path, body(schema)).Invalid(want...)
		}
	}
	res := s.Do(http.MethodPost, "/flows/definitions", body(contactSchema)).Want(http.StatusCreated)
	assert.Contains(t, string(res.Body), `"input_schema":`+contactSchema, "as it was written")
	made := res.JSON()
	path := "/flows/definitions/" + made["id"].(string)
	assert.Equal(t, made["input_schema"], s.Do(http.MethodPut, path, made).Want(http.StatusOK).JSON()["input_schema"],
		"what was read can be sent back")
	assert.Equal(t, made["input_schema"], s.get(path + "/versions/2")["input_schema"])
	assert.Nil(t, s.Do(http.MethodPost, "/flows/definitions",
		body("null")).Want(http.StatusCreated).JSON()["input_schema"])

	dry := s.Do(http.MethodPost, path+"/dry-run", `{"input_data":{"id":7,"n":"secret"}}`).Want(http.StatusOK)
	assert.Equal(t, "The record does not fit the input schema: id must be string, not number; "+
		"n must be number, not string", dry.JSON()["input_error"].(map[string]any)["message"])
	assert.Equal(t, "resolved", dryRunTasks(dry.JSON())["t"]["status"], "the tasks are shown all the same")
	assert.Nil(t, s.Do(http.MethodPost, path+"/dry-run", `{"input_data":{"n":1}}`).Want(
		http.StatusOK).JSON()["input_error"])
}

// TestInputSchema_Run runs good and bad records through first steps of every kind: the bad ones fail alone, and before
// any call.
func TestInputSchema_Run(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	up := strings.TrimSuffix(strings.TrimPrefix(uploadSteps, "["), "]")
	for name, steps := range map[string]string{
		"call":       `[` + up + `]`,
		"continue":   strings.ReplaceAll(`[`+up+`]`, `"id":"up",`, `"id":"up","on_error":"continue",`),
		"in process": transformSteps,
		"mixed": `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}},
			{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"mixed","key_field":"id","row":"{{ input }}"}}]},
			{"id":"s2","tasks":[{"id":"t2","action_id":"core__flow__transform","params":{"value":2}}]}]`,
	} {
		steps = strings.ReplaceAll(steps, `"list":"demo"`, `"list":"`+name+`"`)
		def := s.defineWith(`"input_schema":{"properties":{"n":{"multipleOf":2},"id":{"maxLength":3}}}`, steps)
		batch := s.trigger(def, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(600))))
		b := s.await(batch)
		counts := b["job_counts"].(map[string]any)
		// k0 to k99 fit in length; of those, and of the others none, every second one has an even number.
		assert.Equal(t, []any{"partially_failed", 550.0, 50.0}, []any{b["status"], counts["failed"],
			counts["accepted"].(float64) + counts["completed"].(float64)}, name)
		e := s.execution(batch, 101)
		assert.Equal(t, "failed", e.Status, name)
		assert.Equal(t, "input_invalid", e.Error["code"])
		assert.Equal(t, "The record does not fit the input schema: id must have at most 3 characters; "+
			"n must keep to multipleOf", e.Error["message"])
		assert.Equal(t, []any{nil, nil}, []any{e.Error["step_id"], e.Error["task_id"]})
		for _, status := range e.statuses() {
			assert.Equal(t, "cancelled", status, "no task ran")
		}
		if name != "in process" {
			assert.Len(t, s.sim.Arrivals(name), 50, name)
		}
	}
}
