package provider

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// RowKind is what an answer says of one row of a bulk call.
type RowKind string

// The kinds of rows.
const (
	// RowAccepted: the row was taken, and has an output of its own.
	RowAccepted RowKind = "accepted"
	RowRejected RowKind = "rejected"
	// RowRetry: nothing was done with the row, and the same may pass later.
	RowRetry RowKind = "retry"
	// RowOpen: the answer does not say what became of the row.
	RowOpen RowKind = "open"
)

// RowOutcome is a row of a bulk call that came out differently from the others, which were accepted. Row counts from 0
// within the call.
type RowOutcome struct {
	Row           int
	Kind          RowKind
	Code, Message string
	// Output is that of an accepted row.
	Output json.RawMessage
}

// LeavesOpen reports whether the answer does not say of some row what became of it.
func (r *Reading) LeavesOpen() bool {
	return slices.ContainsFunc(r.Rows, func(o RowOutcome) bool { return o.Kind == RowOpen })
}

// openMost bounds the rows of a call of which its answer may say nothing; where there are more, it is not as described.
const openMost = 100

// readRows lists the rows that came out differently, by ascending row, each once. It fails on anything that could hide
// one: a list that is none, an element that names no row of the call, two that disagree. r knows the rows of the call.
func readRows(doc gjson.Result, spec *catalog.RowResults, r rowReader) ([]RowOutcome, bool) {
	if !r.lists(doc, spec) {
		return nil, false
	}
	return r.rows(spec)
}

// RowPages reads the rows of a result that come in pages.
type RowPages struct {
	spec *catalog.RowResults
	r    rowReader
}

// NewRowPages reads those of a call with so many rows; keyed is how an answer names these by their keys.
func NewRowPages(act *catalog.Action, nRows int, keyed Keyed) *RowPages {
	return &RowPages{spec: act.Call.Result.Rows, r: rowReader{count: nRows, keyed: keyed}}
}

// Add reads a page; false where it cannot be read.
func (p *RowPages) Add(body []byte) bool {
	return validJSON(body) && p.r.lists(parse(body), p.spec)
}

// Rows are those of all pages that came out differently; false where these do not say enough.
func (p *RowPages) Rows() ([]RowOutcome, bool) { return p.r.rows(p.spec) }

// lists reads the lists of an answer.
func (r *rowReader) lists(doc gjson.Result, spec *catalog.RowResults) bool {
	for _, l := range spec.Lists() {
		list := doc
		if l.At != "" {
			list = doc.Get(l.At)
		}
		switch {
		case !l.Accepts() && (!list.Exists() || list.Type == gjson.Null):
			continue // nothing was rejected
		case !list.IsArray() || !r.list(list, l, spec.Unnamed == catalog.RowsUnknown):
			return false
		}
	}
	return true
}

// rows are those of all lists that came out differently.
func (r *rowReader) rows(spec *catalog.RowResults) ([]RowOutcome, bool) {
	if !r.unnamed(spec.Unnamed) {
		return nil, false
	}
	slices.SortFunc(r.out, func(a, b RowOutcome) int { return cmp.Compare(a.Row, b.Row) })
	return r.out, true
}

// rowReader goes through the lists of an answer.
type rowReader struct {
	count int
	// sent is the array of the rows as it went out, nil where that is not at hand; keyed are these by their keys.
	sent  []byte
	keyed Keyed
	out   []RowOutcome
	// named are the rows of which elements have spoken, taken those of them that were accepted.
	named, taken rowSet
}

// rowSet is a set of rows.
type rowSet []uint64

func (s rowSet) has(row int) bool { return s != nil && s[row/64]&(1<<(row%64)) != 0 }

func (r *rowReader) add(s *rowSet, row int) {
	if *s == nil {
		*s = make(rowSet, (r.count+63)/64)
	}
	(*s)[row/64] |= 1 << (row % 64)
}

// list reads one list. lenient: an element that names no row leaves no doubt that there was not before.
func (r *rowReader) list(list gjson.Result, l *catalog.RowList, lenient bool) bool {
	name := rowNamer{list: l, sums: r.keyed}
	if l.Key != "" && !name.index(list, r.sent) {
		return false
	}
	ok, i := true, 0
	list.ForEach(func(_, item gjson.Result) bool {
		row, names := name.row(item, i)
		i++
		switch {
		case names && row >= 0 && row < r.count:
			ok = r.element(item, l, row)
		default:
			ok = lenient && !names && !l.Order
		}
		return ok
	})
	return ok && (!l.Order || i == r.count)
}

