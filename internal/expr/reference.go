package expr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"flowlane/internal/suggest"
)

// chain takes a reference apart: a.b[0].c is the base a and the keys "b", 0 and "c".
func chain(n ast.Node) (base ast.Node, keys []ast.Node) {
	for {
		switch m := n.(type) {
		case *ast.ChainNode:
			n = m.Node
		case *ast.MemberNode:
			keys = append(keys, m.Property)
			n = m.Node
		default:
			slices.Reverse(keys)
			return n, keys
		}
	}
}

// segments returns the keys that are known when compiling, up to the first one that is not.
func segments(keys []ast.Node) []segment {
	var segs []segment
	for _, k := range keys {
		switch k := k.(type) {
		case *ast.StringNode:
			segs = append(segs, key(k.Value))
		case *ast.IntegerNode:
			segs = append(segs, segment{index: k.Value, isIndex: true})
		case *ast.UnaryNode:
			n, ok := k.Node.(*ast.IntegerNode)
			if !ok || k.Operator != "-" {
				return segs
			}
			segs = append(segs, segment{index: -n.Value, isIndex: true})
		default:
			return segs
		}
	}
	return segs
}

// path adds the path that a node stands for. rest are its keys behind the part that is known when compiling; ok is
// false if the node does not start at a root.
func (c *compiler) path(n ast.Node) (i int, rest []ast.Node, ok bool, err error) {
	base, keys := chain(n)
	segs := segments(keys)
	if _, bad, err := c.known(base).follow(segs); err != nil {
		return 0, nil, false, placed(keys[bad], err)
	}
	id, isName := base.(*ast.IdentifierNode)
	if !isName || slices.Contains(c.locals, id.Value) {
		return 0, nil, false, nil
	}
	r, isRoot := rootByName(id.Value)
	if !isRoot {
		return 0, nil, false, nil
	}
	if !r.allowed(c.scope) {
		return 0, nil, true, placed(base, fmt.Errorf("%q is not available here; use %s", id.Value, c.scope))
	}
	var task TaskRef
	rest = keys[len(segs):]
	if r == rootSteps {
		var bad int
		if task, bad, err = c.scope.result(segs); err != nil {
			return 0, nil, true, placed(append([]ast.Node{base}, keys...)[bad], err)
		}
		segs = segs[3:]
	}
	if r == rootVars {
		if err := c.scope.variable(segs); err != nil {
			return 0, nil, true, placed(keys[0], err)
		}
	}
	if r == rootAnswer {
		if err := answerField(segs); err != nil {
			return 0, nil, true, placed(keys[0], err)
		}
	}
	c.dynamic = true
	return c.paths.add(r, task, segs), rest, true, nil
}

// result checks a reference to a result of a task. Bad is the part that is wrong: 0 the whole, 1 the step, 2 the task,
// 3 the result, 4 the field of an error.
func (s *Scope) result(segs []segment) (ref TaskRef, bad int, err error) {
	if len(segs) < 3 || segs[0].isIndex || segs[1].isIndex || segs[2].isIndex {
		return ref, 0, errors.New("write steps.<step>.<task>.output (or .error, .skipped)")
	}
	ref = TaskRef{Step: slug(segs[0].names[0]), Task: slug(segs[1].names[0]), Of: segs[2].names[0]}
	tasks, ok := s.Steps[ref.Step]
	if !ok {
		if _, known := s.AllSteps[ref.Step]; known {
			return ref, 1, fmt.Errorf("step %q runs later or is this one; only earlier steps are visible", ref.Step)
		}
		return ref, 1, fmt.Errorf("unknown step %q%s", ref.Step, suggest.DidYouMean(ref.Step,
			slices.Sorted(maps.Keys(s.Steps))))
	}
	if !slices.Contains(tasks, ref.Task) {
		return ref, 2, fmt.Errorf("step %q has no task %q%s", ref.Step, ref.Task, suggest.DidYouMean(ref.Task, tasks))
	}
	if !slices.Contains(taskResults, ref.Of) {
		return ref, 3, fmt.Errorf("a task has no %q%s; it has output, error and skipped", ref.Of,
			suggest.DidYouMean(ref.Of, taskResults))
	}
	if ref.Of != OfError {
		return ref, 0, nil
	}
	if s.Continues != nil && !s.Continues(ref.Step, ref.Task) {
		return ref, 3, fmt.Errorf("a record ends where task %q fails, so that nobody reads its error; give that task "+
			`"on_error": "continue"`, ref.Task)
	}
	if len(segs) > 3 && !segs[3].isIndex && !slices.Contains(errorFields, segs[3].names[0]) {
		name := segs[3].names[0]
		return ref, 4, fmt.Errorf("an error has no %q%s; it has %s", name, suggest.DidYouMean(name, errorFields),
			strings.Join(errorFields, ", "))
	}
	return ref, 0, nil
}

