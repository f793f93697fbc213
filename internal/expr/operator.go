package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"

	"flowlane/internal/regex"
)

// truth evaluates an operand that must be true or false.
func truth(r *run, e evaluator, op string) (bool, error) {
	v, err := e(r)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("%q needs true or false, not %s", op, aType(v))
	}
	return b, nil
}

func (c *compiler) unary(n *ast.UnaryNode) (evaluator, error) {
	operand, err := c.compile(n.Node)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "!", "not":
		return func(r *run) (any, error) {
			b, err := truth(r, operand, n.Operator)
			return !b, err
		}, nil
	case "-":
		return func(r *run) (any, error) {
			v, err := operand(r)
			if err != nil {
				return nil, err
			}
			return negate(v)
		}, nil
	case "+":
		return func(r *run) (any, error) {
			v, err := operand(r)
			if err == nil && typeName(v) != "number" {
				err = fmt.Errorf(`"+" needs a number, not %s`, aType(v))
			}
			return v, err
		}, nil
	}
	return nil, fmt.Errorf("the operator %q is not supported", n.Operator)
}

func (c *compiler) binary(n *ast.BinaryNode) (evaluator, error) {
	if n.Operator == "matches" {
		return c.matches(n)
	}
	left, err := c.compile(n.Left)
	if err != nil {
		return nil, err
	}
	right, err := c.compile(n.Right)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "and", "&&":
		return logical(left, right, n.Operator, false), nil
	case "or", "||":
		return logical(left, right, n.Operator, true), nil
	case "??":
		return firstValue([]evaluator{left, right}), nil
	case "..":
		return nil, errors.New(`".." is not supported; write range(1, 10), which ends before 10`)
	}
	apply, ok := operators[n.Operator]
	if !ok {
		return nil, fmt.Errorf("the operator %q is not supported", n.Operator)
	}
	return func(r *run) (any, error) {
		a, err := left(r)
		if err != nil {
			return nil, err
		}
		b, err := right(r)
		if err != nil {
			return nil, err
		}
		if err := r.spend(1); err != nil {
			return nil, err
		}
		return apply(r, n.Operator, a, b)
	}, nil
}

// logical is "and" and "or": the right side is only asked if the left one does not decide.
func logical(left, right evaluator, op string, decides bool) evaluator {
	return func(r *run) (any, error) {
		b, err := truth(r, left, op)
		if err != nil || b == decides {
			return b, err
		}
		return truth(r, right, op)
	}
}

type binaryOp = func(r *run, op string, a, b any) (any, error)

var operators = map[string]binaryOp{
	"==": func(r *run, _ string, a, b any) (any, error) { return r.equal(a, b, 0) },
	"!=": func(r *run, _ string, a, b any) (any, error) {
		same, err := r.equal(a, b, 0)
		return !same, err
	},
	"<":  func(r *run, op string, a, b any) (any, error) { c, err := r.compare(op, a, b); return c < 0, err },
	"<=": func(r *run, op string, a, b any) (any, error) { c, err := r.compare(op, a, b); return c <= 0, err },
	">":  func(r *run, op string, a, b any) (any, error) { c, err := r.compare(op, a, b); return c > 0, err },
	">=": func(r *run, op string, a, b any) (any, error) { c, err := r.compare(op, a, b); return c >= 0, err },
	"+":  add,
	"-":  plainArithmetic,
	"*":  plainArithmetic,
	"/":  plainArithmetic,
	"%":  plainArithmetic,
	"**": plainArithmetic,
	"^":  plainArithmetic,

	"in":         in,
	"contains":   textTest(strings.Contains),
	"startsWith": textTest(strings.HasPrefix),
	"endsWith":   textTest(strings.HasSuffix),
}

func plainArithmetic(_ *run, op string, a, b any) (any, error) { return arithmetic(op, a, b) }

func add(r *run, op string, a, b any) (any, error) {
	x, okA := a.(string)
	y, okB := b.(string)
	if okA && okB {
		if err := r.text(len(x) + len(y)); err != nil {
			return nil, err
		}
		return x + y, nil
	}
	if typeName(a) != "number" || typeName(b) != "number" {
		return nil, fmt.Errorf(`"+" needs two numbers or two strings, not %s and %s`, aType(a), aType(b))
	}
	return arithmetic(op, a, b)
}

func (r *run) compare(op string, a, b any) (int, error) {
	x, okA := a.(string)
	y, okB := b.(string)
	if okA && okB {
		return order(x, y), r.spendText(min(len(x), len(y)))
	}
	if typeName(a) != "number" || typeName(b) != "number" {
		return 0, fmt.Errorf("%q needs two numbers or two strings, not %s and %s", op, aType(a), aType(b))
	}
	return r.compareNumbers(a, b)
}

// in is true for an element of an array and a key of an object; nothing is in null.
func in(r *run, op string, a, b any) (any, error) {
	switch b := b.(type) {
	case nil:
		return false, nil
	case []any:
		for _, e := range b {
			if same, err := r.equal(a, e, 0); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case *object:
		name, ok := a.(string)
		if !ok {
			return nil, fmt.Errorf(`"in" needs a string to look up in an object, not %s`, aType(a))
		}
		return b.find(name) >= 0, r.spendText(len(name))
	}
	return nil, fmt.Errorf(`%q needs an array or an object on its right, not %s; for text use "contains"`, op, aType(b))
}

// textTest makes an operator on two strings; null on either side gives false.
func textTest(test func(s, part string) bool) binaryOp {
	return func(r *run, op string, a, b any) (any, error) {
		if a == nil || b == nil {
			return false, nil
		}
		s, okA := a.(string)
		t, okB := b.(string)
		if !okA || !okB {
			return nil, fmt.Errorf("%q needs two strings, not %s and %s", op, aType(a), aType(b))
		}
		return test(s, t), r.spendText(len(s))
	}
}

// maxPattern bounds the compiled size of a regular expression, because matching costs its size for every byte.
const maxPattern = 1000

// matches compiles the pattern with the expression: one that comes from data could be arbitrarily large.
func (c *compiler) matches(n *ast.BinaryNode) (evaluator, error) {
	pattern, ok := n.Right.(*ast.StringNode)
	if !ok {
		return nil, placed(n.Right, errors.New(`the right side of "matches" must be a quoted pattern`))
	}
	left, err := c.compile(n.Left)
	if err != nil {
		return nil, err
	}
	re, err := regex.Compile(pattern.Value, maxPattern)
	if err != nil {
		return nil, placed(pattern, err)
	}
	return func(r *run) (any, error) {
		v, err := left(r)
		if v == nil || err != nil {
			return false, err
		}
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf(`"matches" needs a string, not %s`, aType(v))
		}
		if err := r.spend(1 + len(s)*re.Size/16); err != nil {
			return nil, err
		}
		return re.MatchString(s), nil
	}, nil
}
