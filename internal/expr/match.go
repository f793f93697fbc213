package expr

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/expr-lang/expr/ast"
)

// Match is a compiled condition on an event, asked for a record that waits for one: it sees `event` beside what the
// record sees. It is safe for concurrent use.
type Match struct {
	*Condition
	// path leads to a field of the event that must equal own for the record; own is nil where nothing of that kind is
	// known.
	path []string
	own  *Template
}

// CompileMatch compiles a string that is "true", "false" or one {{ }} expression.
func CompileMatch(s string, scope Scope) (*Match, []Error) {
	within := scope
	within.Event = true
	c, errs := CompileCondition(s, within)
	if len(errs) > 0 {
		return nil, errs
	}
	m := &Match{Condition: c}
	if parts, err := split(trimText(s)); err == nil && parts[0].isExpr {
		if node, err := parse(parts[0].text); err == nil {
			m.pair(node, scope)
		}
	}
	return m, nil
}

// pair looks for `event.some.field == something of the record`, alone or among conditions that all must hold.
func (m *Match) pair(n ast.Node, scope Scope) {
	b, ok := n.(*ast.BinaryNode)
	if !ok || m.own != nil {
		return
	}
	switch b.Operator {
	case "&&", "and":
		m.pair(b.Left, scope)
		m.pair(b.Right, scope)
	case "==":
		for _, sides := range [][2]ast.Node{{b.Left, b.Right}, {b.Right, b.Left}} {
			path, own := eventPath(sides[0]), ownSide(sides[1], scope)
			if path != nil && own != nil {
				m.path, m.own = path, own
				return
			}
		}
	}
}

// eventPath returns the names that lead to the field of the event that a node stands for; nil for any other node.
func eventPath(n ast.Node) []string {
	base, keys := chain(n)
	id, isName := base.(*ast.IdentifierNode)
	segs := segments(keys)
	if !isName || id.Value != rootNames[rootEvent] || len(segs) == 0 || len(segs) != len(keys) {
		return nil
	}
	var path []string
	for _, s := range segs {
		if s.isIndex {
			return nil
		}
		path = append(path, s.names[0])
	}
	return path
}

// ownSide compiles a node that does not see the event, and tells records apart.
func ownSide(n ast.Node, scope Scope) *Template {
	b := builder{scope: &scope}
	b.expressions = 1
	b.node("match", n, false)
	if len(b.errs) > 0 {
		return nil
	}
	if t := b.template(nil); !t.Static() {
		return t
	}
	return nil
}

// Key returns a digest of what a field of the event must be, and where that stands, for the condition to hold: then it
// is one of EventKeys. It is nil where nothing is known of that.
func (m *Match) Key(env *Env) []byte {
	if m.own == nil {
		return nil
	}
	value, err := m.own.Append(nil, env)
	if err != nil {
		return nil
	}
	return keyOf(m.path, value)
}

// EventKeys returns a digest for each field of an event, a JSON object, that is a string, a number, true or false: of
// its place and its value.
func EventKeys(event []byte) (keys [][]byte) {
	if _, err := checkJSON(event); err != nil {
		return nil
	}
	var walk func(path []string, raw []byte)
	walk = func(path []string, raw []byte) {
		if raw[0] != '{' {
			if k := keyOf(path, raw); k != nil {
				keys = append(keys, k)
			}
			return
		}
		for i := 1; raw[i] != '}'; {
			end := skipString(raw, i)
			name := unquote(raw[i:end])
			start := skipColon(raw, end)
			end = skipValue(raw, start, 0)
			walk(append(path[:len(path):len(path)], name), raw[start:end])
			i = nextElement(raw, end)
		}
	}
	walk(nil, appendCompact(nil, event))
	return keys
}

// keyOf digests a place and a value, the same for values that are equal; nil for null, arrays and objects.
func keyOf(path []string, value []byte) []byte {
	h := sha256.New()
	for _, name := range path {
		fmt.Fprintf(h, "%d %s ", len(name), name)
	}
	switch c := value[0]; {
	case c == '"':
		h.Write([]byte{'s'})
		h.Write([]byte(unquote(value)))
	case c == '-' || c >= '0' && c <= '9':
		d := parseDecimal(string(value))
		fmt.Fprintf(h, "n%t %s %d", d.negative, d.digits, d.exp)
	case c == 't', c == 'f':
		h.Write([]byte("b" + strconv.FormatBool(c == 't')))
	default:
		return nil
	}
	return h.Sum(nil)[:16]
}
