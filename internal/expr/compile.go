package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// evaluator computes one node of an expression.
type evaluator func(r *run) (any, error)

// compiler turns one syntax tree into an evaluator, and collects the paths that it reads.
type compiler struct {
	scope *Scope
	paths *paths
	// locals are the `let` names in scope, each at its slot; loops are the functions whose predicates are around the
	// node.
	locals, loops        []string
	maxLocals, maxLevels int
	// elements is what is known of the elements that the predicates stand at, one for each level.
	elements []known
	nodes    int
	// dynamic is set once the expression reads anything: without it, it is a constant.
	dynamic bool
	// nul is set once a string of the expression has a NUL character.
	nul bool
}

func constant(v any) evaluator { return func(*run) (any, error) { return v, nil } }

// compile compiles a node; its error says where in the expression the fault is.
func (c *compiler) compile(n ast.Node) (evaluator, error) {
	e, err := c.compileNode(n)
	return e, placed(n, err)
}

func (c *compiler) compileNode(n ast.Node) (evaluator, error) {
	if c.nodes++; c.nodes > maxNodes {
		return nil, errors.New("the expression is too complex")
	}
	switch n := n.(type) {
	case *ast.NilNode:
		return constant(nil), nil
	case *ast.BoolNode:
		return constant(n.Value), nil
	case *ast.IntegerNode:
		return constant(int64(n.Value)), nil
	case *ast.FloatNode:
		return constant(n.Value), nil
	case *ast.StringNode:
		c.nul = c.nul || strings.IndexByte(n.Value, 0) >= 0
		return constant(n.Value), nil
	case *ast.IdentifierNode, *ast.MemberNode, *ast.ChainNode:
		return c.reference(n)
	case *ast.PointerNode:
		return c.pointer(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		return c.conditional(n)
	case *ast.ArrayNode:
		return c.array(n)
	case *ast.MapNode:
		return c.object(n)
	case *ast.SliceNode:
		return c.slice(n)
	case *ast.VariableDeclaratorNode:
		return c.let(n)
	case *ast.BuiltinNode:
		return c.call(n.Name, n.Arguments)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return c.call(callee.Value, n.Arguments)
		}
		return nil, errors.New("values have no methods; write a function, as in upper(input.name)")
	case *ast.SequenceNode:
		return nil, errors.New(`";" is only allowed after "let"`)
	case *ast.BytesNode:
		return nil, errors.New("byte literals are not supported; use a string")
	}
	return nil, errors.New("this kind of expression is not supported")
}

func (c *compiler) compileAll(nodes []ast.Node) ([]evaluator, error) {
	list := make([]evaluator, len(nodes))
	for i, n := range nodes {
		var err error
		if list[i], err = c.compile(n); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *compiler) let(n *ast.VariableDeclaratorNode) (evaluator, error) {
	// item, index and event are free where nothing takes them.
	r, isRoot := rootByName(n.Name)
	if (r == rootItem || r == rootIndex || r == rootEvent) && !r.allowed(c.scope) {
		isRoot = false
	}
	// A function's name is free: calls and names are told apart, and a new function must not break what is written.
	if isRoot || slices.Contains(c.locals, n.Name) {
		return nil, fmt.Errorf("the name %q is taken", n.Name)
	}
	value, err := c.compile(n.Value)
	if err != nil {
		return nil, err
	}
	slot := len(c.locals)
	c.locals = append(c.locals, n.Name)
	c.maxLocals = max(c.maxLocals, len(c.locals))
	body, err := c.compile(n.Expr)
	c.locals = c.locals[:slot]
	return func(r *run) (any, error) {
		v, err := value(r)
		if err != nil {
			return nil, err
		}
		r.locals[slot] = v
		return body(r)
	}, err
}

func (c *compiler) conditional(n *ast.ConditionalNode) (evaluator, error) {
	parts, err := c.compileAll([]ast.Node{n.Cond, n.Exp1, n.Exp2})
	if err != nil {
		return nil, err
	}
	return func(r *run) (any, error) {
		yes, err := truth(r, parts[0], "?:")
		if err != nil {
			return nil, err
		}
		if yes {
			return parts[1](r)
		}
		return parts[2](r)
	}, nil
}

func (c *compiler) array(n *ast.ArrayNode) (evaluator, error) {
	list, err := c.compileAll(n.Nodes)
	if err != nil {
		return nil, err
	}
	return func(r *run) (any, error) {
		if err := r.spend(1 + len(list)); err != nil {
			return nil, err
		}
		return evalAll(r, list)
	}, nil
}

func evalAll(r *run, list []evaluator) ([]any, error) {
	values := make([]any, len(list))
	for i, e := range list {
		var err error
		if values[i], err = e(r); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (c *compiler) object(n *ast.MapNode) (evaluator, error) {
	var nodes []ast.Node
	for _, p := range n.Pairs {
		pair, ok := p.(*ast.PairNode)
		if !ok {
			return nil, errors.New("syntax error")
		}
		nodes = append(nodes, pair.Key, pair.Value)
	}
	list, err := c.compileAll(nodes)
	if err != nil {
		return nil, err
	}
	return func(r *run) (any, error) {
		if err := r.spend(1 + len(list)); err != nil {
			return nil, err
		}
		values, err := evalAll(r, list)
		if err != nil {
			return nil, err
		}
		obj := &object{}
		for i := 0; i < len(values); i += 2 {
			name, ok := values[i].(string)
			if !ok {
				return nil, fmt.Errorf("the key of an object must be a string, not %s", aType(values[i]))
			}
			if err := r.spendText(len(name)); err != nil {
				return nil, err
			}
			obj.set(name, values[i+1])
		}
		return obj, nil
	}, nil
}
