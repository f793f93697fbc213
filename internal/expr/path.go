package expr

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// root is where a path starts.
type root uint8

const (
	rootInput root = iota
	rootMetadata
	rootVars
	rootBatch
	rootPayload
	rootParams
	rootCall
	rootReference
	rootItem
	rootIndex
	rootEvent
	rootAnswer
	rootSteps
)

var rootNames = [...]string{
	"input", "metadata", "vars", "batch", "payload", "params", "call", "reference", "item", "index", "event", "answer",
	"steps",
}

func (r root) allowed(s *Scope) bool {
	return [...]bool{
		s.Input, s.Metadata, s.Vars, s.Batch, s.Payload, s.Params, s.Call, s.Reference, s.Item, s.Item, s.Event,
		s.Answer,
		s.Steps != nil || s.AllSteps != nil,
	}[r]
}

// rootByName returns the root that a name in an expression stands for.
func rootByName(name string) (root, bool) {
	i := slices.Index(rootNames[:], name)
	return root(max(i, 0)), i >= 0
}

// source is one JSON document that a template reads, with the top-level fields that it needs of it.
type source struct {
	root root
	// task is which result it is where the root is rootSteps.
	task TaskRef
	// fields and slots run in parallel: fields.names[i] is found in slot slots[i], both from base on.
	fields fieldSet
	base   int
	whole  bool
}

func (s *source) raw(env *Env) json.RawMessage {
	switch s.root {
	case rootInput:
		return env.Input
	case rootMetadata:
		return env.Metadata
	case rootVars:
		return env.Vars
	case rootBatch:
		return env.Batch
	case rootPayload:
		return env.Payload
	case rootParams:
		return env.Params
	case rootCall:
		return env.Call
	case rootReference:
		return env.Reference
	case rootItem:
		return env.Item
	case rootIndex:
		return env.Index
	case rootEvent:
		return env.Event
	case rootAnswer:
		return env.Answer
	}
	if env.Result == nil {
		return nil
	}
	return env.Result(s.task)
}

func (s *source) String() string {
	if s.root == rootSteps {
		return fmt.Sprintf("%s of step %q, task %q", s.task.Of, s.task.Step, s.task.Task)
	}
	return rootNames[s.root]
}

// segment is one step of a path: a key or an index (negative: from the end).
type segment struct {
	// names holds just the key, in the form that a fieldSet takes.
	names   []string
	index   int
	isIndex bool
}

func key(name string) segment { return segment{names: []string{name}} }

func (s segment) equal(o segment) bool {
	return s.isIndex == o.isIndex && s.index == o.index && slices.Equal(s.names, o.names)
}

// path is a reference that is known when compiling: a source, one of its fields (-1: the whole) and what follows.
type path struct {
	source, field int
	rest          []segment
}

// paths collects what a template reads while it is compiled. Afterwards it is read-only.
type paths struct {
	sources []source
	list    []path
	slots   int
}

// add returns the number of the path that starts at a root and follows the segments.
func (p *paths) add(r root, task TaskRef, segs []segment) int {
	src := slices.IndexFunc(p.sources, func(s source) bool { return s.root == r && s.task == task })
	if src < 0 {
		src = len(p.sources)
		p.sources = append(p.sources, source{root: r, task: task})
	}
	s, field := &p.sources[src], -1
	if len(segs) > 0 && !segs[0].isIndex {
		name := segs[0].names[0]
		if field = slices.Index(s.fields.names, name); field < 0 {
			field = len(s.fields.names)
			s.fields.names = append(s.fields.names, name)
		}
		segs = segs[1:]
	} else {
		s.whole = true
	}
	same := func(o path) bool {
		return o.source == src && o.field == field && slices.EqualFunc(o.rest, segs, segment.equal)
	}
	if i := slices.IndexFunc(p.list, same); i >= 0 {
		return i
	}
	p.list = append(p.list, path{source: src, field: field, rest: slices.Clone(segs)})
	return len(p.list) - 1
}

// finish lays out the slots; no path may be added afterwards.
func (p *paths) finish() {
	for i := range p.sources {
		s := &p.sources[i]
		s.fields.index()
		s.base = p.slots
		p.slots += len(s.fields.names)
	}
}

