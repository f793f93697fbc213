package expr

import (
	"fmt"

	"github.com/expr-lang/expr/ast"
)

// slice compiles x[from:to] of an array, or of a string by characters. Negative bounds count from the end; what lies
// outside is cut.
func (c *compiler) slice(n *ast.SliceNode) (evaluator, error) {
	nodes := []ast.Node{n.Node, n.From, n.To}
	list := make([]evaluator, len(nodes))
	for i, node := range nodes {
		if node == nil {
			continue
		}
		var err error
		if list[i], err = c.compile(node); err != nil {
			return nil, err
		}
	}
	return func(r *run) (any, error) {
		v, err := list[0](r)
		if v == nil || err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case []any:
			from, to, err := bounds(r, list[1], list[2], len(v))
			return v[from:to:to], err
		case string:
			return cutText(r, v, list[1], list[2])
		}
		return nil, fmt.Errorf("only an array or a string can be cut by [from:to], not %s", aType(v))
	}, nil
}

func cutText(r *run, s string, from, to evaluator) (any, error) {
	if err := r.spend(len(s)); err != nil {
		return nil, err
	}
	runes := []rune(s)
	a, b, err := bounds(r, from, to, len(runes))
	return string(runes[a:b]), err
}

func bounds(r *run, from, to evaluator, size int) (a, b int, err error) {
	if a, err = bound(r, from, 0, size); err != nil {
		return 0, 0, err
	}
	if b, err = bound(r, to, size, size); err != nil {
		return 0, 0, err
	}
	return min(a, b), b, nil
}

func bound(r *run, e evaluator, otherwise, size int) (int, error) {
	if e == nil {
		return otherwise, nil
	}
	v, err := e(r)
	if err != nil {
		return 0, err
	}
	n, ok := toInt(v)
	if !ok {
		return 0, fmt.Errorf("where a part starts and ends must be a whole number, not %s", aType(v))
	}
	if n < 0 {
		n += int64(size)
	}
	return int(max(0, min(n, int64(size)))), nil
}
