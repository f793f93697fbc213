package expr

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"flowlane/internal/schema"
)

// MaxElements is how many elements a List may give.
const MaxElements = 1000

// List is a compiled `for_each`. It is safe for concurrent use.
type List struct {
	t       *Template
	element schema.Shape
}

// CompileList compiles a string that is one {{ }} expression.
func CompileList(s string, scope Scope) (*List, []Error) {
	parts, err := split(trimText(s))
	switch {
	case err != nil:
		return nil, []Error{errorOf(nil, parts[len(parts)-1].text, err)}
	case len(parts) != 1 || !parts[0].isExpr:
		return nil, []Error{{Msg: "for_each must be one {{ }} expression that gives an array"}}
	}
	t, errs := Compile(AppendJSONString(nil, trimText(s)), scope)
	if len(errs) > 0 {
		return nil, errs
	}
	l := &List{t: t}
	if node, err := parse(parts[0].text); err == nil {
		c := compiler{scope: &scope}
		l.element = c.elementOf(node).shape
	}
	return l, nil
}

// Elements are what a List gives for one record. What is rendered for them is bounded together, too. They are not safe
// for concurrent use.
type Elements struct {
	env  Env
	list []json.RawMessage
}

// Eval returns the elements; the error is an *EvalError, also if the value is no array or too long.
func (l *List) Eval(env *Env) (*Elements, error) {
	out, err := l.t.Append(nil, env)
	if err != nil {
		return nil, err
	}
	fail := func(msg string) error { return &EvalError{Expression: l.t.ops[0].source, Msg: msg} }
	if len(out) == 0 || out[0] != '[' {
		return nil, fail(`for_each must give an array; for a value that may be missing add "?? []"`)
	}
	list := []json.RawMessage{}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fail("for_each must give an array")
	}
	if len(list) > MaxElements {
		return nil, fail(fmt.Sprintf("for_each gives %d elements; at most %d are allowed", len(list), MaxElements))
	}
	elements := &Elements{*env, list}
	elements.env.shared = &shared{fuel: maxElementsFuel, scans: map[*source]scanned{}}
	return elements, nil
}

// Refs tells what the expression refers to.
func (l *List) Refs() Refs { return l.t.refs }

// Element is what is known of the elements.
func (l *List) Element() schema.Shape { return l.element }

// Len returns how many there are.
func (e *Elements) Len() int { return len(e.list) }

// At returns what the expressions of one element see.
func (e *Elements) At(index int) Env {
	env := e.env
	env.Item, env.Index = e.list[index], strconv.AppendInt(nil, int64(index), 10)
	return env
}

// Spent reports whether the elements have used up what they may spend together, so that the next one would fail, too.
func (e *Elements) Spent() bool { return e.env.shared.fuel <= 0 }

// shared is what all renderings for the elements of a List have in common.
type shared struct {
	// fuel is what they have left.
	fuel int
	// scans are the fields that templates need of documents which are the same for every element: looked for once,
	// because a walk over a large record for each of its elements takes long.
	scans map[*source]scanned
}

// scanned is where the fields of a document were found.
type scanned struct {
	raw   []byte
	slots [][]byte
}

// known fills slots with what an earlier rendering found; false where none looked at this document.
func (s *shared) known(of *source, raw []byte, slots [][]byte) bool {
	if s == nil {
		return false
	}
	before, ok := s.scans[of]
	if !ok || len(before.raw) != len(raw) || &before.raw[0] != &raw[0] {
		return false
	}
	copy(slots, before.slots)
	return true
}

func (s *shared) keep(of *source, raw []byte, slots [][]byte) {
	if s != nil && of.root != rootItem {
		s.scans[of] = scanned{raw, slices.Clone(slots)}
	}
}
