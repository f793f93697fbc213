package recordset

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"flowlane/internal/fault"
)

const (
	// maxDepth is how many objects and arrays may be open at once, the body itself being the first.
	maxDepth = 64
	// maxFields bounds how many bad places one answer names.
	maxFields = 100
)

// scanner checks JSON in one pass without decoding it: grammar, depth, and strings that could not be stored. The text
// has to be valid UTF-8 already. Methods that scan a value take the index of its first byte and return the index after
// it, or -1 when there is no point in going on.
type scanner struct {
	b []byte
	// path is the way to the value under scan: one step for each open object or array.
	path   [maxDepth]step
	fields []fault.Field
	// broken is set when the text is not JSON; it outweighs all of fields.
	broken *fault.Field
}

// step is a key, as the span of its text between the quotes, or an index when from is -1.
type step struct {
	from, to int
	index    int
}

// malformed ends the scan: the text is not JSON at byte at.
func (s *scanner) malformed(at int, format string, args ...any) int {
	if s.broken == nil {
		s.broken = &fault.Field{Loc: []string{"body"}, Type: "json_invalid",
			Msg: fmt.Sprintf(format, args...), Ctx: map[string]any{"offset": at}}
	}
	return -1
}

// bad notes a place that breaks a rule; it tells whether to go on.
func (s *scanner) bad(f fault.Field) bool {
	if len(s.fields) < maxFields {
		s.fields = append(s.fields, f)
	}
	return len(s.fields) < maxFields
}

// loc is the way to the value under scan inside depth open containers.
func (s *scanner) loc(depth int) []string {
	out := make([]string, 1, depth+1)
	out[0] = "body"
	for _, p := range s.path[:depth] {
		if p.from < 0 {
			out = append(out, strconv.Itoa(p.index))
			continue
		}
		out = append(out, unquote(s.b[p.from-1:p.to+1]))
	}
	return out
}

// fault returns what the scan found wrong, or nil.
func (s *scanner) fault() error {
	switch {
	case s.broken != nil:
		return fault.Invalidated(*s.broken)
	case len(s.fields) > 0:
		return fault.Invalidated(s.fields...)
	}
	return nil
}

func (s *scanner) space(i int) int {
	for i < len(s.b) && (s.b[i] == ' ' || s.b[i] == '\n' || s.b[i] == '\t' || s.b[i] == '\r') {
		i++
	}
	return i
}

// invalid ends the scan at a break of the grammar.
func (s *scanner) invalid(at int, why string) int {
	return s.malformed(at, "The body is not valid JSON at byte %d: %s", at, why)
}

// unexpected ends the scan at a byte that cannot stand there.
func (s *scanner) unexpected(i int, want string) int {
	if i >= len(s.b) {
		return s.invalid(i, want+" is missing")
	}
	return s.invalid(i, "there should be "+want)
}

// value scans any value inside depth open containers.
func (s *scanner) value(i, depth int) int {
	if i >= len(s.b) {
		return s.unexpected(i, "a value")
	}
	switch c := s.b[i]; c {
	case '"':
		return s.text(i+1, depth)
	case '{':
		return s.object(i, depth+1)
	case '[':
		return s.array(i, depth+1)
	case 't':
		return s.word(i, "true")
	case 'f':
		return s.word(i, "false")
	case 'n':
		return s.word(i, "null")
	default:
		if c == '-' || c-'0' <= 9 {
			return s.number(i)
		}
		return s.unexpected(i, "a value")
	}
}

func (s *scanner) word(i int, w string) int {
	if len(s.b)-i < len(w) || string(s.b[i:i+len(w)]) != w {
		return s.unexpected(i, "a value")
	}
	return i + len(w)
}

// object scans from "{"; depth counts this object.
func (s *scanner) object(i, depth int) int {
	if depth > maxDepth {
		return s.tooDeep(i)
	}
	if i = s.space(i + 1); i < len(s.b) && s.b[i] == '}' {
		return i + 1
	}
	for {
		if i = s.key(i, depth); i < 0 {
			return i
		}
		if i = s.value(i, depth); i < 0 {
			return i
		}
		if i < len(s.b) && s.b[i] != ',' && s.b[i] != '}' {
			i = s.space(i)
		}
		if i >= len(s.b) {
			return s.unexpected(i, `"," or "}"`)
		}
		switch s.b[i] {
		case ',':
			if i++; i < len(s.b) && s.b[i] != '"' {
				i = s.space(i)
			}
		case '}':
			return i + 1
		default:
			return s.unexpected(i, `"," or "}"`)
		}
	}
}

// key scans a key and its colon, makes it the last step of the path, and returns the index of the value.
func (s *scanner) key(i, depth int) int {
	if i >= len(s.b) || s.b[i] != '"' {
		return s.unexpected(i, "a key in quotes")
	}
	from := i + 1
	s.path[depth-1] = step{from: from, to: from}
	end := s.keyEnd(from, depth)
	if end < 0 {
		return end
	}
	s.path[depth-1].to = end - 1
	if i = end; i < len(s.b) && s.b[i] != ':' {
		i = s.space(i)
	}
	if i >= len(s.b) || s.b[i] != ':' {
		return s.unexpected(i, `":"`)
	}
	if i++; i < len(s.b) && s.b[i] <= ' ' {
		i = s.space(i)
	}
	return i
}

