package openapi

// loops reports whether the schema at "to" leads back to the one at "from" while it speaks of the same value: a
// validator would never come to an end. Both then lie in one strongly connected component of the references in place.
func (im *importer) loops(from, to string) bool {
	if from == to {
		return true
	}
	im.visit(from)
	im.visit(to)
	return im.loop.component[from] == im.loop.component[to]
}

// loopSearch is Tarjan's algorithm over the references in place; it goes on wherever it is asked next.
type loopSearch struct {
	order, low map[string]int
	onStack    map[string]bool
	stack      []string
	component  map[string]int
}

func newLoopSearch() loopSearch {
	return loopSearch{map[string]int{}, map[string]int{}, map[string]bool{}, nil, map[string]int{}}
}

func (im *importer) visit(v string) {
	l := &im.loop
	if l.order[v] > 0 {
		return
	}
	l.order[v] = len(l.order) + 1
	l.low[v] = l.order[v]
	l.stack = append(l.stack, v)
	l.onStack[v] = true
	for _, w := range im.inPlaceRefs(v) {
		if l.order[w] == 0 {
			im.visit(w)
			l.low[v] = min(l.low[v], l.low[w])
		} else if l.onStack[w] {
			l.low[v] = min(l.low[v], l.order[w])
		}
	}
	if l.low[v] != l.order[v] {
		return
	}
	for {
		w := l.stack[len(l.stack)-1]
		l.stack = l.stack[:len(l.stack)-1]
		l.onStack[w] = false
		l.component[w] = l.order[v]
		if w == v {
			return
		}
	}
}

// inPlaceRefs lists the schemas that the one at a pointer refers to while it speaks of the same value.
func (im *importer) inPlaceRefs(pointer string) []string {
	at := im.walk(pointer)
	var out []string
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if !n.is(isObject) || seen[n] {
			return
		}
		seen[n] = true
		if ref := n.get("$ref"); ref.is(isString) {
			if target, ok := im.find(ref.text); ok {
				out = append(out, target.pointer)
			}
		}
		for _, f := range n.fields {
			switch keywords[f.name] {
			case wantPlaceSchema:
				walk(f.value)
			case wantPlaceSchemas, wantPlaceSchemaMap:
				for _, item := range f.value.fields {
					walk(item.value)
				}
			}
		}
	}
	walk(at.node)
	return out
}
