// Package schema owns the JSON Schemas (draft 2020-12) that authors write for their data: it compiles one, names every
// mistake with its place, and checks values against it.
//
// It promises that no check runs away: a schema is bounded in size and depth, refers to nothing outside itself and
// never back to where it came from, so that with its references written out it is a tree of known size; a value is
// bounded in bytes, and by what that tree costs for each of its parts. Problems name places and what would be right,
// never values.
//
// It must not know what the data is for.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a schema and of the values that are checked.
const (
	// MaxBytes is the longest schema.
	MaxBytes = 64 << 10
	// maxDepth is how deep its text may nest.
	maxDepth = 32
	// maxParts is how many subschemas it may have with its references written out.
	maxParts = 2000
	// maxValue is the longest value that is checked, in bytes.
	maxValue = 1 << 20
	// maxCost bounds the parts of a value times what the schema costs for one.
	maxCost = 1_000_000 * costPart
	// maxPatterns bounds the patterns of a schema together, in instructions.
	maxPatterns = 20_000
	// maxMatching bounds what matching patterns may cost: instructions times bytes.
	maxMatching = 200_000_000
	// MaxProblems is how many problems of a value are told; there may be more.
	MaxProblems = 1000
	// maxExponent bounds numbers: comparing 1e999999 takes the room of all its digits.
	maxExponent = 400
)

// Problem is a mistake in a schema, or a place where a value breaks one.
type Problem struct {
	// Path leads to the place from the top.
	Path []string
	// Type is a slug as in the answers of the API: missing, enum, value_error, ...
	Type string
	// Message says what would be right.
	Message string
}

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	cost     int
	// matching is shared by all checks, which therefore go one after another.
	mu       sync.Mutex
	matching *matching
}

const address = "schema:///" // references within the schema are resolved against it

// Compile compiles the text of a schema, a JSON object. There is no schema where there are problems.
func Compile(text []byte) (*Schema, []Problem) {
	if len(text) > MaxBytes {
		return nil, []Problem{{Type: "too_long", Message: fmt.Sprintf("Must have at most %d bytes, not %d", MaxBytes,
			len(text))}}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, []Problem{{Type: "json_invalid", Message: "Must be valid JSON"}}
	}
	l := newInspection(doc)
	l.schema(doc, nil)
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(noLoader{})
	matching := &matching{left: maxMatching}
	c.UseRegexpEngine(matching.compile)
	if err := c.AddResource(address, doc); err != nil {
		return nil, []Problem{{Type: "value_error", Message: "Cannot be read: " + err.Error()}}
	}
	compiled, err := c.Compile(address)
	if broken := new(jsonschema.SchemaValidationError); errors.As(err, &broken) {
		if failed := new(jsonschema.ValidationError); errors.As(broken.Err, &failed) {
			return nil, collect(failed)
		}
	}
	if err != nil {
		return nil, []Problem{{Type: "value_error", Message: "Is no schema: " + strings.ReplaceAll(err.Error(), address,
			"")}}
	}
	m := measure{seen: map[*jsonschema.Schema]extent{}}
	size := m.of(compiled)
	switch {
	case m.circular != nil:
		return nil, []Problem{{Path: m.circular, Type: "value_error",
			Message: "Must not refer to itself, directly or through others"}}
	case size.parts > maxParts:
		return nil, []Problem{{Type: "too_long",
			Message: fmt.Sprintf("With its references written out it has more than %d subschemas; make it smaller",
				maxParts)}}
	}
	return &Schema{compiled: compiled, cost: size.cost, matching: matching}, nil
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to another document: %s", url)
}

// Check returns where a JSON value breaks the schema, nothing where it fits.
func (s *Schema) Check(value []byte) []Problem {
	if len(value) > maxValue {
		return []Problem{{Type: "too_long", Message: fmt.Sprintf("must have at most %d bytes, not %d", maxValue,
			len(value))}}
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return []Problem{{Type: "json_invalid", Message: "must be valid JSON"}}
	}
	size := sizing{left: maxCost / s.cost}
	size.of(v, nil)
	switch {
	case size.left < 0:
		return []Problem{{Type: "too_long", Message: "has too many values to be checked against a schema of this size"}}
	case size.number != nil:
		return []Problem{{Path: size.number, Type: "value_error",
			Message: "must be a number nearer to zero, or with fewer digits"}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.matching.left = maxMatching
	err = s.compiled.Validate(v)
	switch {
	case s.matching.spent():
		return []Problem{{Type: "too_long",
			Message: "has too much text to be checked against the patterns of this schema"}}
	case err == nil:
		return nil
	}
	failed := new(jsonschema.ValidationError)
	if !errors.As(err, &failed) {
		return []Problem{{Type: "value_error", Message: "cannot be checked"}}
	}
	return collect(failed)
}

// sizing counts the parts of a value, and finds numbers that are too large to be compared.
type sizing struct {
	left   int
	number []string
}

func (s *sizing) of(v any, at []string) {
	if s.left--; s.left < 0 {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			s.of(x, append(at[:len(at):len(at)], name))
		}
	case []any:
		for i, x := range v {
			s.of(x, append(at[:len(at):len(at)], fmt.Sprint(i)))
		}
	case json.Number:
		if tooLarge(v) {
			s.number = append([]string{}, at...)
		}
	}
}

// Oversized returns the place of a number that is too large to be compared with others, nil where a value has none.
func Oversized(value any) []string {
	size := sizing{left: math.MaxInt}
	size.of(value, nil)
	return size.number
}

func tooLarge(n json.Number) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(string(n)), "e")
	exponent = strings.TrimLeft(exponent, "+-0")
	return len(mantissa) > maxExponent || len(exponent) > 3 || (len(exponent) == 3 &&
		exponent > fmt.Sprint(maxExponent))
}
