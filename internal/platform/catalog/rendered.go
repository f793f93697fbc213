package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"flowlane/internal/expr"
	"flowlane/internal/jsonraw"
	"flowlane/internal/schema"
)

// ErrRendered is wrapped by the errors about rendered parameters that break the schema of their action.
var ErrRendered = errors.New("the parameters break the schema of their action")

// Bounds of what an error of RenderCheck tells.
const (
	mostProblems = 5
	mostText     = 1000
)

// RenderCheck checks what ValidateParams had to leave open of parameters, once they are rendered for a record: those
// whose templates can give what the schema refuses. A nil check refuses nothing. It is safe for concurrent use.
type RenderCheck struct {
	names []string
	// params run in parallel to names.
	params []paramCheck
	// record is what each record of a bulk action is checked against; nil for nothing.
	record *paramCheck
}

type paramCheck struct {
	name     string
	schema   *jsonschema.Schema
	required bool
	// types are those allowed, where the schema says nothing else; nil where it does.
	types []string
	// json: the value is part of a JSON body, where types are told apart.
	json bool
}

// RenderCheck returns the check of parameters that are written so and broke no rule of ValidateParams; nil where there
// is nothing to check. Rules that concern several parameters together are not looked at again.
func (a *Action) RenderCheck(params []byte) *RenderCheck {
	var shape struct {
		Properties map[string]any `json:"properties"`
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	written, isObject := value.(map[string]any)
	if err != nil || !isObject || json.Unmarshal(a.ParamsSchema, &shape) != nil {
		return nil
	}
	var c RenderCheck
	inBody := a.bodyParams()
	for name, value := range written {
		compiled := a.params.Properties[name]
		if compiled == nil || certain(shape.Properties[name], value) {
			continue
		}
		p := paramCheck{
			name: name, schema: compiled, required: slices.Contains(a.params.Required, name),
			types: onlyTypes(shape.Properties[name]), json: inBody[name],
		}
		if a.Bulk && a.Call != nil && a.Call.Records != nil && name == a.Call.Records.Param {
			p.json = true
			c.record = &p
			continue
		}
		c.params = append(c.params, p)
	}
	if len(c.params) == 0 && c.record == nil {
		return nil
	}
	slices.SortFunc(c.params, func(p, q paramCheck) int { return strings.Compare(p.name, q.name) })
	for i := range c.params {
		c.names = append(c.names, c.params[i].name)
	}
	return &c
}

// bodyParams are the parameters that become part of a JSON body.
func (a *Action) bodyParams() map[string]bool {
	names := map[string]bool{}
	if a.Call == nil || a.Call.BodyForm == BodySOAP || slices.Contains(BodyForms[1:], a.Call.BodyForm) {
		return names
	}
	for _, m := range paramName.FindAllStringSubmatch(string(a.Call.Body), -1) {
		names[m[1]] = true
	}
	return names
}

// Params checks rendered parameters, an object; those of a bulk action without its record. The error wraps ErrRendered.
func (c *RenderCheck) Params(rendered []byte) error {
	if c == nil || len(c.names) == 0 {
		return nil
	}
	values := make([][]byte, len(c.names))
	if err := expr.ScanFields(rendered, c.names, values); err != nil {
		return fmt.Errorf("%w: %w", ErrRendered, err)
	}
	var bad []Problem
	for i := range c.params {
		bad = append(bad, c.params[i].check(values[i])...)
	}
	return broken(bad)
}

// Records reports whether rendered records of a bulk action are checked.
func (c *RenderCheck) Records() bool { return c != nil && c.record != nil }

// Record checks the rendered record of a bulk action. The error wraps ErrRendered.
func (c *RenderCheck) Record(rendered []byte) error {
	if !c.Records() {
		return nil
	}
	return broken(c.record.check(rendered))
}

func broken(bad []Problem) error {
	if len(bad) == 0 {
		return nil
	}
	messages := make([]string, 0, mostProblems)
	for _, p := range bad[:min(len(bad), mostProblems)] {
		messages = append(messages, strings.Join(p.Path, ".")+" "+p.Message)
	}
	text := strings.Join(messages, "; ")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "..."
	}
	return fmt.Errorf("%w: %s", ErrRendered, text)
}

