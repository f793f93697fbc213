//go:build linux

package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// shellPlatform describes commands that are run; the script says what they do.
const shellPlatform = `id: shell
name: Shell
description: Commands of this machine.
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
`

const shellAction = `
      - id: shell__run__upper
        name: Upper
        description: Writes a text in capitals.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, properties: {text: {}, exit: {}}}
        call:
          command: script
          args: ["{{ params.exit ?? 0 }}", "{{ params.text }}"]
          stdin: {text: "{{ params.text }}"}
          stdout: json
          exits: {refused: [2], retry: [75]}
`

// TestCommands: a flow runs a command that the operator allows, which gets its record and gives its output; what its
// exit does not prove is left to a person, and what is not allowed is not run.
func TestCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	who := "sandbox: none"
	if os.Geteuid() == 0 {
		who = "user: nobody"
	}
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	put("catalog/shell.yaml", shellPlatform+shellAction+strings.NewReplacer("__upper", "__other", "command: script",
		"command: other").Replace(shellAction))
	allowed := put("commands.yaml", `commands:
  - name: script
    path: /bin/sh
    args: [-c, 'echo "no: $2" >&2; tr a-z A-Z; exit $1', script]
    env: {PATH: /usr/bin:/bin}
    `+who+"\n")
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.Commands = filepath.Join(dir, "catalog"), allowed })
	flow := func(action, params string) string {
		return s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"shell__run__` + action +
			`","retry":{"max_attempts":1},"params":` + params + `}]}]`)
	}
	batch := s.trigger(flow("upper", `{"text":"{{ input.name }}"}`),
		`{"records":[{"name":"a $(id) 'b'"},{"name":"-x"}]}`)
	s.await(batch)
	assert.Equal(t, map[string]any{"TEXT": "A $(ID) 'B'"}, s.get("/flows/jobs/" + batch + ".0")["output"])
	failed := s.get("/flows/jobs/" + batch + ".1")["error"].(map[string]any)
	assert.Equal(t, "invalid_parameters", failed["code"])
	assert.Contains(t, failed["message"], "must not begin with -")
	require.Len(t, s.calls("batch_id="+batch), 1)

	for exit, want := range map[string][]any{
		"2": {"provider_refused", "exit_2", "no: x"}, "75": {"provider_refused", "exit_75", "no: x"},
		"9": {"outcome_unknown", "exit_9", "no: x"},
	} {
		batch := s.trigger(flow("upper", `{"text":"x","exit":`+exit+`}`), `{"input_data":{}}`)
		if exit != "9" {
			s.await(batch)
		}
		var failed map[string]any
		require.Eventually(t, func() bool {
			failed, _ = s.get("/flows/jobs/" + batch + ".0")["error"].(map[string]any)
			return failed != nil
		}, 30*time.Second, 20*time.Millisecond)
		assert.Equal(t, want, []any{failed["code"], failed["provider_code"], failed["provider_message"]})
	}
	batch = s.trigger(flow("other", `{}`), `{"input_data":{}}`)
	s.await(batch)
	assert.Equal(t, "command_forbidden", s.get("/flows/jobs/" + batch + ".0")["error"].(map[string]any)["code"])
}
