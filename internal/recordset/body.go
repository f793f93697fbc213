package recordset

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"flowlane/internal/fault"
)

// span is the place of one row in a body, from "{" to after "}".
type span struct{ from, to uint32 }

// chunk is a checked chunk: what parse found in a body, without a copy of it.
type chunk struct {
	index int32
	rows  []span
}

// parser reads the body of a chunk upload.
type parser struct {
	scanner
	chunkSize         int
	chunk             chunk
	hasIndex, hasRows bool
}

// parse checks a body {"chunk_index": n, "records": [{...}, ...]} and finds its rows, into spans if that has room.
// Faults: Unprocessable, with every bad place up to maxFields, or with the one place where the text is not JSON.
func parse(body []byte, chunkSize int, spans []span) (chunk, error) {
	p := parser{scanner: scanner{b: body}, chunkSize: chunkSize, chunk: chunk{rows: spans[:0]}}
	if at := firstInvalid(body); at >= 0 {
		p.malformed(at, "The body is not valid UTF-8 at byte %d", at)
		return chunk{}, p.fault()
	}
	i := p.space(0)
	if i < len(body) && body[i] == '{' {
		i = p.top(i)
	} else if i = p.value(i, 0); i >= 0 {
		p.bad(wrong("object_type", "Must be an object", "body"))
	}
	if i >= 0 {
		if i = p.space(i); i < len(body) {
			p.invalid(i, "there is text after its end")
		}
	}
	if err := p.fault(); err != nil {
		return chunk{}, err
	}
	return p.chunk, nil
}

// wrong is the entry of a bad place, worded as the rest of the API words it.
func wrong(kind, msg string, loc ...string) fault.Field {
	return fault.Field{Loc: loc, Type: kind, Msg: msg}
}

// bounded adds the number of the rule to an entry.
func bounded(name string, n int, f fault.Field) fault.Field {
	f.Ctx = map[string]any{name: n}
	return f
}

// top scans the body's own object.
func (p *parser) top(i int) int {
	if i = p.space(i + 1); i < len(p.b) && p.b[i] == '}' {
		p.missing()
		return i + 1
	}
	for {
		if i = p.key(i, 1); i < 0 {
			return i
		}
		if i = p.field(i); i < 0 {
			return i
		}
		if i = p.space(i); i >= len(p.b) {
			return p.unexpected(i, `"," or "}"`)
		}
		switch p.b[i] {
		case ',':
			i = p.space(i + 1)
		case '}':
			p.missing()
			return i + 1
		default:
			return p.unexpected(i, `"," or "}"`)
		}
	}
}

func (p *parser) missing() {
	if !p.hasIndex {
		p.bad(wrong("missing", "This field is required", "body", "chunk_index"))
	}
	if !p.hasRows {
		p.bad(wrong("missing", "This field is required", "body", "records"))
	}
}

// field scans the value of the key that was just read.
func (p *parser) field(i int) int {
	name := unquote(p.b[p.path[0].from-1 : p.path[0].to+1])
	loc := []string{"body", name}
	switch {
	case name == "chunk_index" && !p.hasIndex:
		p.hasIndex = true
		return p.indexField(i, loc)
	case name == "records" && !p.hasRows:
		p.hasRows = true
		return p.recordsField(i, loc)
	case name == "chunk_index" || name == "records":
		p.bad(wrong("value_error", "This field is there twice; send it once", loc...))
	default:
		p.bad(wrong("extra_forbidden", "This field is not known here", loc...))
	}
	return p.value(i, 1)
}

