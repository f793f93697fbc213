package violation

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/go-faster/jx"
)

const (
	// readMost is how many values of a body are read to explain it, and pieceMost how many are held against the schema
	// at once: a schema words every value that is bad, which takes a hundred times as long as to read it.
	readMost  = 20_000
	pieceMost = 2_000
)

// reader reads the first values of a body. cut tells that there were more.
type reader struct {
	left int
	cut  bool
}

// read returns the value of a JSON text as json.Decoder does with UseNumber; of more than readMost values only the
// first.
func read(body []byte) (value any, whole bool, err error) {
	r := reader{left: readMost}
	d := jx.DecodeBytes(body)
	if value, err = r.value(d); err != nil {
		return nil, false, fmt.Errorf("read a body: %w", err)
	}
	return value, !r.cut, nil
}

//nolint:wrapcheck // read does
func (r *reader) value(d *jx.Decoder) (any, error) {
	r.left--
	switch d.Next() {
	case jx.Object:
		m := map[string]any{}
		return m, d.ObjBytes(func(d *jx.Decoder, key []byte) (err error) {
			if r.full() {
				return d.Skip()
			}
			m[string(key)], err = r.value(d)
			return err
		})
	case jx.Array:
		list := []any{}
		return list, d.Arr(func(d *jx.Decoder) error {
			if r.full() {
				return d.Skip()
			}
			item, err := r.value(d)
			list = append(list, item)
			return err
		})
	case jx.String:
		return d.Str()
	case jx.Number:
		n, err := d.Num()
		return json.Number(n.String()), err
	case jx.Bool:
		return d.Bool()
	}
	return nil, d.Null()
}

func (r *reader) full() bool {
	r.cut = r.cut || r.left <= 0
	return r.cut
}

// piece is a part of a value that has all objects and arrays around it. cuts are the arrays of which it has a part.
type piece struct {
	value any
	cuts  []cut
}

// cut is an array, by its place, of which a piece has the items from a position on.
type cut struct {
	loc  []string
	from int
}

// pieces are parts of at most pieceMost values each that together have all values of one. What an object has beside the
// part that is too large comes with each of its parts, since it may tell what the others mean.
func pieces(value any, most int) iter.Seq[piece] {
	return func(yield func(piece) bool) { split(value, most, nil, yield) }
}

func split(value any, most int, loc []string, yield func(piece) bool) bool {
	if size(value, most) <= most {
		return yield(piece{value: value})
	}
	switch v := value.(type) {
	case []any:
		return splitArray(v, most, loc, yield)
	case map[string]any:
		return splitObject(v, most, loc, yield)
	}
	return yield(piece{value: value})
}

func splitArray(items []any, most int, loc []string, yield func(piece) bool) bool {
	for from := 0; from < len(items); {
		n, total := 0, 0
		for from+n < len(items) {
			if total += size(items[from+n], most); total > most {
				break
			}
			n++
		}
		here := cut{loc, from}
		if n > 0 {
			if !yield(piece{items[from : from+n], []cut{here}}) {
				return false
			}
			from += n
			continue
		}
		below := append(slices.Clone(loc), "0") // as the piece counts
		if !split(items[from], most, below, func(p piece) bool {
			return yield(piece{[]any{p.value}, append(p.cuts, here)})
		}) {
			return false
		}
		from++
	}
	return true
}

func splitObject(fields map[string]any, most int, loc []string, yield func(piece) bool) bool {
	small, total := map[string]any{}, 0
	var large []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		n := size(fields[name], most)
		if n > most/2 {
			large = append(large, name)
			continue
		}
		if total += n; total > most {
			if !yield(piece{value: small}) {
				return false
			}
			small, total = map[string]any{}, n
		}
		small[name] = fields[name]
	}
	if len(large) == 0 {
		return yield(piece{value: small})
	}
	for _, name := range large {
		if !split(fields[name], most, append(slices.Clone(loc), name), func(p piece) bool {
			part := maps.Clone(small)
			part[name] = p.value
			return yield(piece{part, p.cuts})
		}) {
			return false
		}
	}
	return true
}

// size counts the values of a value, up to a little more than most.
func size(value any, most int) int {
	n := 1
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			if n += size(e, most-n); n > most {
				return n
			}
		}
	case map[string]any:
		for _, e := range v {
			if n += size(e, most-n); n > most {
				return n
			}
		}
	}
	return n
}

// place is where a place in the piece lies in the value itself.
func (p piece) place(loc []string) []string {
	out := slices.Clone(loc)
	for _, c := range p.cuts {
		if n := len(c.loc); len(loc) > n && slices.Equal(loc[:n], c.loc) {
			if i, err := strconv.Atoi(loc[n]); err == nil {
				out[n] = strconv.Itoa(i + c.from)
			}
		}
	}
	return out
}
