package dialersim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// The scanner checks JSON and finds spans in it without building values: an upload of 50,000 rows must cost little.
// Every function takes the position of a token and returns the position after it, or bad(i) when the bytes at i are no
// JSON.

// maxDepth is the deepest nesting that the platform takes.
const maxDepth = 64

// bad marks a position as the place of an error.
func bad(i int) int { return -i - 1 }

// span is a place in a body; empty when from equals to.
type span struct{ from, to int32 }

func (s span) of(b []byte) []byte { return b[s.from:s.to] }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue skips any value that starts at i.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return bad(i)
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '-' || c >= '0' && c <= '9':
		return skipNumber(b, i)
	case c == '{':
		return scanObject(b, i, depth, nil)
	case c == '[':
		return scanArray(b, i, depth, nil)
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	}
	return bad(i)
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return bad(i)
	}
	return i + len(word)
}

// skipString skips a string, eight bytes at a time between quotes, backslashes and control characters.
func skipString(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i++; ; {
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			quote, slash := x^(ones*'"'), x^(ones*'\\')
			found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & highs
			if found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
			i++
		}
		if i >= len(b) || b[i] < ' ' {
			return bad(i)
		}
		if b[i] == '"' {
			return i + 1
		}
		if i = skipEscape(b, i); i < 0 {
			return i
		}
	}
}

func skipEscape(b []byte, i int) int {
	if i+1 >= len(b) {
		return bad(i)
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(b) || !isHex(b[k]) {
				return bad(i)
			}
		}
		return i + 6
	}
	return bad(i)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	whole := i
	if i = skipDigits(b, i); i == whole || b[whole] == '0' && i > whole+1 {
		return bad(whole)
	}
	if i < len(b) && b[i] == '.' {
		from := i + 1
		if i = skipDigits(b, from); i == from {
			return bad(i)
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from := i
		if i = skipDigits(b, from); i == from {
			return bad(i)
		}
	}
	return i
}

// scanObject skips the object at i. member, where given, sees each name (with its quotes) and the position of its
// value, and returns the position after the value.
func scanObject(b []byte, i, depth int, member func(name span, at int) int) int {
	if depth >= maxDepth {
		return bad(i)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		var name span
		if i, name = scanName(b, i); i < 0 {
			return i
		}
		if member != nil {
			i = member(name, i)
		} else {
			i = skipValue(b, i, depth+1)
		}
		more := false
		if i, more = scanNext(b, i, '}'); !more {
			return i
		}
	}
}

// scanArray skips the array at i. element, where given, sees the position of each element and returns the one after it.
func scanArray(b []byte, i, depth int, element func(at int) int) int {
	if depth >= maxDepth {
		return bad(i)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if element != nil {
			i = element(i)
		} else {
			i = skipValue(b, i, depth+1)
		}
		more := false
		if i, more = scanNext(b, i, ']'); !more {
			return i
		}
	}
}

// scanName reads a member's name and its colon, and returns the position of the value.
func scanName(b []byte, i int) (int, span) {
	if i >= len(b) || b[i] != '"' {
		return bad(i), span{}
	}
	end := skipString(b, i)
	if end < 0 {
		return end, span{}
	}
	name := span{int32(i), int32(end)}
	if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
		return bad(i), span{}
	}
	return skipSpace(b, i+1), name
}

// scanNext reads what follows an element: a comma, then more is true, or the closing bracket. A bad i stays bad.
func scanNext(b []byte, i int, closing byte) (next int, more bool) {
	if i < 0 {
		return i, false
	}
	if i = skipSpace(b, i); i >= len(b) {
		return bad(i), false
	}
	switch b[i] {
	case ',':
		return skipSpace(b, i+1), true
	case closing:
		return i + 1, false
	}
	return bad(i), false
}

// isName says whether a quoted name is w, whose escapes it resolves.
func isName(b []byte, name span, w string) bool {
	text := b[name.from+1 : name.to-1]
	if string(text) == w {
		return true
	}
	if len(text) <= len(w) {
		return false
	}
	return string(unquote(b[name.from:name.to])) == w
}

// unquote returns the text of a JSON string that the scanner has checked.
func unquote(quoted []byte) []byte {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return text
	}
	return []byte(s)
}

// textOf returns a value as the text by which the platform knows it: a string's content, a number or a boolean as it is
// written. Null, objects, arrays, empty strings and absent values have none.
func textOf(value []byte) []byte {
	if len(value) == 0 {
		return nil
	}
	switch value[0] {
	case '"':
		return unquote(value)
	case '{', '[', 'n':
		return nil
	}
	return value
}
