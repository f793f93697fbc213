package expr

import (
	"errors"
	"fmt"

	"github.com/expr-lang/expr/ast"
)

// fold is what a predicate function does with the elements of its array: it takes each element with what the predicate
// made of it, until it stops; result is asked at the end.
type fold interface {
	take(r *run, name string, element, made any) (stop bool, err error)
	result() any
}

// folds makes the fold for each predicate function; the size is that of the array.
var folds = map[string]func(size int) fold{
	"map":    func(n int) fold { return &mapped{list: make([]any, 0, n)} },
	"filter": func(int) fold { return &filtered{list: []any{}} },
	"find":   func(int) fold { return &found{} },
	"all":    func(int) fold { return &quantifier{until: false} },
	"any":    func(int) fold { return &quantifier{until: true, negative: true} },
	"none":   func(int) fold { return &quantifier{until: true} },
	"one":    func(int) fold { return &counter{one: true} },
	"count":  func(int) fold { return &counter{} },
	"sum":    func(int) fold { return &summed{total: int64(0)} },
}

func isPredicate(name string) bool { return folds[name] != nil }

func (c *compiler) predicate(name string, args []ast.Node) (evaluator, error) {
	if len(args) < 1 || len(args) > 2 {
		return nil, fmt.Errorf("%s takes an array and a predicate", name)
	}
	array, err := c.compile(args[0])
	if err != nil {
		return nil, err
	}
	at := c.level
	c.elements = append(c.elements[:at], c.elementOf(args[0]))
	c.level++
	c.maxLevels = max(c.maxLevels, c.level)
	defer func() { c.level-- }()
	before := c.nodes
	body := func(r *run) (any, error) { return r.items[at].value, nil }
	if len(args) == 2 {
		p, ok := args[1].(*ast.PredicateNode)
		if !ok {
			return nil, errors.New("syntax error")
		}
		if body, err = c.compile(p.Node); err != nil {
			return nil, err
		}
	}
	// Evaluators do not pay for plain nodes; loops pay for those of their body.
	makeFold, price := folds[name], 1+(c.nodes-before)/4
	return func(r *run) (any, error) {
		v, err := array(r)
		if err != nil {
			return nil, err
		}
		list, ok := v.([]any)
		if !ok {
			return nil, needs(name, "an array", v)
		}
		f := makeFold(len(list))
		for i, e := range list {
			// Predicates inside this one have levels of their own, so this item stays.
			r.items[at] = item{value: e, index: i}
			made, err := body(r)
			if err == nil {
				err = r.spend(price)
			}
			if err != nil {
				return nil, err
			}
			if stop, err := f.take(r, name, e, made); stop || err != nil {
				return f.result(), err
			}
		}
		return f.result(), nil
	}, nil
}

func predicateTruth(name string, made any) (bool, error) {
	b, ok := made.(bool)
	if !ok {
		return false, fmt.Errorf("the predicate of %s must be true or false, not %s", name, aType(made))
	}
	return b, nil
}

type mapped struct{ list []any }

func (m *mapped) take(_ *run, _ string, _, made any) (bool, error) {
	m.list = append(m.list, made)
	return false, nil
}
func (m *mapped) result() any { return m.list }

type filtered struct{ list []any }

func (f *filtered) take(_ *run, name string, e, made any) (bool, error) {
	keep, err := predicateTruth(name, made)
	if keep {
		f.list = append(f.list, e)
	}
	return false, err
}
func (f *filtered) result() any { return f.list }

type found struct{ element any }

func (f *found) take(_ *run, name string, e, made any) (bool, error) {
	yes, err := predicateTruth(name, made)
	if yes {
		f.element = e
	}
	return yes, err
}
func (f *found) result() any { return f.element }

// quantifier stops at the first element whose predicate equals until. It is false then and true otherwise, or the other
// way round if negative.
type quantifier struct{ until, negative, stopped bool }

func (q *quantifier) take(_ *run, name string, _, made any) (bool, error) {
	b, err := predicateTruth(name, made)
	q.stopped = err == nil && b == q.until
	return q.stopped, err
}
func (q *quantifier) result() any { return q.stopped == q.negative }

// counter counts the elements that fit; with one it only tells whether there is exactly one.
type counter struct {
	n   int64
	one bool
}

func (c *counter) take(_ *run, name string, _, made any) (bool, error) {
	yes, err := predicateTruth(name, made)
	if yes {
		c.n++
	}
	return false, err
}

func (c *counter) result() any {
	if c.one {
		return c.n == 1
	}
	return c.n
}

type summed struct{ total any }

func (s *summed) take(_ *run, name string, _, made any) (bool, error) {
	if typeName(made) != "number" {
		return false, needs(name, "numbers", made)
	}
	total, err := arithmetic("+", s.total, made)
	s.total = total
	return false, err
}
func (s *summed) result() any { return s.total }
