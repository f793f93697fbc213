package catalog

import (
	"strings"
	"testing"
)

const tools = `id: tools
name: Tools
description: A server of tools.
status: active
services:
  - id: tools__server
    name: Server
    description: Its tools.
    kind: mcp
    protocol: REST
    auth_method: none
    base_url: https://tools.example/mcp/
    status: active
    actions:
      - id: tools__server__add
        name: Add
        description: Adds.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, properties: {a: {}, dry: {}}}
        call:
          tool: Add-Numbers
          outcome_cases: [{when: "{{ params.dry == true }}", check: safe}]
`

func TestLoad_Tool(t *testing.T) {
	t.Parallel()
	c := load(t, Options{Dir: folder(t, map[string]string{"tools.yaml": tools})})
	a, _ := c.Action("tools__server__add")
	s, _ := c.Service(a.ServiceID)
	if a.Call.Tool != "Add-Numbers" || a.Call.TimeoutSeconds != 30 || s.BaseURL != "https://tools.example/mcp/" {
		t.Errorf("%+v at %s", a.Call, s.BaseURL)
	}
	if dry, wet := a.Outcome([]byte(`{"dry":true}`)), a.Outcome([]byte(`{}`)); dry != CheckSafe || wet != CheckNone {
		t.Errorf("outcome checks %s and %s", dry, wet)
	}
	for name, tc := range map[string]struct{ old, new, want string }{
		"no tool": {"tool: Add-Numbers", "max_in_flight: 3", ":22: tool must not be empty"},
		"no address": {"base_url: https://tools.example/mcp/", `base_url: ""`,
			"a tool needs the base_url of the service"},
		"body": {"tool: Add-Numbers", "tool: x\n          body: {a: 1}",
			"the call of a tool has tool, timeout_seconds"},
		"answer": {"tool: Add-Numbers", "tool: x\n          answer: {success: [201]}",
			"the call of a tool has tool, timeout_seconds"},
		"keyed": {"outcome_check: none", "outcome_check: keyed",
			"outcome_check keyed needs an idempotency_header"},
		"protocol":    {"protocol: REST", "protocol: SOAP", "the protocol of a service of kind mcp reads REST"},
		"another api": {"kind: mcp", "kind: api", "of tools for kind mcp"},
		"product":     {"kind: mcp", "kind: product", `a service of kind "product" cannot have actions`},
	} {
		text := strings.Replace(tools, tc.old, tc.new, 1)
		_, err := Load(Options{Dir: folder(t, map[string]string{"tools.yaml": text})})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v; want %q", name, err, tc.want)
		}
	}
}

const commands = `id: shell
name: Shell
description: Commands.
status: active
services:
  - id: shell__run
    name: Run
    description: Runs.
    kind: cli
    protocol: REST
    auth_method: none
    status: active
    actions:
      - id: shell__run__a
        name: A
        description: A.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, properties: {a: {}}}
        call:
          command: a
          args: ["{{ params.a }}"]
`

func TestLoad_Command(t *testing.T) {
	t.Parallel()
	c := load(t, Options{Dir: folder(t, map[string]string{"shell.yaml": commands})})
	a, _ := c.Action("shell__run__a")
	if a.Call.Stdout != StdoutText || len(a.Call.Exits.Success) != 1 || a.Call.TimeoutSeconds != 30 ||
		len(a.Call.Compiled.Args) != 1 {
		t.Errorf("%+v", a.Call)
	}
	for name, tc := range map[string]struct{ old, new, want string }{
		"no command": {"command: a", "stdout: text", "command must not be empty"},
		"stdout":     {"command: a", "command: a\n          stdout: xml", `stdout is "xml"`},
		"param":      {"params.a }}", "params.b }}", `the action has no parameter "b"`},
		"answer": {"command: a", "command: a\n          answer: {success: [200]}",
			"the call of a command has command, args"},
		"exit":       {"command: a", "command: a\n          exits: {refused: [256]}", "exit status 256"},
		"exit twice": {"command: a", "command: a\n          exits: {refused: [0]}", "exit status 0"},
		"sign in": {"auth_method: none", "auth_method: basic_auth",
			"a service of kind cli has protocol REST, auth_method none"},
		"another api": {"kind: cli", "kind: api", "of commands for cli"},
	} {
		_, err := Load(Options{Dir: folder(t, map[string]string{"shell.yaml": strings.Replace(commands, tc.old, tc.new,
			1)})})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v; want %q", name, err, tc.want)
		}
	}
}
