package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestExpressions_Messages: an expression that cannot work is told before anything runs, with where and what: the flow
// is refused, and validating it finds the same.
func TestExpressions_Messages(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	for name, c := range map[string]struct{ schema, value, field, want string }{
		"misspelt": {`{"properties":{"email":{"type":"string"}},"additionalProperties":false}`, `"{{ input.emial }}"`,
			"params.value",
			`{{ input.emial }}: input has no field "emial" by its schema; did you mean "email"? (at character 7)`},
		"misspelt in depth": {`{"properties":{"who":{"properties":{"email":{}},"type":"object","additionalProperties":false}}}`,
			`["Dear {{ input.who.emial }}"]`, "params.value.0",
			`{{ input.who.emial }}: input.who has no field "emial" by its schema; did you mean "email"? (at character 11)`},
		"pipe": {"null", `"{{ input.a | upper }}"`, "params.value",
			`{{ input.a | upper }}: "(" is expected after "upper", not the end; write upper() (at character 16)`},
	} {
		body := func(schema string) string {
			return fmt.Sprintf(`{"name":"f","input_schema":%s,"steps":[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform",
				"params":{"value":%s}}]}]}`, schema, c.value)
		}
		want := []any{`step "s", task "t", field ` + c.field + ": " + c.want}
		refused := d.Do(http.MethodPost, "/flows/definitions",
			body(c.schema)).Want(http.StatusUnprocessableEntity).JSON()
		assert.Equal(t, want, refused["detail"].(map[string]any)["expression_errors"], name)
		found := d.Do(http.MethodPost, "/flows/definitions/validate", body(c.schema)).Want(http.StatusOK).JSON()
		assert.Equal(t, []any{false, want}, []any{found["valid"], found["expression_errors"]}, name)
		if c.schema != "null" {
			open := d.Do(http.MethodPost, "/flows/definitions/validate", body(`{"properties":{"email":{}}}`)).Want(
				http.StatusOK).JSON()
			assert.Equal(t, true, open["valid"], "%s: other fields may come", name)
		}
	}
}
