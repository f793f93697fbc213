package schema_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/schema"
)

// TestShape: a name is refused only where no value that fits the schema can have it.
func TestShape(t *testing.T) {
	t.Parallel()
	root := func(s schema.Shape) schema.Shape { return s }
	a := func(s schema.Shape) schema.Shape { return s.Field("a") }
	for name, c := range map[string]struct {
		schema string
		at     func(schema.Shape) schema.Shape
		fields []string
		allows bool
	}{
		"Closed": {`{"properties":{"b":{},"a":{}},"additionalProperties":false}`, root, []string{"a", "b"},
			false},
		"NoFields":     {`{"additionalProperties":false}`, root, nil, false},
		"FalseSchema":  {`{"properties":{"a":{}},"additionalProperties":{"not":{}}}`, root, nil, true},
		"Open":         {`{"properties":{"a":{}}}`, root, nil, true},
		"OpenByTrue":   {`{"properties":{"a":{}},"additionalProperties":true}`, root, nil, true},
		"OpenBySchema": {`{"properties":{"a":{}},"additionalProperties":{"type":"string"}}`, root, nil, true},
		"Patterns": {`{"properties":{"a":{}},"patternProperties":{"^x":{}},"additionalProperties":false}`, root,
			nil, true},
		"Required": {`{"required":["a"]}`, root, nil, true},
		"Boolean":  {`{"properties":{"a":true}}`, a, nil, true},
		"Choice": {`{"anyOf":[{"properties":{"a":{}},"additionalProperties":false},{"type":"object"}]}`, root,
			nil, true},
		"BesideChoice": {`{"properties":{"a":{}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["x"]}]}`, root, []string{"a"}, false},
		"Conditional": {`{"if":{"required":["a"]},"then":{"properties":{"a":{}},"additionalProperties":false}}`,
			root, nil, true},
		"Not": {`{"not":{"additionalProperties":false}}`, root, nil, true},
		"All": {`{"allOf":[{"properties":{"a":{},"b":{}},"additionalProperties":false},{"properties":{"b":{}}}]}`,
			root, []string{"a", "b"}, false},
		"AllClosed": {`{"allOf":[{"properties":{"a":{},"b":{}},"additionalProperties":false},{"properties":{"b":{}},"additionalProperties":false}]}`, root, []string{"b"}, false},
		"Ref": {`{"$defs":{"r":{"properties":{"a":{}},"additionalProperties":false}},"$ref":"#/$defs/r"}`,
			root, []string{"a"}, false},
		"Anchor": {`{"$defs":{"r":{"$anchor":"r","properties":{"a":{}},"additionalProperties":false}},"properties":{"a":{"$ref":"#r"}}}`, a, []string{"a"}, false},
		"Nested": {`{"properties":{"a":{"properties":{"c":{}},"additionalProperties":false}}}`, a,
			[]string{"c"}, false},
		"NestedUnknown": {`{"properties":{"b":{"additionalProperties":false}}}`, a, nil, true},
		"NestedOfChoice": {`{"properties":{"a":{"oneOf":[{"type":"null"},{"additionalProperties":false}]}}}`, a, nil,
			true},
		"Items": {`{"items":{"properties":{"c":{}},"additionalProperties":false}}`,
			func(s schema.Shape) schema.Shape { return s.Element(7) }, []string{"c"}, false},
		"AnyItem": {`{"items":{"properties":{"c":{}},"additionalProperties":false}}`,
			func(s schema.Shape) schema.Shape { return s.Element(-1) }, []string{"c"}, false},
		"Prefix": {`{"prefixItems":[{},{"additionalProperties":false}],"items":{}}`,
			func(s schema.Shape) schema.Shape { return s.Element(1) }, nil, false},
		"BehindPrefix": {`{"prefixItems":[{"additionalProperties":false}],"items":{}}`,
			func(s schema.Shape) schema.Shape { return s.Element(1) }, nil, true},
		"AnyOfPrefix": {`{"prefixItems":[{"additionalProperties":false}],"items":{"additionalProperties":false}}`,
			func(s schema.Shape) schema.Shape { return s.Element(-1) }, nil, true},
		"Many": {`{"properties":{"a":{},"b":{},"c":{}},"additionalProperties":false}`, root, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, problems := schema.Compile([]byte(c.schema))
			require.Empty(t, problems)
			shape := c.at(s.Shape())
			assert.Equal(t, c.fields, shape.Fields(2))
			assert.Equal(t, c.allows, shape.Allows("x"))
			for _, field := range c.fields {
				assert.True(t, shape.Allows(field))
			}
		})
	}
	assert.True(t, schema.Shape{}.Allows("x"))
}
