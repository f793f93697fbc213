package openapi

import "strings"

// schemaBuilder puts the schema of one action together: what refers to other schemas gets them as $defs, breadth first,
// as long as there is room. What lies beyond accepts anything.
type schemaBuilder struct {
	im      *importer
	at      place
	request bool
	room    int
	loose   bool
	cut     bool
	defs    *node
	known   map[string]bool
	queue   []string
}

func (im *importer) builder(at place, request bool) *schemaBuilder {
	return &schemaBuilder{im: im, at: at, request: request, room: im.limit, defs: &node{kind: isObject},
		known: map[string]bool{}}
}

// part returns the schema at a place, ready to be put somewhere into the whole.
func (b *schemaBuilder) part(at place) *node {
	u := b.im.unitOf(at, b.request)
	return b.take(u, at)
}

func (b *schemaBuilder) take(u *unit, at place) *node {
	schema, size := u.schema, u.size
	if size > b.room {
		schema = shrink(schema, max(b.room, b.im.limit/16))
		size = sizeOf(schema)
		b.cut, b.loose = true, true
		b.im.report.add(Dropped, at, "the schema is too large for an action; its deeper parts accept anything")
	}
	b.room -= size
	b.loose = b.loose || u.loose
	for _, ref := range u.refs {
		if !b.known[ref] {
			b.known[ref] = true
			b.queue = append(b.queue, ref)
		}
	}
	return schema
}

// finish adds the schemas that root refers to.
func (b *schemaBuilder) finish(root *node) *node {
	for len(b.queue) > 0 {
		pointer := b.queue[0]
		b.queue = b.queue[1:]
		at := b.im.walk(pointer)
		u := b.im.unitOf(at, b.request)
		if u.size <= b.room {
			b.defs.set(b.im.nameOf(pointer), b.take(u, at))
			continue
		}
		b.cut, b.loose = true, true
		b.im.report.add(Dropped, at,
			"an action that needs this schema has no room for it; anything is accepted instead")
		b.defs.set(b.im.nameOf(pointer), anything)
	}
	if b.cut {
		b.im.report.add(Changed, b.at, "the schema is cut to "+itoa(b.im.limit)+" bytes; beyond, it accepts anything")
	}
	if len(b.defs.fields) > 0 {
		if root.kind != isObject {
			root = object("allOf", list(root))
		}
		root = &node{kind: isObject, fields: append(append([]field{}, root.fields...), field{"$defs", b.defs})}
	}
	if b.loose {
		root = loosen(root)
	}
	return root
}

func list(items ...*node) *node {
	out := &node{kind: isArray}
	for _, item := range items {
		out.set("", item)
	}
	return out
}

// loosen removes what turns "accepts more" into "refuses": of a schema that lost rules, oneOf may match twice and not
// may match at all.
func loosen(n *node) *node {
	out := eachSchema(n, loosen)
	if out.kind != isObject {
		return out
	}
	kept := out.fields[:0:0]
	for _, f := range out.fields {
		switch f.name {
		case "not", "if", "then", "else", "maxContains":
			continue
		case "unevaluatedItems", "unevaluatedProperties":
			continue
		case "oneOf":
			if n.get("anyOf") != nil {
				continue
			}
			f.name = "anyOf"
		}
		kept = append(kept, f)
	}
	return &node{kind: isObject, line: n.line, fields: kept}
}

// eachSchema returns a copy of a schema with change applied to the schemas right inside.
func eachSchema(n *node, change func(*node) *node) *node {
	if n.kind != isObject {
		return n
	}
	out := &node{kind: isObject, line: n.line, fields: make([]field, len(n.fields))}
	for i, f := range n.fields {
		want := keywords[f.name]
		switch {
		case f.name == "$defs" || (want >= wantSchemas && want <= wantPlaceSchemaMap):
			inner := &node{kind: f.value.kind, fields: make([]field, len(f.value.fields))}
			for j, g := range f.value.fields {
				inner.fields[j] = field{g.name, change(g.value)}
			}
			f.value = inner
		case want == wantSchema || want == wantPlaceSchema:
			f.value = change(f.value)
		}
		out.fields[i] = f
	}
	return out
}

// shrink makes a schema fit: first without texts and large lists, then without what lies deep.
func shrink(n *node, limit int) *node {
	out := bare(n, limit)
	for depth := 12; depth > 0 && sizeOf(out) > limit; depth-- {
		out = prune(out, depth)
	}
	if sizeOf(out) > limit {
		if types := n.get("type"); types.is(isString) {
			return object("type", types)
		}
		return anything
	}
	return out
}

func bare(n *node, limit int) *node {
	out := eachSchema(n, func(sub *node) *node { return bare(sub, limit) })
	kept := out.fields[:0:0]
	for _, f := range out.fields {
		switch {
		case f.name == "description" || f.name == "title" || f.name == "examples" || f.name == "$comment" ||
			f.name == "default":
		case (f.name == "enum" || f.name == "const") && sizeOf(f.value) > limit/4:
		default:
			kept = append(kept, f)
		}
	}
	return &node{kind: out.kind, text: out.text, line: n.line, fields: kept}
}

func prune(n *node, depth int) *node {
	if depth == 0 {
		return anything
	}
	return eachSchema(n, func(sub *node) *node { return prune(sub, depth-1) })
}

// sizeOf is about how many bytes a value has as JSON.
func sizeOf(n *node) int {
	size := len(n.text) + 3
	for _, f := range n.fields {
		size += len(f.name) + 4 + sizeOf(f.value)
	}
	return size
}

// nameOf returns the name under which a schema stands in $defs: its last step, with a number where that is taken.
func (im *importer) nameOf(pointer string) string {
	if name, ok := im.names[pointer]; ok {
		return name
	}
	step := pointer
	if rest, ok := strings.CutPrefix(pointer, "/components/schemas/"); ok {
		step = rest
	}
	base := clip(strings.Trim(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, step), "_"), 100)
	if base == "" {
		base = "schema"
	}
	name := unique(im.taken, base)
	im.names[pointer] = name
	return name
}
