package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/cli"
	"flowlane/test/servers"
)

// everythingServer is the reference server of the Model Context Protocol. It names the port that it is told, not the
// one that it gets.
const everythingServer = `
console.log = console.error
const { Server } = require("net")
const listen = Server.prototype.listen
Server.prototype.listen = function (...args) {
  this.once("listening", () => process.stdout.write(this.address().port + "\n"))
  return listen.apply(this, args)
}
process.env.PORT = "0"
import("@modelcontextprotocol/server-everything/dist/transports/streamableHttp.js")`

// TestMCPServer: the tools of a server that others wrote are imported, and called by a flow.
func TestMCPServer(t *testing.T) {
	t.Parallel()
	host := "127.0.0.1:" + servers.Start(t, everythingServer)
	dir := t.TempDir()
	file := filepath.Join(dir, "everything.yaml")
	var said strings.Builder
	imported := []string{"catalog", "import", "mcp", "--url", "http://" + host + "/mcp", "--platform-id", "everything",
		"--out", file}
	require.Zero(t, cli.Main(imported, &said, &said), "%s", &said)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	said.Reset()
	require.Zero(t, cli.Main(imported, &said, &said), "%s", &said)
	assert.Contains(t, said.String(), "is up to date")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), "tool: get-env", "tool: no-such-tool",
		1)), 0o600))

	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts, c.CatalogDir = append(c.AllowHosts, host), dir })
	checks := map[string]string{}
	for _, a := range s.pages("/catalog/services/everything__tools/actions", 100) {
		checks[strings.TrimPrefix(field[string](t, a, "id"), "everything__tools__")] = field[string](t, a,
			"outcome_check")
	}
	assert.Equal(t, "safe", checks["echo"], checks)
	assert.Equal(t, "none", checks["toggle_simulated_logging"], checks)

	task := func(step, tool, params string) string {
		return `{"id":"` + step + `","tasks":[{"id":"` + step + `","action_id":"everything__tools__` + tool +
			`","params":` + params + `}]}`
	}
	batch := s.trigger(s.define("["+task("echo", "echo", `{"message":"{{ input.name }}"}`)+","+
		task("sum", "get_sum", `{"a":"{{ input.n }}","b":40}`)+","+
		task("weather", "get_structured_content", `{"location":"New York"}`)+"]"),
		`{"records":[{"name":"ü \"a\"","n":2},{"name":"b","n":3}]}`)
	assert.Equal(t, map[string]int{"completed": 2}, counted(s.await(batch)))
	steps := string(s.Do(http.MethodGet, "/flows/executions/"+batch+".0.1", nil).Want(http.StatusOK).Body)
	assert.Contains(t, steps, `"text":"Echo: ü \"a\""`)
	assert.Contains(t, steps, `"text":"The sum of 2 and 40 is 42."`)
	assert.IsType(t, 0.0, s.get("/flows/jobs/" + batch + ".1")["output"].(map[string]any)["humidity"])
	calls := s.calls("batch_id=" + batch)
	require.Len(t, calls, 6)

	for tool, want := range map[string]struct{ params, code, message string }{
		"get_env":                {`{}`, "-32602", "no-such-tool not found"},
		"get_resource_reference": {`{"resourceType":"Text","resourceId":-1}`, "tool_error", "resourceId"},
	} {
		batch := s.trigger(s.define("["+task("t", tool, want.params)+"]"), `{"input_data":{}}`)
		s.await(batch)
		failed := s.get("/flows/jobs/" + batch + ".0")["error"].(map[string]any)
		assert.Equal(t, "provider_refused", failed["code"], failed)
		assert.Contains(t, failed["provider_message"], want.message)
		assert.Len(t, s.calls("batch_id="+batch+"&outcome=refused"), 1)
	}
}
