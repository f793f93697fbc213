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

	"groupBy": func(int) fold { return &grouped{groups: &object{}} },
}

// loop is a compiled call whose body, the predicate, runs for each element of an array.
type loop struct {
	name        string
	array, body evaluator
	// last is the argument behind the predicate; nil without one.
	last evaluator
	// at is the level of the loop, price what each round pays.
	at, price int
}

// loopArguments is how many arguments the functions with a predicate take where that is not 1 or 2.
var loopArguments = map[string][2]int{"sortBy": {2, 3}, "groupBy": {2, 2}, "reduce": {2, 3}}

func isPredicate(name string) bool { return folds[name] != nil || loopArguments[name] != [2]int{} }

func (c *compiler) predicate(name string, args []ast.Node) (evaluator, error) {
	l, err := c.loop(name, args)
	switch {
	case err != nil:
		return nil, err
	case name == "reduce":
		return l.reduce, nil
	case name == "sortBy":
		return l.sortBy, nil
	}
	return l.fold, nil
}

func (c *compiler) loop(name string, args []ast.Node) (*loop, error) {
	least, most := 1, 2
	if n, ok := loopArguments[name]; ok {
		least, most = n[0], n[1]
	}
	if len(args) < least || len(args) > most {
		return nil, fmt.Errorf("%s takes an array and a predicate", name)
	}
	l := &loop{name: name, at: len(c.loops)}
	var err error
	if l.array, err = c.compile(args[0]); err != nil {
		return nil, err
	}
	if len(args) == 3 {
		if l.last, err = c.compile(args[2]); err != nil {
			return nil, err
		}
	}
	c.elements = append(c.elements[:l.at], c.elementOf(args[0]))
	c.loops = append(c.loops, name)
	c.maxLevels = max(c.maxLevels, len(c.loops))
	defer func() { c.loops = c.loops[:l.at] }()
	before := c.nodes
	l.body = func(r *run) (any, error) { return r.items[l.at].value, nil }
	if len(args) > 1 {
		p, ok := args[1].(*ast.PredicateNode)
		if !ok {
			return nil, errors.New("syntax error")
		}
		if l.body, err = c.compile(p.Node); err != nil {
			return nil, err
		}
	}
	// Evaluators do not pay for plain nodes; loops pay for those of their body.
	l.price = 1 + (c.nodes-before)/4
	return l, nil
}

func (l *loop) elements(r *run) ([]any, error) {
	v, err := l.array(r)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, needs(l.name, "an array", v)
	}
	return list, nil
}

// round runs the body for one element. Loops inside this one have levels of their own, so the item stays.
func (l *loop) round(r *run, it item) (any, error) {
	r.items[l.at] = it
	made, err := l.body(r)
	if err == nil {
		err = r.spend(l.price)
	}
	return made, err
}

func (l *loop) fold(r *run) (any, error) {
	list, err := l.elements(r)
	if err != nil {
		return nil, err
	}
	f := folds[l.name](len(list))
	for i, e := range list {
		made, err := l.round(r, item{value: e, index: i})
		if err != nil {
			return nil, err
		}
		if stop, err := f.take(r, l.name, e, made); stop || err != nil {
			return f.result(), err
		}
	}
	return f.result(), nil
}

// reduce makes one value of all elements: each round sees what the one before made as #acc. Without a value to begin
// with that is the first element.
func (l *loop) reduce(r *run) (any, error) {
	list, err := l.elements(r)
	if err != nil {
		return nil, err
	}
	var acc any
	first := 0
	switch {
	case l.last != nil:
		if acc, err = l.last(r); err != nil {
			return nil, err
		}
	case len(list) == 0:
		return nil, errors.New("reduce of an empty array needs a value to begin with, as in reduce(list, #acc + #, 0)")
	default:
		acc, first = list[0], 1
	}
	for i := first; i < len(list); i++ {
		if acc, err = l.round(r, item{value: list[i], index: i, acc: acc}); err != nil {
			return nil, err
		}
	}
	return acc, nil
}

func (l *loop) sortBy(r *run) (any, error) {
	list, err := l.elements(r)
	if err != nil {
		return nil, err
	}
	keys := make([]any, len(list))
	for i, e := range list {
		if keys[i], err = l.round(r, item{value: e, index: i}); err != nil {
			return nil, err
		}
	}
	var direction any
	if l.last != nil {
		if direction, err = l.last(r); err != nil {
			return nil, err
		}
	}
	return r.sorted(l.name, list, keys, direction)
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

// grouped gathers the elements by what the predicate made of them, in the order in which the groups come up.
type grouped struct{ groups *object }

func (g *grouped) take(r *run, name string, e, made any) (bool, error) {
	switch made.(type) {
	case nil, []any, *object:
		return false, needs(name, "a string, a number or a boolean to group by", made)
	}
	key, err := r.textOf(made)
	if err != nil {
		return false, err
	}
	if err := r.spendText(len(key)); err != nil {
		return false, err
	}
	members, _ := g.groups.get(key).([]any)
	g.groups.set(key, append(members, e))
	return false, nil
}
func (g *grouped) result() any { return g.groups }
