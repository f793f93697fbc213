package expr

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"

	"flowlane/internal/schema"
	"flowlane/internal/suggest"
)

// mostFields is how many fields a value may have for a message to name them, or one that is similar.
const mostFields = 200

// known is what a schema says of a value, and what messages call the value. The zero value says nothing.
type known struct {
	shape schema.Shape
	name  string
}

// known returns what is known of a root, or of the element that a predicate stands at.
func (c *compiler) known(base ast.Node) known {
	switch n := base.(type) {
	case *ast.PointerNode:
		if n.Name == "" && len(c.loops) > 0 {
			return c.elements[len(c.loops)-1]
		}
	case *ast.IdentifierNode:
		switch r, isRoot := rootByName(n.Value); {
		case !isRoot || !r.allowed(c.scope):
		case r == rootInput:
			return known{c.scope.InputShape, n.Value}
		case r == rootItem:
			return known{c.scope.ItemShape, n.Value}
		}
	}
	return known{}
}

// elementOf returns what is known of the elements of an array, where that is nothing but a path.
func (c *compiler) elementOf(array ast.Node) known {
	base, keys := chain(array)
	segs := segments(keys)
	if len(segs) != len(keys) {
		return known{}
	}
	of, _, err := c.known(base).follow(segs)
	if err != nil {
		return known{}
	}
	return known{of.shape.Element(-1), of.name + "[]"}
}

// follow goes down a path, and refuses a field that no such value can have: it would be null for every record. bad is
// where that is in the path.
func (k known) follow(segs []segment) (to known, bad int, err error) {
	for i, s := range segs {
		if s.isIndex {
			k = known{k.shape.Element(s.index), fmt.Sprintf("%s[%d]", k.name, s.index)}
			continue
		}
		name := s.names[0]
		if !k.shape.Allows(name) {
			return known{}, i, fmt.Errorf("%s has no field %q by its schema%s", k.name, name, k.instead(name))
		}
		k = known{k.shape.Field(name), k.name + "." + name}
	}
	return k, 0, nil
}

// instead says what may have been meant by a name that the value cannot have.
func (k known) instead(name string) string {
	fields := k.shape.Fields(mostFields)
	if hint := suggest.DidYouMean(name, fields); hint != "" {
		return hint
	}
	if len(fields) == 0 {
		return ""
	}
	list := strings.Join(fields, ", ")
	if len(list) > maxShown {
		list = strings.ToValidUTF8(list[:maxShown], "") + "..."
	}
	return "; it has " + list
}