func (p *parser) indexField(i int, loc []string) int {
	end := p.value(i, 1)
	if end < 0 {
		return end
	}
	switch c := p.b[i]; {
	case c == 'n':
		p.bad(wrong("null_not_allowed", "Must not be null", loc...))
		return end
	case c != '-' && c-'0' > 9:
		p.bad(wrong("int_type", "Must be a whole number", loc...))
		return end
	}
	n, whole := integer(p.b[i:end])
	switch {
	case !whole:
		p.bad(wrong("int_type", "Must be a whole number", loc...))
	case n < 0:
		p.bad(bounded("ge", 0, wrong("greater_than_equal", "Must be at least 0", loc...)))
	case n > math.MaxInt32:
		p.bad(bounded("le", math.MaxInt32, wrong("less_than_equal", fmt.Sprintf("Must be at most %d", math.MaxInt32),
			loc...)))
	default:
		p.chunk.index = int32(n) //nolint:gosec // bounded by the cases above
	}
	return end
}

// integer reads a JSON number that stands for a whole one, 10.0 and 1e1 included; numbers out of range come back as the
// nearest int64.
func integer(text []byte) (n int64, whole bool) {
	d := decimalOf(string(text))
	switch {
	case d.digits == "0":
		return 0, true
	case d.exponent.Sign() < 0 || strings.HasPrefix(d.odd, "-"):
		return 0, false
	case d.odd != "" || !d.exponent.IsInt64() || d.exponent.Int64() > 20 || len(d.digits) > 20:
		n = math.MaxInt64
	default:
		var err error
		if n, err = strconv.ParseInt(d.digits+strings.Repeat("0", int(d.exponent.Int64())), 10, 64); err != nil {
			n = math.MaxInt64
		}
	}
	if d.negative {
		return -n, true
	}
	return n, true
}

func (p *parser) recordsField(i int, loc []string) int {
	if i >= len(p.b) || p.b[i] != '[' {
		end := p.value(i, 1)
		switch {
		case end < 0:
		case p.b[i] == 'n':
			p.bad(wrong("null_not_allowed", "Must not be null", loc...))
		default:
			p.bad(wrong("array_type", "Must be an array", loc...))
		}
		return end
	}
	count, i := p.records(i)
	switch {
	case i < 0:
	case count == 0:
		p.bad(bounded("min_length", 1, wrong("too_short", "Must have at least 1 item", loc...)))
	case count > p.chunkSize:
		p.bad(bounded("max_length", p.chunkSize, wrong("too_long",
			fmt.Sprintf("Must have at most %d items, the chunk_size of the record set; it has %d", p.chunkSize, count),
			loc...)))
	}
	return i
}

// records scans the array from "[" and returns how many elements it has.
func (p *parser) records(i int) (count, next int) {
	if i = p.space(i + 1); i < len(p.b) && p.b[i] == ']' {
		return 0, i + 1
	}
	for ; ; count++ {
		p.path[1] = step{from: -1, index: count}
		from := i
		if i < len(p.b) && p.b[i] == '{' {
			i = p.object(i, 3)
		} else if i = p.value(i, 2); i >= 0 && !p.bad(wrong("object_type", "Must be an object", p.loc(2)...)) {
			return 0, -1
		}
		if i < 0 {
			return 0, i
		}
		if count < p.chunkSize {
			//nolint:gosec // a body is far below 4 GiB
			p.chunk.rows = append(p.chunk.rows, span{uint32(from), uint32(i)})
		}
		if i < len(p.b) && p.b[i] != ',' {
			i = p.space(i)
		}
		if i >= len(p.b) {
			return 0, p.unexpected(i, `"," or "]"`)
		}
		switch p.b[i] {
		case ',':
			i = p.space(i + 1)
		case ']':
			return count + 1, i + 1
		default:
			return 0, p.unexpected(i, `"," or "]"`)
		}
	}
}

// unquote returns the text of a JSON string, quotes included in raw.
func unquote(raw []byte) string {
	if len(raw) < 2 {
		return ""
	}
	plain := true
	for _, c := range raw {
		if c == '\\' || c < 0x20 {
			plain = false
			break
		}
	}
	if plain {
		return string(raw[1 : len(raw)-1])
	}
	var out string
	if json.Unmarshal(raw, &out) != nil {
		return string(raw[1 : len(raw)-1])
	}
	return out
}
