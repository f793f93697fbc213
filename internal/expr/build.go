package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Compile compiles a JSON value whose strings may hold {{ }} templates; an empty value is null. It returns all errors
// at once, and a template only if there are none. A string that is exactly one expression (white space around it is
// allowed) keeps the type of its value; in any other string the values are interpolated: strings as they are, numbers
// digit for digit, null as nothing, arrays and objects as JSON.
func Compile(value json.RawMessage, scope Scope) (*Template, []Error) {
	if len(trimSpace(value)) == 0 {
		value = json.RawMessage("null")
	}
	if _, err := checkJSON(value); err != nil {
		return nil, []Error{{Msg: err.Error()}}
	}
	b := builder{scope: &scope}
	value = appendCompact(nil, value)
	b.value(value, 0)
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	return b.template(value), nil
}

// builder walks a value and collects the ops of its template and the errors of its expressions.
type builder struct {
	scope       *Scope
	paths       paths
	ops         []op
	errs, nuls  []Error
	place       []string
	expressions int
	locals      int
	levels      int
	full        bool
	// constants is what its own constants have spent, where the scope has no Constants.
	constants Allowance
}

func (b *builder) template(value json.RawMessage) *Template {
	b.paths.finish()
	return &Template{
		value: value, ops: b.ops, paths: b.paths, refs: b.paths.refs(), expressions: b.expressions,
		nuls: b.nuls, pool: runPool{locals: b.locals, levels: b.levels},
	}
}

func (b *builder) fail(source string, err error) {
	b.errs = append(b.errs, errorOf(slices.Clone(b.place), source, err))
}

// literal adds bytes of the result, joined to the literal before.
func (b *builder) literal(s ...byte) {
	if n := len(b.ops); n > 0 && b.ops[n-1].source == "" {
		b.ops[n-1].literal = append(b.ops[n-1].literal, s...)
		return
	}
	b.ops = append(b.ops, op{literal: slices.Clone(s)})
}

// value adds a compact JSON value.
func (b *builder) value(raw []byte, depth int) {
	if depth > maxDepth {
		b.fail("", fmt.Errorf("the value is nested more than %d levels deep", maxDepth))
		return
	}
	switch raw[0] {
	case '"':
		b.text(raw)
	case '[':
		b.array(raw, depth+1)
	case '{':
		b.object(raw, depth+1)
	default:
		b.literal(raw...)
	}
}

func (b *builder) array(raw []byte, depth int) {
	b.literal('[')
	n := 0
	for i := 1; raw[i] != ']'; n++ {
		if n > 0 {
			b.literal(',')
		}
		end := skipValue(raw, i, 0)
		b.inside(strconv.Itoa(n), func() { b.value(raw[i:end], depth) })
		i = nextElement(raw, end)
	}
	b.literal(']')
}

func (b *builder) inside(place string, f func()) {
	b.place = append(b.place, place)
	f()
	b.place = b.place[:len(b.place)-1]
}

func (b *builder) object(raw []byte, depth int) {
	type member struct {
		key, value []byte
		name       string
	}
	var members []member
	at := map[string]int{}
	for i := 1; raw[i] != '}'; {
		end := skipString(raw, i)
		m := member{key: raw[i:end], name: unquote(raw[i:end])}
		start := skipColon(raw, end)
		end = skipValue(raw, start, 0)
		m.value = raw[start:end]
		if j, ok := at[m.name]; ok {
			members[j] = m
		} else {
			at[m.name] = len(members)
			members = append(members, m)
		}
		i = nextElement(raw, end)
	}
	b.literal('{')
	for i, m := range members {
		if i > 0 {
			b.literal(',')
		}
		b.literal(m.key...)
		b.literal(':')
		b.inside(m.name, func() {
			if strings.Contains(m.name, "{{") {
				b.fail("", errors.New("the name of a field cannot hold an expression"))
			}
			b.value(m.value, depth)
		})
	}
	b.literal('}')
}

// text adds a string, which may hold expressions.
func (b *builder) text(raw []byte) {
	// "{" may be written as \u007b, so an escape calls for a closer look.
	if !bytes.Contains(raw, []byte("{{")) && bytes.IndexByte(raw, '\\') < 0 {
		b.literal(raw...)
		return
	}
	s := unquote(raw)
	if !strings.Contains(s, "{{") {
		b.literal(raw...)
		return
	}
	parts, err := split(s)
	if err != nil {
		b.unclosed(parts, err)
		return
	}
	whole := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !p.isExpr && trimText(p.text) == "" })
	if len(whole) == 1 && whole[0].isExpr {
		b.expression(whole[0].text, false)
		return
	}
	b.literal('"')
	for _, p := range parts {
		if p.isExpr {
			b.expression(p.text, true)
		} else {
			b.literal(appendEscaped(nil, p.text)...)
		}
	}
	b.literal('"')
}

// unclosed reports the expression that is not closed, after the errors of those before it.
func (b *builder) unclosed(parts []part, err error) {
	last := len(parts) - 1
	for _, p := range parts[:last] {
		if p.isExpr {
			b.expression(p.text, true)
		}
	}
	b.fail(parts[last].text, err)
}

// expression adds an expression: a path becomes a span, a constant a literal, anything else an evaluator.
func (b *builder) expression(source string, text bool) {
	if b.expressions++; b.expressions > MaxExpressions {
		if !b.full {
			b.full = true
			b.fail("", fmt.Errorf("there are more than %d expressions", MaxExpressions))
		}
		return
	}
	node, err := parse(source)
	if err != nil {
		b.fail(source, err)
		return
	}
	b.node(source, node, text)
}

// node adds an expression that is parsed.
func (b *builder) node(source string, node ast.Node, text bool) {
	c := compiler{scope: b.scope, paths: &b.paths}
	if i, ok, err := c.onlyPath(node); err != nil {
		b.fail(source, err)
		return
	} else if ok {
		b.ops = append(b.ops, op{path: i, source: source, text: text})
		return
	}
	eval, err := c.compile(node)
	if err != nil {
		b.fail(source, err)
		return
	}
	if c.nul {
		b.nuls = append(b.nuls, Error{Path: slices.Clone(b.place), Expression: source,
			Msg: "must not contain a NUL character"})
	}
	o := op{eval: eval, source: source, text: text}
	if c.dynamic {
		b.locals, b.levels = max(b.locals, c.maxLocals), max(b.levels, c.maxLevels)
		b.ops = append(b.ops, o)
		return
	}
	fixed, err := b.constant(&o, &c)
	if err != nil {
		b.fail(source, err)
		return
	}
	b.literal(fixed...)
}

// constant evaluates an expression that depends on nothing.
func (b *builder) constant(o *op, c *compiler) ([]byte, error) {
	left := b.scope.Constants
	if left == nil {
		left = &b.constants
	}
	began := maxFuel - left.spent
	r := &run{fuel: began, locals: make([]any, c.maxLocals), items: make([]item, c.maxLevels)}
	fixed, err := o.appendValue(nil, r, MaxResult)
	left.spent += began - r.fuel
	if errors.Is(err, errFuel) && began < maxFuel {
		return nil, errConstants
	}
	return fixed, err
}

// onlyPath tells whether a node is nothing but a path that is known when compiling.
func (c *compiler) onlyPath(n ast.Node) (int, bool, error) {
	if base, keys := chain(n); len(segments(keys)) != len(keys) || base == nil {
		return 0, false, nil
	}
	i, rest, ok, err := c.path(n)
	return i, ok && len(rest) == 0, err
}

// trimText trims the white space that may stand around a single expression.
func trimText(s string) string { return strings.TrimSpace(s) }