func (p *paths) refs() Refs {
	var refs Refs
	for i := range p.sources {
		s := &p.sources[i]
		switch s.root {
		case rootInput:
			refs.Input = true
			if !s.whole {
				refs.Fields = slices.Clone(s.fields.names)
			}
		case rootMetadata:
			refs.Metadata = true
		case rootVars:
			refs.Vars, refs.VarKeys = true, slices.Clone(s.fields.names)
		case rootBatch:
			refs.Batch = true
		case rootPayload:
			refs.Payload = true
		case rootItem, rootIndex:
			refs.Item = true
		case rootSteps:
			refs.Tasks = append(refs.Tasks, s.task)
		}
	}
	return refs
}

// run is the working memory of one rendering; it is pooled, so that a record costs no allocation.
type run struct {
	paths *paths
	wholes,
	slots [][]byte
	// decoded caches the Go values of paths that closures read.
	decoded []any
	known   []bool
	// locals are `let` variables, items the elements that predicates stand at, one for each level.
	locals []any
	items  []item
	// evaluated: an expression was computed, which fills what stands above.
	evaluated bool
	// fuel is what is left to spend, began what there was. It is taken from shared, if that is not nil, when the run is
	// over.
	fuel, began int
	shared      *shared
}

// item is the element that a predicate stands at; acc is what reduce has made of those before.
type item struct {
	value, acc any
	index      int
}

// runPool hands out runs for one template.
type runPool struct {
	pool           sync.Pool
	locals, levels int
}

// load finds all fields that the template needs: one walk over each source.
func (rp *runPool) load(p *paths, env *Env) (*run, error) {
	r, _ := rp.pool.Get().(*run)
	if r == nil {
		r = &run{
			paths: p, wholes: make([][]byte, len(p.sources)), slots: make([][]byte, p.slots),
			decoded: make([]any, len(p.list)), known: make([]bool, len(p.list)),
			locals: make([]any, rp.locals), items: make([]item, rp.levels),
		}
	}
	if env == nil {
		env = &Env{}
	}
	r.fuel, r.shared = maxFuel, env.shared
	if r.shared != nil {
		r.fuel = max(min(maxFuel, r.shared.fuel), 0)
	}
	r.began = r.fuel
	for i := range p.sources {
		s := &p.sources[i]
		raw := []byte(s.raw(env))
		if s.whole {
			r.wholes[i] = trimSpace(raw)
		}
		slots := r.slots[s.base : s.base+len(s.fields.names)]
		if len(slots) == 0 || len(raw) == 0 || env.shared.known(s, raw, slots) {
			continue
		}
		if err := s.fields.scan(raw, slots); err != nil {
			rp.release(r)
			return nil, fmt.Errorf("%v: %w", s, err)
		}
		env.shared.keep(s, raw, slots)
	}
	return r, nil
}

// release forgets everything that belongs to the caller and pools the run.
func (rp *runPool) release(r *run) {
	if r.shared != nil {
		r.shared.fuel -= r.began - r.fuel
		r.shared = nil
	}
	clear(r.wholes)
	clear(r.slots)
	if r.evaluated { // most templates only pass values on
		clear(r.decoded)
		clear(r.known)
		clear(r.locals)
		clear(r.items)
		r.evaluated = false
	}
	rp.pool.Put(r)
}

// raw returns the bytes that a path leads to; nil if it leads nowhere.
func (r *run) raw(i int) ([]byte, error) {
	p := &r.paths.list[i]
	raw := r.wholes[p.source]
	if p.field >= 0 {
		raw = r.slots[r.paths.sources[p.source].base+p.field]
	}
	if len(p.rest) == 0 {
		return raw, nil
	}
	if err := r.spend(1 + len(raw)/64); err != nil {
		return nil, err
	}
	raw, err := descend(raw, p.rest)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", &r.paths.sources[p.source], err)
	}
	return raw, nil
}

// value returns the decoded value that a path leads to.
func (r *run) value(i int) (any, error) {
	if r.known[i] {
		return r.decoded[i], nil
	}
	raw, err := r.raw(i)
	if err != nil {
		return nil, err
	}
	v, err := r.decode(raw)
	if err != nil {
		return nil, err
	}
	r.decoded[i], r.known[i] = v, true
	return v, nil
}

func trimSpace(raw []byte) []byte {
	start, end := skipSpace(raw, 0), len(raw)
	for end > start && skipSpace(raw[:end], end-1) == end {
		end--
	}
	return raw[start:end:end]
}
