package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"flowlane/internal/jsonraw"
	"flowlane/internal/schema"
	"flowlane/internal/suggest"
)

// Problem is one place where parameters break their action's schema.
type Problem struct {
	// Path leads from the parameters to the value, or to where it is missing.
	Path []string
	// Type is a slug as in the answers of the API: missing, extra_forbidden, enum, type_error, value_error, ...
	Type string
	// Message says what would be right.
	Message string
}

// ValidateParams checks parameters against the action's schema. With skipTemplates, values that are or hold templates
// are taken to fit, so that a definition can be checked before any record is known: required names must still be there,
// and unknown names are still refused.
func (a *Action) ValidateParams(params []byte, skipTemplates bool) []Problem {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		return []Problem{{Type: "json_invalid", Message: "must be valid JSON"}}
	}
	if bad := a.oversized(value); len(bad) > 0 {
		return bad
	}
	out := problems(a.params, value, skipTemplates)
	for i, p := range out {
		if p.Type == "extra_forbidden" && len(p.Path) == 1 {
			out[i].Message += suggest.DidYouMean(p.Path[0], a.paramNames())
		}
	}
	return out
}

// oversized returns where parameters have numbers that are too large to be compared, but for those that no rule looks
// at.
func (a *Action) oversized(params any) (out []Problem) {
	byName, _ := params.(map[string]any)
	for name, value := range byName {
		if at := schema.Oversized(value); at != nil && !slices.Contains(a.free, name) {
			out = append(out, Problem{Path: append([]string{name}, at...), Type: "value_error", Message: tooLarge})
		}
	}
	return out
}

const tooLarge = "must be a number nearer to zero, or with fewer digits"

// problems returns where a value breaks a schema.
func problems(s *jsonschema.Schema, value any, skipTemplates bool) []Problem {
	if !checkable(s, value) {
		return []Problem{{Type: "value_error", Message: tooManySteps}}
	}
	err := s.Validate(value)
	if err == nil {
		return nil
	}
	failed := new(jsonschema.ValidationError)
	if !errors.As(err, &failed) {
		return []Problem{{Type: "value_error", Message: "cannot be checked: " + err.Error()}}
	}
	r := problemList{root: value, skip: skipTemplates}
	r.collect(failed)
	return r.out
}

// HasParam tells whether the action has a parameter of this name.
func (a *Action) HasParam(name string) bool { return slices.Contains(a.paramNames(), name) }

func (a *Action) paramNames() []string {
	var shape struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(a.ParamsSchema, &shape) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(shape.Properties))
}

// defaultOf returns the default of a parameter that is a string; "" where there is none.
func (a *Action) defaultOf(param string) string {
	var shape struct {
		Properties map[string]struct {
			Default any `json:"default"`
		} `json:"properties"`
	}
	if json.Unmarshal(a.ParamsSchema, &shape) != nil {
		return ""
	}
	text, _ := shape.Properties[param].Default.(string)
	return text
}

// maxProblems is how many places are told of.
const maxProblems = 1000

type problemList struct {
	root any
	skip bool
	out  []Problem
}

var english = message.NewPrinter(language.English)

// decimal writes a bound as the schema has it.
func decimal(n *big.Rat) string {
	if digits, exact := n.FloatPrec(); exact {
		return n.FloatString(digits)
	}
	return n.RatString()
}

// listed writes allowed values.
func listed(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		if text, ok := v.(string); ok && text != "" {
			out[i] = text
			continue
		}
		text, _ := json.Marshal(v)
		out[i] = string(text)
	}
	return strings.Join(out, ", ")
}

func (r *problemList) collect(e *jsonschema.ValidationError) {
	if len(r.out) >= maxProblems {
		return
	}
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Not, *kind.Contains, *kind.PropertyNames:
		// The branches contradict each other; the choice as a whole is what failed.
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				r.collect(cause)
			}
			return
		}
	}
	if r.skip && r.mayFit(e) {
		return
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			r.out = append(r.out, Problem{Path: below(e.InstanceLocation, name), Type: "missing",
				Message: "is required"})
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			r.out = append(r.out, Problem{Path: below(e.InstanceLocation, name), Type: "extra_forbidden",
				Message: "is not a parameter of this action"})
		}
	default:
		typ, text := worded(e.ErrorKind)
		r.out = append(r.out, Problem{Path: e.InstanceLocation, Type: typ, Message: text})
	}
}

// worded says what would be right of a value that is there.
func worded(k jsonschema.ErrorKind) (typ, text string) {
	switch k := k.(type) {
	case *kind.Type:
		return "type_error", "must be " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.MinLength:
		return "string_too_short", fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return "string_too_long", fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return "too_short", fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return "too_long", fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return "value_error", fmt.Sprintf("must have at least %d of its fields", k.Want)
	case *kind.MaxProperties:
		return "value_error", fmt.Sprintf("must have at most %d of its fields", k.Want)
	case *kind.Minimum:
		return "greater_than_equal", "must be at least " + decimal(k.Want)
	case *kind.Maximum:
		return "less_than_equal", "must be at most " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "greater_than", "must be more than " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "less_than", "must be less than " + decimal(k.Want)
	case *kind.MultipleOf:
		return "multiple_of", "must be a multiple of " + decimal(k.Want)
	case *kind.Pattern:
		return "string_pattern_mismatch", "must match " + k.Want
	case *kind.Format:
		return "value_error", "must be a valid " + k.Want
	case *kind.Enum:
		return "enum", "must be one of " + listed(k.Want)
	case *kind.Const:
		return "enum", "must be " + listed([]any{k.Want})
	case *kind.AnyOf, *kind.OneOf:
		return "value_error", "fits none, or more than one, of the allowed forms"
	}
	return "value_error", k.LocalizedString(english)
}

func below(path []string, name string) []string {
	return append(append(make([]string, 0, len(path)+1), path...), name)
}

// mayFit reports whether the failed value depends on a template, so that the rule can only be checked once it is
// rendered.
func (r *problemList) mayFit(e *jsonschema.ValidationError) bool {
	value := jsonraw.At(r.root, e.InstanceLocation)
	switch e.ErrorKind.(type) {
	case *kind.Required, *kind.AdditionalProperties:
		return false
	case *kind.Type, *kind.MinProperties, *kind.MaxProperties, *kind.MinItems, *kind.MaxItems:
		text, ok := value.(string)
		return ok && strings.Contains(text, "{{")
	}
	return holdsTemplate(value)
}

func holdsTemplate(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.Contains(v, "{{")
	case map[string]any:
		for _, item := range v {
			if holdsTemplate(item) {
				return true
			}
		}
	case []any:
		for _, item := range v {
			if holdsTemplate(item) {
				return true
			}
		}
	}
	return false
}

// SchemaError says why a text cannot be the schema of an action's parameters or output; nil where it can.
func SchemaError(text []byte) error {
	_, err := compileSchema(text)
	return err
}

// compileSchema compiles a JSON Schema 2020-12. References to other documents are refused: nothing is ever fetched.
func compileSchema(text JSON) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	const at = "schema:///params" // three slashes: references within the schema are written so
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(noLoader{})
	if err := c.AddResource(at, doc); err != nil {
		return nil, err
	}
	return c.Compile(at)
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to another document: %s", url)
}
