package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDefinitions_Unresolved: validating a flow tells which calls may end unresolved, with what prevents it; the flow
// is valid.
func TestDefinitions_Unresolved(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	const (
		task       = `step "s", task "t": `
		unresolved = task + `core__http__request cannot tell whether a call arrived when its answer is lost; such a job ` +
			`waits in unresolved until a person settles it: set idempotency_header if the receiver drops a repeat with the ` +
			`same key, or delivery at_least_once if a repeat does no harm`
		twice = task + `delivery at_least_once may send a record twice`
	)
	for name, c := range map[string]struct {
		params, more string
		want         []any
	}{
		"read":          {`"method":"GET"`, "", []any{}},
		"post":          {`"method":"POST"`, "", []any{unresolved}},
		"who knows":     {`"method":"{{ input.method }}"`, "", []any{unresolved}},
		"with key":      {`"method":"POST","idempotency_header":"Idempotency-Key"`, "", []any{}},
		"at least once": {`"method":"POST"`, `,"delivery":"at_least_once"`, []any{twice}},
	} {
		found := d.Do(http.MethodPost, "/flows/definitions/validate", fmt.Sprintf(`{"name":"f","steps":[
			{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"url":"https://a.example",%s}%s}]}]}`,
			c.params, c.more)).Want(http.StatusOK).JSON()
		assert.Equal(t, []any{true, c.want}, []any{found["valid"], found["warnings"]}, name)
	}
}
