package flowtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Compare returns what differs between what came and what is expected, in the order of the file. results are JSON
// objects.
func (t *Test) Compare(calls []Call, results []json.RawMessage) []MistakeError {
	return append(t.compareCalls(calls), t.compareResults(results)...)
}

func mistakes(err error) []MistakeError {
	m, ok := err.(MistakeError) //nolint:errorlint // those that call return it bare
	if !ok {
		m.Message = err.Error()
	}
	return []MistakeError{m}
}

// list decodes the items of a list, each as strictly as the whole file.
func list[T any](t *Test, n *yaml.Node) ([]T, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, t.at(n, "this must be a list")
	}
	out := make([]T, len(n.Content))
	for i, item := range n.Content {
		if err := item.Decode(&out[i]); err != nil {
			return nil, t.at(item, "%v", err)
		}
	}
	return out, nil
}

// unknown returns the name of a field that an object has beside the known ones; nil for none.
func unknown(object *yaml.Node, known ...string) *yaml.Node {
	for i := 0; i+1 < len(object.Content); i += 2 {
		if !slices.Contains(known, object.Content[i].Value) {
			return object.Content[i]
		}
	}
	return nil
}

func (t *Test) compareCalls(came []Call) []MistakeError {
	n := &t.Expect.Calls
	if n.IsZero() {
		return nil
	}
	expected, err := list[ExpectedCall](t, n)
	if err != nil {
		return mistakes(err)
	}
	var missing []int
	rest := slices.Clone(came)
	bodies := make([]any, len(expected))
	for i := range expected {
		e := &expected[i]
		if odd := unknown(n.Content[i], "call", "body"); odd != nil {
			return mistakes(t.at(odd, "an expected call has no field %s", odd.Value))
		}
		if !isCall(e.Call.Value) {
			return mistakes(t.at(n.Content[i], "an expected call needs `call`: a method and a path, as PUT /people/1"))
		}
		if bodies[i], err = t.value(&e.Body); err != nil && !e.Body.IsZero() {
			return mistakes(err)
		}
		at := slices.IndexFunc(rest, func(c Call) bool {
			return matches(e.Call.Value, c) && (e.Body.IsZero() || same(bodies[i], c.value()))
		})
		if at < 0 {
			missing = append(missing, i)
			continue
		}
		rest = slices.Delete(rest, at, at+1)
	}
	var out []MistakeError
	for _, i := range missing {
		e := &expected[i]
		m := t.at(&e.Call, "this call did not come")
		m.Expected = e.Call.Value
		if !e.Body.IsZero() {
			m.Expected += " " + line(bodies[i])
		}
		m.Came = "no call"
		at := slices.IndexFunc(rest, func(c Call) bool { return matches(e.Call.Value, c) })
		if at < 0 && len(rest) > 0 {
			at = 0
		}
		if at >= 0 {
			m.Came = rest[at].String()
			rest = slices.Delete(rest, at, at+1)
		}
		out = append(out, m)
	}
	for _, c := range rest {
		m := t.at(n, "a call came that is not expected")
		m.Expected, m.Came = fmt.Sprintf("%d calls", len(expected)), c.String()
		out = append(out, m)
	}
	return out
}

func (t *Test) compareResults(came []json.RawMessage) []MistakeError {
	n := &t.Expect.Results
	if n.IsZero() {
		return nil
	}
	items, err := list[yaml.Node](t, n)
	if err != nil {
		return mistakes(err)
	}
	var out []MistakeError
	if len(items) != len(came) {
		m := t.at(n, "there are more or fewer results than expected")
		m.Expected, m.Came = fmt.Sprintf("%d results", len(items)), fmt.Sprintf("%d results", len(came))
		out = append(out, m)
	}
	for i := range min(len(items), len(came)) {
		expected, err := t.value(n.Content[i])
		if err != nil {
			return append(out, mistakes(err)...)
		}
		result, err := parse(came[i])
		if err != nil {
			return append(out, mistakes(t.at(n.Content[i], "the result is no JSON: %v", err))...)
		}
		if !within(expected, result) {
			m := t.at(n.Content[i], "the result of row %d is another one%s", i+1, t.failedIn(result))
			m.Expected, m.Came = line(expected), line(shown(result))
			out = append(out, m)
		}
	}
	return out
}

// same compares values whose numbers may be written in different ways.
func same(a, b any) bool { return reflect.DeepEqual(normal(a), normal(b)) }

// normal returns a value whose numbers are floats where these have room for all digits, and else as they were written.
func normal(v any) any {
	switch t := v.(type) {
	case json.Number:
		digits, _, _ := strings.Cut(strings.ToLower(string(t)), "e")
		digits = strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(digits), "0")
		if f, err := t.Float64(); err == nil && len(digits) <= exactDigits {
			return f
		}
	case map[string]any:
		out := make(map[string]any, len(t))
		for name, child := range t {
			out[name] = normal(child)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, child := range t {
			out[i] = normal(child)
		}
		return out
	}
	return v
}

// exactDigits is how many decimal digits of any number a float keeps.
const exactDigits = 15

// within reports whether came has all that expected names: of objects the fields that stand there, anything else whole.
func within(expected, came any) bool {
	e, ok := expected.(map[string]any)
	if !ok {
		return same(expected, came)
	}
	c, ok := came.(map[string]any)
	if !ok {
		return false
	}
	for name, v := range e {
		got, there := c[name]
		if !there || !within(v, got) {
			return false
		}
	}
	return true
}

// failedIn says which step of the flow a record ended in, where it failed.
func (t *Test) failedIn(result any) string {
	r, _ := result.(map[string]any)
	e, _ := r["error"].(map[string]any)
	step, _ := e["step_id"].(string)
	if step == "" {
		return ""
	}
	return fmt.Sprintf(": it failed in step %q, task %q of %s", step, e["task_id"], t.Near(t.Flow.Value))
}

// shown is of a result what a test may expect: ids and times differ each time.
func shown(result any) any {
	r, ok := result.(map[string]any)
	if !ok {
		return result
	}
	out := map[string]any{}
	for _, name := range []string{"status", "output", "error"} {
		if r[name] != nil {
			out[name] = r[name]
		}
	}
	return out
}

// matches reports whether a call is the one that is meant.
func matches(pattern string, c Call) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(c.Call, prefix)
	}
	return c.Call == pattern
}
