package expr

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documentRow is a row of a table whose last two cells are an example and its result.
var documentRow = regexp.MustCompile("(?m)^\\| (.*) \\| (.*) \\| `(.*)` \\| `(.*)` \\|$")

// TestDocument runs the examples of docs/expressions.md: there is one for each function, with its name, and none is
// wrong.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/expressions.md")
	require.NoError(t, err)
	_, sample, _ := strings.Cut(string(text), "```json\n")
	sample, _, _ = strings.Cut(sample, "```")
	env, scope := documentEnv(t, sample)
	operators, functions, found := strings.Cut(string(text), "\n## Functions\n")
	require.True(t, found)

	var documented []string
	rows := documentRow.FindAllStringSubmatch(functions, -1)
	for _, row := range rows {
		name, _, _ := strings.Cut(strings.TrimPrefix(row[1], "`"), "(")
		documented = append(documented, name)
		if !strings.Contains(row[3], name+"(") {
			t.Errorf("the example of %s does not call it: %s", name, row[3])
		}
	}
	slices.Sort(documented)
	require.Equal(t, functionNames(), documented, "the functions with an example, each once")

	before := documentRow.FindAllStringSubmatch(operators, -1)
	require.Greater(t, len(before), 15)
	for _, row := range append(before, rows...) {
		expression := strings.ReplaceAll(row[3], `\|`, "|")
		tpl, errs := Compile(AppendJSONString(nil, "{{ "+expression+" }}"), scope)
		if len(errs) > 0 {
			t.Errorf("%s: %v", expression, errs)
			continue
		}
		if out, err := tpl.Append(nil, env); err != nil || string(out) != row[4] {
			t.Errorf("%s\n got %s, %v\nwant %s", expression, out, err, row[4])
		}
	}
}

// documentEnv is what the examples see.
func documentEnv(t *testing.T, sample string) (*Env, Scope) {
	t.Helper()
	var names struct {
		Input, Metadata, Vars, Batch json.RawMessage
		Steps                        map[string]map[string]map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(sample), &names))
	scope := Scope{Input: true, Metadata: true, Vars: true, Batch: true, Steps: map[string][]string{}}
	for step, tasks := range names.Steps {
		for task := range tasks {
			scope.Steps[step] = append(scope.Steps[step], task)
		}
	}
	return &Env{
		Input: names.Input, Metadata: names.Metadata, Vars: names.Vars, Batch: names.Batch,
		Result: func(ref TaskRef) json.RawMessage { return names.Steps[ref.Step][ref.Task][ref.Of] },
	}, scope
}