// element takes note of what an element says of a row; false where another one says something else.
func (r *rowReader) element(item gjson.Result, l *catalog.RowList, row int) bool {
	raw := unsafe.Slice(unsafe.StringData(item.Raw), len(item.Raw)) //nolint:gosec // nobody changes an answer
	failed, err := l.Failed(raw)
	again := r.named.has(row)
	switch {
	case again && (err != nil || !failed || r.taken.has(row)):
		return false
	case again: // rejected for several reasons
		return true
	}
	r.add(&r.named, row)
	switch {
	case err != nil:
		r.add(&r.taken, row) // whoever else speaks of it says something else
		r.out = append(r.out, RowOutcome{Row: row, Kind: RowOpen})
	case failed:
		o := RowOutcome{Row: row, Kind: RowRejected, Code: named(item, l.Code), Message: named(item, l.Reason)}
		if l.Retry(raw) {
			o.Kind = RowRetry
		}
		r.out = append(r.out, o)
	default:
		r.add(&r.taken, row)
		if len(l.Output) > 0 {
			r.out = append(r.out, RowOutcome{Row: row, Kind: RowAccepted, Output: output(item, nil, l.Output)})
		}
	}
	return true
}

// unnamed says what becomes of the rows that no list names; false where the answer leaves too many open.
func (r *rowReader) unnamed(are string) bool {
	open := 0
	for row := range r.count {
		switch {
		case are == catalog.RowsAccepted:
			return true
		case r.named.has(row):
			continue
		case are == catalog.RowsRejected:
			r.out = append(r.out, RowOutcome{Row: row, Kind: RowRejected,
				Message: "The answer does not name it among the records that were taken"})
			continue
		}
		if open++; open > openMost {
			return false
		}
		r.out = append(r.out, RowOutcome{Row: row, Kind: RowOpen})
	}
	return true
}

// rowNamer finds the rows that the elements of a list name.
type rowNamer struct {
	list *catalog.RowList
	// keyed are the rows by the keys that elements name.
	keyed map[string]int
	sums  Keyed
}

// row is the row that the i-th element of a list names; false where it names none, and a row that is none of the call
// where it names something else.
func (n *rowNamer) row(item gjson.Result, i int) (int, bool) {
	l := n.list
	switch {
	case l.Order:
		return i, true
	case l.ByKey:
		return n.sums.row(item)
	case l.Key != "":
		key := n.key(item.Get(l.Key))
		if key == "" {
			return 0, false
		}
		return n.keyed[key], true
	case l.Pointer != "":
		v := item.Get(l.Pointer)
		rest, found := strings.CutPrefix(strings.TrimPrefix(v.String(), "#"), l.Under+"/")
		if !found {
			return -1, v.Type == gjson.String && v.Str != ""
		}
		number, _, _ := strings.Cut(rest, "/")
		return rowNumber(number) - l.Base, true
	}
	v := item.Get(l.Row)
	if v.Type == gjson.String {
		return rowNumber(v.Str) - l.Base, true
	}
	row, whole := wholeNumber(v)
	if !whole {
		return -1, v.Exists() && v.Type != gjson.Null
	}
	return row - l.Base, true
}

// rowNumber reads digits; -1 for anything else.
func rowNumber(text string) int {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

func (n *rowNamer) key(v gjson.Result) string {
	text, _ := scalar(v)
	if n.list.IgnoreCase {
		text = strings.ToLower(text)
	}
	return text
}

// index finds the rows of the keys that elements name; false where one of them is that of several rows. Only what is
// named is kept: the others of a large call cost nothing.
func (n *rowNamer) index(list gjson.Result, sent []byte) bool {
	n.keyed = map[string]int{}
	list.ForEach(func(_, item gjson.Result) bool {
		if key := n.key(item.Get(n.list.Key)); key != "" {
			n.keyed[key] = -1
		}
		return true
	})
	if len(n.keyed) == 0 {
		return true
	}
	row, distinct := 0, true
	parse(sent).ForEach(func(_, item gjson.Result) bool {
		key := n.key(item.Get(n.list.Of))
		if at, wanted := n.keyed[key]; wanted {
			distinct = at < 0
			n.keyed[key] = row
		}
		row++
		return distinct
	})
	return distinct
}
