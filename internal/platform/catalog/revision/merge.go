package revision

import (
	"fmt"

	"github.com/aymanbagabas/go-udiff"
)

// Effect says what becomes of a part of a file.
type Effect string

// The effects.
const (
	// Added, Changed and Removed follow the new import.
	Added   Effect = "added"
	Changed Effect = "changed"
	Removed Effect = "removed"
	// Kept was changed by hand and stays; what is imported has not changed.
	Kept Effect = "kept"
	// Conflict was changed by hand and stays, although what is imported has changed or is gone.
	Conflict Effect = "conflict"
)

// Change is what becomes of one part: the platform's head, a service's, or an action.
type Change struct {
	ID     string `json:"id"`
	Effect Effect `json:"effect"`
	// Diff leads from the file to the new import, in the unified form; empty for what is added, removed or kept.
	Diff string `json:"diff,omitempty"`
}

// Mark returns a generated file in which each part carries a mark, by which a later merge knows what was changed by
// hand.
func Mark(generated []byte) ([]byte, error) {
	f, err := read(generated)
	if err != nil {
		return nil, err
	}
	return f.stamp().bytes(), nil
}

func (f *file) stamp() *file {
	f.head = f.head.stamped()
	for i := range f.services {
		s := &f.services[i]
		s.head = s.head.stamped()
		for j := range s.actions {
			s.actions[j] = s.actions[j].stamped()
		}
	}
	return f
}

// Merge takes a newly generated file over into the one that is there. What was changed or added by hand stays. The
// error wraps ErrLayout where the file cannot be cut into its parts.
func Merge(current, generated []byte) (merged []byte, changes []Change, err error) {
	old, err := read(current)
	if err != nil {
		return nil, nil, err
	}
	fresh, err := read(generated)
	if err != nil {
		return nil, nil, err
	}
	if old.head.id != fresh.head.id {
		return nil, nil, fmt.Errorf("the file describes platform %s, not %s", old.head.id, fresh.head.id)
	}
	m := merger{}
	return m.files(old, fresh.stamp()).bytes(), m.changes, nil
}

type merger struct{ changes []Change }

func (m *merger) files(old, fresh *file) *file {
	out := &file{head: m.block(&old.head, fresh.head)}
	byID := map[string]*service{}
	for i := range old.services {
		byID[old.services[i].head.id] = &old.services[i]
	}
	for _, s := range fresh.services {
		was := byID[s.head.id]
		if was == nil {
			was = &service{}
		}
		delete(byID, s.head.id)
		out.services = append(out.services, m.service(*was, s))
	}
	for _, s := range old.services {
		if byID[s.head.id] == nil {
			continue
		}
		kept := m.actions(s.actions, nil)
		if len(kept) == 0 && s.head.untouched() {
			m.note(s.head, Removed, "")
			continue
		}
		if len(kept) > 0 { // a service without actions is no use, whoever wrote its head
			out.services = append(out.services, service{s.head, kept})
		}
	}
	return out
}

func (m *merger) service(was, fresh service) service {
	var head *block
	if was.head.id != "" {
		head = &was.head
	}
	return service{m.block(head, fresh.head), m.actions(was.actions, fresh.actions)}
}

func (m *merger) actions(was, fresh []block) []block {
	byID := map[string]*block{}
	for i := range was {
		byID[was[i].id] = &was[i]
	}
	var out []block
	for _, a := range fresh {
		out = append(out, m.block(byID[a.id], a))
		delete(byID, a.id)
	}
	for _, a := range was {
		if byID[a.id] == nil {
			continue
		}
		_, marked := a.parts()
		switch {
		case a.untouched():
			m.note(a, Removed, "")
			continue
		case marked != "":
			m.note(a, Conflict, "")
		}
		out = append(out, a)
	}
	return out
}

// block decides between a part that is there, or nil, and what is imported now.
func (m *merger) block(was *block, fresh block) block {
	if was == nil {
		m.note(fresh, Added, "")
		return fresh
	}
	before, marked := was.parts()
	after, now := fresh.parts()
	switch {
	case before == after:
		return fresh
	case was.untouched():
		m.note(fresh, Changed, diff(before, after))
		return fresh
	case marked == now:
		m.note(*was, Kept, "")
	default:
		m.note(*was, Conflict, diff(before, after))
	}
	return *was
}

func (m *merger) note(b block, effect Effect, diff string) {
	m.changes = append(m.changes, Change{b.id, effect, diff})
}

func diff(before, after string) string {
	return udiff.Unified("now", "imported", before+"\n", after+"\n")
}
