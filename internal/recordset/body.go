package recordset

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
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

// parse checks a body {"chunk_index": n, "records": [{...}, ...]} and finds its rows, into spans if that has room. Faults:
// Unprocessable, with every bad place up to maxFields, or with the one place where the text is not JSON.
func parse(body []byte, chunkSize int, spans []span) (chunk, error) {
	p := parser{scanner: scanner{b: body}, chunkSize: chunkSize, chunk: chunk{rows: spans[:0]}}
	if at := firstInvalid(body); at >= 0 {
		p.malformed(at, "Invalid UTF-8")
		return chunk{}, p.fault()
	}
	i := p.space(0)
	if i < len(body) && body[i] == '{' {
		i = p.top(i)
	} else if i = p.value(i, 0); i >= 0 {
		p.bad([]string{"body"}, "object_type", `must be an object with "chunk_index" and "records"`)
	}
	if i >= 0 {
		if i = p.space(i); i < len(body) {
			p.malformed(i, "Invalid JSON: text after the end of the body")
		}
	}
	if err := p.fault(); err != nil {
		return chunk{}, err
	}
	return p.chunk, nil
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
		p.bad([]string{"body", "chunk_index"}, "missing", "field required")
	}
	if !p.hasRows {
		p.bad([]string{"body", "records"}, "missing", "field required")
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
		p.bad(loc, "value_error", "is given twice; send it once")
	default:
		p.bad(loc, "extra_forbidden", `unknown field; a chunk has "chunk_index" and "records"`)
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
		p.bad(loc, "null_not_allowed", "must not be null")
		return end
	case c != '-' && c-'0' > 9:
		p.bad(loc, "int_type", "must be an integer")
		return end
	}
	n, whole := integer(p.b[i:end])
	switch {
	case !whole:
		p.bad(loc, "int_type", "must be an integer")
	case n < 0:
		p.bad(loc, "greater_than_equal", "must be 0 or more: chunks are numbered from 0")
	case n > math.MaxInt32:
		p.bad(loc, "less_than_equal", "must be at most %d", math.MaxInt32)
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
			p.bad(loc, "null_not_allowed", "must not be null")
		default:
			p.bad(loc, "list_type", "must be an array of objects")
		}
		return end
	}
	count, i := p.records(i)
	switch {
	case i < 0:
	case count == 0:
		p.bad(loc, "too_short", "must hold at least one record")
	case count > p.chunkSize:
		p.bad(loc, "too_long", "must hold at most %d records, the chunk_size of this record set; it holds %d", p.chunkSize, count)
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
		} else if i = p.value(i, 2); i >= 0 && !p.bad(p.loc(2), "object_type", "must be an object") {
			return 0, -1
		}
		if i < 0 {
			return 0, i
		}
		if count < p.chunkSize {
			p.chunk.rows = append(p.chunk.rows, span{uint32(from), uint32(i)}) //nolint:gosec // a body is far below 4 GiB
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