// keyEnd scans a key; what is wrong with it is noted at the key itself.
func (s *scanner) keyEnd(from, depth int) int {
	noted := len(s.fields)
	end := s.text(from, depth)
	if len(s.fields) == noted {
		return end
	}
	loc := s.loc(depth - 1)
	if end > 0 {
		loc = append(loc, strings.ReplaceAll(unquote(s.b[from-1:end]), "\x00", "\ufffd"))
	}
	for k := noted; k < len(s.fields); k++ {
		s.fields[k].Loc = loc
	}
	return end
}

// array scans from "["; depth counts this array.
func (s *scanner) array(i, depth int) int {
	if depth > maxDepth {
		return s.tooDeep(i)
	}
	if i = s.space(i + 1); i < len(s.b) && s.b[i] == ']' {
		return i + 1
	}
	for n := 0; ; n++ {
		s.path[depth-1] = step{from: -1, index: n}
		if i = s.value(i, depth); i < 0 {
			return i
		}
		if i = s.space(i); i >= len(s.b) {
			return s.unexpected(i, `"," or "]"`)
		}
		switch s.b[i] {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1
		default:
			return s.unexpected(i, `"," or "]"`)
		}
	}
}

func (s *scanner) tooDeep(i int) int {
	return s.malformed(i, "The body has more than %d levels of nesting at byte %d", maxDepth, i)
}

// number scans by the grammar of JSON; its size is not limited.
func (s *scanner) number(i int) int {
	if s.b[i] == '-' {
		i++
	}
	if i >= len(s.b) || s.b[i]-'0' > 9 {
		return s.unexpected(i, "a digit")
	}
	if s.b[i] == '0' {
		i++
	} else {
		i = s.digits(i)
	}
	if i < len(s.b) && s.b[i] == '.' {
		from := i + 1
		if i = s.digits(from); i == from {
			return s.unexpected(i, "a digit")
		}
	}
	if i < len(s.b) && s.b[i]|0x20 == 'e' {
		if i++; i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		from := i
		if i = s.digits(from); i == from {
			return s.unexpected(i, "a digit")
		}
	}
	return i
}

func (s *scanner) digits(i int) int {
	for i < len(s.b) && s.b[i]-'0' <= 9 {
		i++
	}
	return i
}

// Eight copies of a byte, to look at eight bytes at once.
const (
	ones   = 0x0101010101010101
	highs  = 0x80 * ones
	quotes = '"' * ones
	slants = '\\' * ones
	spaces = 0x20 * ones
)

// text scans a string from the byte after its opening quote and returns the index after the closing one.
func (s *scanner) text(i, depth int) int {
	for {
		// The lowest marked byte is the first quote, backslash or control character.
		for i+8 <= len(s.b) {
			w := binary.LittleEndian.Uint64(s.b[i:])
			q, k := w^quotes, w^slants
			mark := ((q-ones)&^q | (k-ones)&^k | (w-spaces)&^w) & highs
			if mark != 0 {
				i += bits.TrailingZeros64(mark) >> 3
				break
			}
			i += 8
		}
		for i < len(s.b) && s.b[i] != '"' && s.b[i] != '\\' && s.b[i] >= 0x20 {
			i++
		}
		if i >= len(s.b) {
			return s.invalid(i, "a string has no end")
		}
		switch s.b[i] {
		case '"':
			return i + 1
		case '\\':
			i = s.escape(i+1, depth)
		case 0:
			i = s.unstorable(i+1, depth)
		default:
			return s.invalid(i, "a control character inside a string has to be escaped")
		}
		if i < 0 {
			return i
		}
	}
}

const unstorable = "Must not contain a NUL character or half of a surrogate pair"

// unstorable notes a string that is JSON but that nothing behind this service can keep.
func (s *scanner) unstorable(next, depth int) int {
	if !s.bad(fault.Field{Loc: s.loc(depth), Type: "value_error", Msg: unstorable}) {
		return -1
	}
	return next
}

// escape scans what follows a backslash.
func (s *scanner) escape(i, depth int) int {
	if i >= len(s.b) {
		return s.invalid(i, "a string has no end")
	}
	switch s.b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		return s.unicode(i+1, depth)
	}
	return s.invalid(i, "an unknown escape")
}

// unicode scans the digits of a \u escape, both halves of a pair at once.
func (s *scanner) unicode(i, depth int) int {
	r, ok := hex4(s.b, i)
	if !ok {
		return s.invalid(i, `\u needs four hexadecimal digits`)
	}
	switch {
	case r == 0:
		return s.unstorable(i+4, depth)
	case r < 0xd800 || r > 0xdfff:
		return i + 4
	}
	if r < 0xdc00 && i+6 <= len(s.b) && s.b[i+4] == '\\' && s.b[i+5] == 'u' {
		if low, ok := hex4(s.b, i+6); ok && low >= 0xdc00 && low <= 0xdfff {
			return i + 10
		}
	}
	return s.unstorable(i+4, depth)
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// firstInvalid returns the index of the first byte that is not UTF-8, or -1.
func firstInvalid(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