// check returns where a rendered value breaks the schema. A null counts as left out where the schema does not require
// the name: templates have no other way to leave something out.
func (p *paramCheck) check(raw []byte) []Problem {
	if len(raw) == 0 || string(raw) == "null" && !p.required || slices.Contains(p.types, plainType(raw)) {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return []Problem{{Path: []string{p.name}, Message: "must be valid JSON"}}
	}
	if at := schema.Oversized(value); at != nil {
		return []Problem{{Path: append([]string{p.name}, at...), Message: tooLarge}}
	}
	bad := problems(p.schema, value, false)
	if sent, changed := p.asSent(value, bad); changed {
		bad = problems(p.schema, sent, false)
	}
	for i := range bad {
		bad[i].Path = append([]string{p.name}, bad[i].Path...)
	}
	return bad
}

// plainType returns the type of a JSON value as schemas name it; a number is "number" also where it is whole.
func plainType(raw []byte) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// asSent puts what is sent in place of values that have a problem, and reports whether there were any such values: a
// field that is null is left out (one that is required is then missing), and outside of a JSON body a number, true or
// false is the same as its text.
func (p *paramCheck) asSent(root any, bad []Problem) (sent any, changed bool) {
	for _, problem := range bad {
		at := len(problem.Path) - 1
		if at < 0 {
			if text, ok := p.retyped(root, problem); ok {
				return text, true
			}
			continue
		}
		name := problem.Path[at]
		switch parent := jsonraw.At(root, problem.Path[:at]).(type) {
		case map[string]any:
			value, there := parent[name]
			if other, ok := p.retyped(value, problem); ok {
				parent[name], changed = other, true
			} else if there && value == nil {
				delete(parent, name)
				changed = true
			}
		case []any:
			i, _ := strconv.Atoi(name)
			if other, ok := p.retyped(parent[i], problem); ok {
				parent[i], changed = other, true
			}
		}
	}
	return root, changed
}

// retyped returns a value of another type that is sent in the same way; ok is false where there is none, or the type
// is not the problem.
func (p *paramCheck) retyped(value any, problem Problem) (other any, ok bool) {
	if p.json || problem.Type != "type_error" {
		return nil, false
	}
	switch value := value.(type) {
	case json.Number:
		return value.String(), true
	case bool:
		return strconv.FormatBool(value), true
	case string:
		other, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
		if n, isNumber := other.(json.Number); err == nil && isNumber {
			return n, schema.Oversized(n) == nil
		}
		return other, err == nil && (other == true || other == false)
	}
	return nil, false
}

// silent are the keywords that refuse no value.
var silent = []string{"$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}

// saysOnly reports whether a schema refuses values by these keywords alone, and returns it.
func saysOnly(s any, keywords ...string) (map[string]any, bool) {
	members, isObject := s.(map[string]any)
	for name := range members {
		if !slices.Contains(silent, name) && !slices.Contains(keywords, name) {
			return nil, false
		}
	}
	return members, isObject || s == true
}

// onlyTypes returns the types that a schema allows; nil where it says anything else.
func onlyTypes(s any) (types []string) {
	members, only := saysOnly(s, "type")
	if !only {
		return nil
	}
	switch allowed := members["type"].(type) {
	case string:
		return []string{allowed}
	case []any:
		for _, one := range allowed {
			text, _ := one.(string)
			types = append(types, text)
		}
	}
	return types
}

// certain reports whether all that can be rendered from a value fits a schema, given that what is written in it does.
func certain(s, written any) bool {
	if _, anything := saysOnly(s); anything || !holdsTemplate(written) {
		return true
	}
	switch written := written.(type) {
	case string:
		text := strings.TrimSpace(written)
		alone := strings.HasPrefix(text, "{{") && strings.HasSuffix(text, "}}")
		return !alone && slices.Contains(onlyTypes(s), "string")
	case map[string]any:
		members, plain := saysOnly(s, "type", "properties", "required", "additionalProperties")
		if !plain {
			return false
		}
		fields, _ := members["properties"].(map[string]any)
		for name, value := range written {
			of, named := fields[name]
			if !named {
				of = members["additionalProperties"]
			}
			if of != nil && !certain(of, value) {
				return false
			}
		}
		return true
	}
	return false
}
