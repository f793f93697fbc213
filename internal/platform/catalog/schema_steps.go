package catalog

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of checking one value: schemas of a few lines can ask for more work than there is time, since each of a chain
// of them may lead to the next one twice, and the validator neither remembers what it has seen nor can be stopped.
const (
	// maxSchemaSteps, and stepsOfValue for each part of the value, is what the rules of all schemas that look at it and
	// at what it holds may cost: one for a rule, and one for each thing, or 32 bytes, that it has to look through.
	maxSchemaSteps = 1 << 18
	stepsOfValue   = 4
	// maxSchemaDepth is how many schemas may stand in one another for one value, maxSchemaStack how many for a value
	// and what it holds: each takes two kilobytes of the stack.
	maxSchemaDepth = 1000
	maxSchemaStack = 20_000
)

const tooManySteps = "cannot be checked against its schema, whose parts lead to one another too many times; " +
	"give less, or import a document without such schemas"

// checkable reports whether checking a value against a schema takes a bounded number of steps. Nothing is checked for
// that: it goes where the validator could go, whatever fits.
func checkable(s *jsonschema.Schema, value any) bool {
	c := stepCounter{left: maxSchemaSteps + stepsOfValue*sizeOf(value)}
	c.visit(s, value)
	return c.left > 0
}

// sizeOf is how much there is to look through in a value.
func sizeOf(value any) int {
	n := 1
	switch v := value.(type) {
	case string:
		n += len(v) / 32
	case map[string]any:
		for name, one := range v {
			n += len(name)/32 + sizeOf(one)
		}
	case []any:
		for _, one := range v {
			n += sizeOf(one)
		}
	}
	return n
}

type stepCounter struct {
	left, depth int
	// above are the schemas that look at the same value, each for the one before.
	above []*jsonschema.Schema
}

// visit counts a schema that looks at a value. The validator ends by itself where a schema leads back to itself for the
// same value.
func (c *stepCounter) visit(s *jsonschema.Schema, value any) {
	if c.left--; c.left <= 0 || s == nil || s.Bool != nil || slices.Contains(c.above, s) {
		return
	}
	if len(c.above) == maxSchemaDepth || c.depth == maxSchemaStack || s.RecursiveRef != nil ||
		s.DynamicRef != nil && s.DynamicRef.Anchor != "" {
		c.left = 0 // where the last two lead depends on the way
		return
	}
	c.depth++
	defer func() { c.depth-- }()
	c.left -= rulesOf(s, value)
	c.above = append(c.above, s)
	c.inPlace(s, value)
	c.above = c.above[:len(c.above)-1]
	if c.left <= 0 {
		return
	}
	above := c.above
	c.above = nil
	switch v := value.(type) {
	case map[string]any:
		c.fields(s, v)
	case []any:
		c.items(s, v)
	}
	c.above = above
}

// rulesOf is what the rules of one schema cost that lead to no other schema.
func rulesOf(s *jsonschema.Schema, value any) int {
	n := len(s.Required)
	for _, names := range s.DependentRequired {
		n += len(names)
	}
	if s.Enum != nil {
		n += len(s.Enum.Values)
	}
	if s.Enum != nil || s.Const != nil || s.UniqueItems {
		n += sizeOf(value)
	}
	text, ok := value.(string)
	if !ok {
		return n
	}
	if s.MinLength != nil || s.MaxLength != nil || s.Format != nil {
		n += len(text) / 32
	}
	if s.Pattern != nil {
		n += (1 + len(text)/32) * (1 + len(s.Pattern.String())/32)
	}
	return n
}

// inPlace counts the schemas that look at the same value.
func (c *stepCounter) inPlace(s *jsonschema.Schema, value any) {
	for _, one := range [...]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else} {
		if one != nil {
			c.visit(one, value)
		}
	}
	if s.DynamicRef != nil {
		c.visit(s.DynamicRef.Ref, value)
	}
	for _, several := range [...][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, one := range several {
			c.visit(one, value)
		}
	}
	for _, one := range s.DependentSchemas {
		c.visit(one, value)
	}
	for _, one := range s.Dependencies {
		c.visitAny(one, value)
	}
}

// visitAny counts what may be a schema, several, or none.
func (c *stepCounter) visitAny(one, value any) {
	switch s := one.(type) {
	case *jsonschema.Schema:
		c.visit(s, value)
	case []*jsonschema.Schema:
		for _, each := range s {
			c.visit(each, value)
		}
	}
}

// fields counts the schemas that look at what an object holds, and the object's names, which each schema copies.
func (c *stepCounter) fields(s *jsonschema.Schema, object map[string]any) {
	c.left -= len(object) * (1 + len(s.PatternProperties))
	for name, value := range object {
		if c.left <= 0 {
			return
		}
		if one, ok := s.Properties[name]; ok {
			c.visit(one, value)
		}
		for _, one := range s.PatternProperties {
			c.visit(one, value)
		}
		c.visitAny(s.AdditionalProperties, value)
		if s.UnevaluatedProperties != nil {
			c.visit(s.UnevaluatedProperties, value)
		}
		if s.PropertyNames != nil {
			c.visit(s.PropertyNames, name)
		}
	}
}

// items counts the schemas that look at the items of an array; Items and AdditionalItems are those of older drafts.
func (c *stepCounter) items(s *jsonschema.Schema, array []any) {
	c.left -= len(array)
	for i, value := range array {
		if c.left <= 0 {
			return
		}
		if i < len(s.PrefixItems) {
			c.visit(s.PrefixItems[i], value)
		}
		for _, one := range [...]*jsonschema.Schema{s.Items2020, s.Contains, s.UnevaluatedItems} {
			if one != nil {
				c.visit(one, value)
			}
		}
		c.visitAny(s.Items, value)
		c.visitAny(s.AdditionalItems, value)
	}
}
