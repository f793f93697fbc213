package schema

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Shape is what a schema says of the names inside a value that fits it. The zero Shape says nothing.
type Shape struct {
	// all are schemas of which the value must fit every one.
	all []*jsonschema.Schema
}

// Shape returns what the schema says of names.
func (s *Schema) Shape() Shape {
	var out Shape
	out.add(s.compiled)
	return out
}

// add adds a schema that the value must fit, and those that it must fit with it. What a choice such as anyOf says is
// left out: it can only narrow further.
func (s *Shape) add(x *jsonschema.Schema) {
	if x == nil {
		return
	}
	s.all = append(s.all, x)
	s.add(x.Ref)
	for _, part := range x.AllOf {
		s.add(part)
	}
}

// Allows reports whether a value of this shape can have a field of this name.
func (s Shape) Allows(name string) bool {
	return !slices.ContainsFunc(s.all, func(x *jsonschema.Schema) bool {
		return closed(x) &&
			x.Properties[name] == nil
	})
}

// Fields returns the names of which an object of this shape can have no others, in order; nothing where it can have
// any, or more than most.
func (s Shape) Fields(most int) (names []string) {
	for _, x := range s.all {
		if !closed(x) || len(x.Properties) > most {
			continue
		}
		for name := range x.Properties {
			if s.Allows(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Field returns the shape of a field.
func (s Shape) Field(name string) (out Shape) {
	for _, x := range s.all {
		out.add(x.Properties[name])
	}
	return out
}

// Element returns the shape of an element of an array; that of any element where index is negative.
func (s Shape) Element(index int) (out Shape) {
	for _, x := range s.all {
		switch first := x.PrefixItems; {
		case index >= len(first), len(first) == 0:
			out.add(x.Items2020)
		case index >= 0:
			out.add(first[index])
		}
	}
	return out
}

// closed reports whether an object can have no field but those of the schema.
func closed(x *jsonschema.Schema) bool {
	return x.AdditionalProperties == false && len(x.PatternProperties) == 0
}
