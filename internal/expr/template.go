package expr

import (
	"encoding/json"
	"errors"
)

// Template is a compiled JSON value. It is safe for concurrent use.
type Template struct {
	value json.RawMessage
	ops   []op
	paths paths
	pool  runPool
	refs  Refs
	// expressions counts those inside; without any, value is the result.
	expressions int
	nuls        []Error
}

// op appends one piece of the result: literal bytes, the span of a path, or what an evaluator computes.
type op struct {
	literal []byte
	path    int
	eval    evaluator
	// source is the expression; "" marks a literal.
	source string
	// text is set inside a string: the value is interpolated.
	text bool
}

// Append appends the rendered value for env: a JSON value on one line. On an error, an *EvalError, dst comes back as it
// was.
func (t *Template) Append(dst []byte, env *Env) ([]byte, error) {
	if t.expressions == 0 {
		return append(dst, t.value...), nil
	}
	r, err := t.pool.load(&t.paths, env)
	if err != nil {
		return dst, &EvalError{Msg: err.Error()}
	}
	defer t.pool.release(r)
	out, limit := dst, len(dst)+MaxResult
	for i := range t.ops {
		o := &t.ops[i]
		if out, err = o.append(out, r, limit); err != nil {
			return dst, &EvalError{Expression: o.source, Msg: err.Error()}
		}
	}
	return out, nil
}

func (o *op) append(dst []byte, r *run, limit int) ([]byte, error) {
	var err error
	switch {
	case o.source == "":
		dst = append(dst, o.literal...)
	case o.eval == nil:
		dst, err = o.appendPath(dst, r, limit)
	default:
		dst, err = o.appendValue(dst, r, limit)
	}
	if err == nil && len(dst) > limit {
		err = errResult
	}
	return dst, err
}

func (o *op) appendPath(dst []byte, r *run, limit int) ([]byte, error) {
	raw, err := r.raw(o.path)
	if err != nil {
		return dst, err
	}
	if len(raw) > limit-len(dst) {
		return dst, errResult
	}
	if o.text {
		return appendText(dst, raw), nil
	}
	return appendRaw(dst, raw), nil
}

func (o *op) appendValue(dst []byte, r *run, limit int) ([]byte, error) {
	r.evaluated = true
	v, err := o.eval(r)
	if err != nil {
		return dst, err
	}
	if !o.text {
		return appendValue(dst, v, limit, 0)
	}
	text, err := r.textOf(v)
	if err != nil {
		return dst, err
	}
	if len(text) > limit-len(dst) {
		return dst, errResult
	}
	return appendEscaped(dst, text), nil
}

// Source is the JSON value as it was compiled: expressions are strings, as they were written.
func (t *Template) Source() json.RawMessage { return t.value }

// Refs tells what the template refers to.
func (t *Template) Refs() Refs { return t.refs }

// NULs are the expressions that hold a NUL character, which nothing can store. They compile: an expression may compare
// with one.
func (t *Template) NULs() []Error { return t.nuls }

// Static reports that the result depends neither on the input nor on steps: it is the same for every record of a batch.
func (t *Template) Static() bool {
	return !t.refs.Input && !t.refs.Item && len(t.refs.Tasks) == 0
}

// Condition is a compiled `when` or `filter`. It is safe for concurrent use.
type Condition struct {
	// constant conditions hold their value in fixed.
	constant, fixed bool
	t               *Template
}

// CompileCondition compiles a string that is "true", "false" or one {{ }} expression.
func CompileCondition(s string, scope Scope) (*Condition, []Error) {
	b := builder{scope: &scope}
	parts, err := split(trimText(s))
	switch {
	case err != nil:
		return nil, []Error{errorOf(nil, parts[len(parts)-1].text, err)}
	case len(parts) == 1 && (parts[0] == part{text: "true"} || parts[0] == part{text: "false"}):
		return &Condition{constant: true, fixed: parts[0].text == "true", t: &Template{}}, nil
	case len(parts) != 1 || !parts[0].isExpr:
		return nil, []Error{{Msg: "a condition must be one {{ }} expression, true or false"}}
	}
	b.expression(parts[0].text, false)
	if len(b.errs) == 0 && b.ops[0].source == "" {
		if v := string(b.ops[0].literal); v != "true" && v != "false" {
			b.fail(parts[0].text, errNotBool)
		}
	}
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	c := &Condition{t: b.template(nil)}
	c.constant = b.ops[0].source == ""
	c.fixed = c.constant && string(b.ops[0].literal) == "true"
	return c, nil
}

var errNotBool = errors.New(`the condition must be true or false; for a value that may be missing add "?? false"`)

// Eval evaluates the condition; the error is an *EvalError, also if the value is neither true nor false.
func (c *Condition) Eval(env *Env) (bool, error) {
	if c.constant {
		return c.fixed, nil
	}
	var buf [64]byte
	out, err := c.t.Append(buf[:0], env)
	if err != nil {
		return false, err
	}
	switch string(out) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, &EvalError{Expression: c.t.ops[0].source, Msg: errNotBool.Error()}
}

// Refs tells what the condition refers to.
func (c *Condition) Refs() Refs { return c.t.refs }

// Static reports that the condition is the same for every record of a batch.
func (c *Condition) Static() bool { return c.t.Static() }
