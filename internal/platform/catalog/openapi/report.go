package openapi

import (
	"cmp"
	"slices"
)

// Effect says what became of a part of the document.
type Effect string

// The effects.
const (
	// LeftOut is an operation that the catalog does not get.
	LeftOut Effect = "operation_left_out"
	// Dropped is a part of an operation or a schema that the catalog does not get.
	Dropped Effect = "dropped"
	// Changed is a part that stands in the catalog in another form, or that was chosen among several.
	Changed Effect = "changed"
	// Unused is a part that no operation needs.
	Unused Effect = "unused"
)

// Entry is one thing that could not be carried over as it was.
type Entry struct {
	// Pointer is the place in the document, a JSON pointer; Line its line, 0 where it has none.
	Pointer string `json:"pointer"`
	Line    int    `json:"line"`
	Effect  Effect `json:"effect"`
	Message string `json:"message"`
}

type report struct {
	entries []Entry
	seen    map[Entry]bool
	// muted: what is read is not wanted.
	muted bool
}

func (r *report) add(effect Effect, at place, message string) {
	e := Entry{Pointer: at.pointer, Effect: effect, Message: message}
	if at.node != nil {
		e.Line = at.node.line
	}
	if !r.seen[e] && !r.muted {
		r.seen[e] = true
		r.entries = append(r.entries, e)
	}
}

// sorted returns the entries by line and pointer, so that two imports of one document report the same.
func (r *report) sorted() []Entry {
	slices.SortFunc(r.entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Effect, b.Effect),
			cmp.Compare(a.Message, b.Message))
	})
	return r.entries
}

// place is a node and where it stands.
type place struct {
	*node

	pointer string
}

// at returns a field's place; its node is nil where the field is missing.
func (p place) at(name string) place {
	return place{p.get(name), p.pointer + "/" + escape(name)}
}

// children lists the fields of an object or the items of an array.
func (p place) children() []place {
	if p.node == nil || (p.kind != isObject && p.kind != isArray) {
		return nil
	}
	out := make([]place, len(p.fields))
	for i, f := range p.fields {
		step := f.name
		if p.kind == isArray {
			step = itoa(i)
		}
		out[i] = place{f.value, p.pointer + "/" + escape(step)}
	}
	return out
}
