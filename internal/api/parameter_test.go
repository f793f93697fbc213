package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/app"
)

// TestParameters_Rendered: parameters that break the schema of their action once they are rendered fail their record
// before any call, and say which one it is; the records around it go on. Actions in process check their own, under
// codes of theirs.
func TestParameters_Rendered(t *testing.T) {
	t.Parallel()
	const broken = "the parameters break the schema of their action: "
	away := newElsewhere(t)
	s := serveStack(t, true, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(away.URL,
			"http://"))
	})
	for name, c := range map[string]struct{ task, bad, good, code, want string }{
		"call": {`"action_id":"core__http__request","params":{"url":"` + away.URL + `","method":"{{ input.v }}"}`,
			`"OPTIONS"`, `"PUT"`,
			"invalid_parameters", broken + "method must be one of GET, HEAD, POST, PUT, PATCH, DELETE"},
		"bulk": {`"action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":"{{ input.v }}"}`,
			`["k"]`, `{"id":"k"}`,
			"invalid_parameters", broken + "row must be object, not array"},
		"in process": {`"action_id":"core__flow__emit_event","params":{"name":"{{ input.v }}","payload":1}`, `7`,
			`"order.paid"`,
			"event_refused", "name must be a string that is not empty"},
	} {
		batch := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t",`+c.task+`}]}]`),
			fmt.Sprintf(`{"records":[{"v":%[1]s},{"v":%[2]s},{"v":%[1]s}]}`, c.good, c.bad))
		counts := counted(s.await(batch))
		assert.Equal(t, []int{1, 2}, []int{counts["failed"], counts["completed"] + counts["accepted"]}, name)
		e, _ := s.get("/flows/jobs/" + batch + ".1")["error"].(object)
		assert.Equal(t, []any{c.code, c.want, "s", "t"}, []any{e["code"], e["message"], e["step_id"], e["task_id"]},
			name)
		assert.EqualValues(t, e, s.execution(batch, 1).Error, name)
	}
	assert.Equal(t, []string{"PUT /", "PUT /"}, away.requests)
	assert.Len(t, s.sim.Arrivals("demo"), 1)
}
