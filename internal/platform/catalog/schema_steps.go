package catalog

import "github.com/santhosh-tekuri/jsonschema/v6"

// Bounds of checking one value: schemas of a few lines can ask for more work than there is time, since each of a chain
// of them may lead to the next one twice, and the validator neither remembers what it has seen nor can be stopped.
const (
	// maxSchemaSteps is how many schemas may look at a value and at what it holds; a step takes half a microsecond.
	maxSchemaSteps = 2 << 20
	// maxSchemaDepth is how many schemas may stand in one another for one value.
	maxSchemaDepth = 1000
)

const tooManySteps = "cannot be checked against its schema, whose parts lead to one another too many times; " +
	"give less, or import a document without such schemas"

// checkable reports whether checking a value against a schema takes a bounded number of steps. Nothing is checked for
// that: it goes where the validator could go, whatever fits.
func checkable(s *jsonschema.Schema, value any) bool {
	c := stepCounter{left: maxSchemaSteps}
	c.visit(s, value, 0)
	return c.left > 0
}

type stepCounter struct{ left int }

// visit counts a schema that looks at a value; depth is how many others look at the same value for it.
func (c *stepCounter) visit(s *jsonschema.Schema, value any, depth int) {
	if c.left--; s == nil || s.Bool != nil || c.left <= 0 {
		return
	}
	if depth > maxSchemaDepth {
		c.left = 0
		return
	}
	c.inPlace(s, value, depth+1)
	switch v := value.(type) {
	case map[string]any:
		c.fields(s, v)
	case []any:
		c.items(s, v)
	}
}

// inPlace counts the schemas that look at the same value.
func (c *stepCounter) inPlace(s *jsonschema.Schema, value any, depth int) {
	for _, one := range [...]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else} {
		if one != nil {
			c.visit(one, value, depth)
		}
	}
	if s.DynamicRef != nil {
		c.visit(s.DynamicRef.Ref, value, depth)
	}
	for _, several := range [...][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, one := range several {
			c.visit(one, value, depth)
		}
	}
	for _, one := range s.DependentSchemas {
		c.visit(one, value, depth)
	}
}

// fields counts the schemas that look at what an object holds, and the object's names, which each schema copies.
func (c *stepCounter) fields(s *jsonschema.Schema, object map[string]any) {
	c.left -= len(object) * (1 + len(s.PatternProperties))
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for name, value := range object {
		if c.left <= 0 {
			return
		}
		if one, ok := s.Properties[name]; ok {
			c.visit(one, value, 0)
		}
		for _, one := range s.PatternProperties {
			c.visit(one, value, 0)
		}
		for _, one := range [...]*jsonschema.Schema{additional, s.UnevaluatedProperties} {
			if one != nil {
				c.visit(one, value, 0)
			}
		}
		if s.PropertyNames != nil {
			c.visit(s.PropertyNames, name, 0)
		}
	}
}

// items counts the schemas that look at the items of an array.
func (c *stepCounter) items(s *jsonschema.Schema, array []any) {
	c.left -= len(array)
	for i, value := range array {
		if c.left <= 0 {
			return
		}
		if i < len(s.PrefixItems) {
			c.visit(s.PrefixItems[i], value, 0)
		}
		for _, one := range [...]*jsonschema.Schema{s.Items2020, s.Contains, s.UnevaluatedItems} {
			if one != nil {
				c.visit(one, value, 0)
			}
		}
	}
}