// variable checks a reference to a key of vars.
func (s *Scope) variable(segs []segment) error {
	if s.VarKeys == nil || len(segs) == 0 || segs[0].isIndex || slices.Contains(s.VarKeys, segs[0].names[0]) {
		return nil
	}
	name := segs[0].names[0]
	known := strings.Join(s.VarKeys, ", ")
	return fmt.Errorf("unknown variable %q; the variable set has %s%s", name, known, suggest.DidYouMean(name,
		s.VarKeys))
}

// answerField checks a reference to a field of an answer.
func answerField(segs []segment) error {
	if len(segs) == 0 || !segs[0].isIndex && slices.Contains(answerFields, segs[0].names[0]) {
		return nil
	}
	name := "0"
	if !segs[0].isIndex {
		name = segs[0].names[0]
	}
	return fmt.Errorf("an answer has no %q%s; it has %s", name, suggest.DidYouMean(name, answerFields),
		strings.Join(answerFields, ", "))
}

// names are those that may be used.
func (s *Scope) names() []string {
	var names []string
	for i, name := range rootNames {
		if root(i).allowed(s) {
			names = append(names, name)
		}
	}
	return names
}

// String lists the names that may be used, for messages.
func (s *Scope) String() string {
	names := s.names()
	if len(names) == 0 {
		return "no names at all"
	}
	return strings.Join(names, ", ")
}

func (c *compiler) reference(n ast.Node) (evaluator, error) {
	i, keys, ok, err := c.path(n)
	if err != nil {
		return nil, err
	}
	from := func(r *run) (any, error) { return r.value(i) }
	if !ok {
		var base ast.Node
		base, keys = chain(n)
		if id, isName := base.(*ast.IdentifierNode); isName {
			from, err = c.name(id.Value)
			err = placed(base, err)
		} else {
			from, err = c.compile(base)
		}
		if err != nil {
			return nil, err
		}
	}
	evals, err := c.compileAll(keys)
	if err != nil {
		return nil, err
	}
	return follow(from, evals), nil
}

func follow(from evaluator, keys []evaluator) evaluator {
	if len(keys) == 0 {
		return from
	}
	return func(r *run) (any, error) {
		v, err := from(r)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			name, err := k(r)
			if err != nil {
				return nil, err
			}
			if v, err = r.field(v, name); err != nil {
				return nil, err
			}
		}
		return v, r.spend(len(keys))
	}
}

// name resolves a name that is not a root: a `let` variable, or null as JSON spells it.
func (c *compiler) name(name string) (evaluator, error) {
	if slot := slices.Index(c.locals, name); slot >= 0 {
		return func(r *run) (any, error) { return r.locals[slot], nil }, nil
	}
	if name == "null" {
		return constant(nil), nil
	}
	if isFunction(name) {
		return nil, fmt.Errorf("%s is a function; write %s(...)", name, name)
	}
	if hint := suggest.DidYouMean(name, append(c.scope.names(), c.locals...)); hint != "" {
		return nil, fmt.Errorf("unknown name %q%s", name, hint)
	}
	return nil, fmt.Errorf("unknown name %q; use %s", name, c.scope)
}

func (c *compiler) pointer(n *ast.PointerNode) (evaluator, error) {
	at := len(c.loops) - 1
	if at < 0 {
		return nil, errors.New(`"#" only stands inside map, filter and their like`)
	}
	switch n.Name {
	case "":
		return func(r *run) (any, error) { return r.items[at].value, nil }, nil
	case "index":
		return func(r *run) (any, error) { return int64(r.items[at].index), nil }, nil
	case "acc":
		if c.loops[at] != "reduce" {
			return nil, errors.New("#acc only stands in the predicate of reduce; name it before by let")
		}
		return func(r *run) (any, error) { return r.items[at].acc, nil }, nil
	}
	return nil, fmt.Errorf("unknown name #%s; use #, #index or, in reduce, #acc", n.Name)
}
