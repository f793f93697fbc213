package expr

import "fmt"

// The skip functions take the index of a value's first byte and return the index after its last one, or the complement
// (so a negative number) of the offset where it stops being JSON. They accept exactly what encoding/json.Valid does, to
// a depth of maxDataDepth.

// skipKey skips the string at i and says whether it holds escapes.
func skipKey(raw []byte, i int) (end int, escaped bool) {
	if i >= len(raw) || raw[i] != '"' {
		return ^i, false
	}
	j := skipPlain(raw, i+1)
	switch {
	case j == len(raw) || stringClass[raw[j]] == classControl:
		return ^j, false
	case raw[j] == '"':
		return j + 1, false
	}
	return skipString(raw, i), true
}

// skipPlain returns the index of the next quote, backslash or control character, or len(b).
func skipPlain(b []byte, i int) int {
	for i < len(b) && stringClass[b[i]] == classPlain {
		i++
	}
	return i
}

func skipColon(raw []byte, i int) int {
	i = skipSpace(raw, i)
	if i >= len(raw) || raw[i] != ':' {
		return ^i
	}
	return skipSpace(raw, i+1)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return ^i
	}
	switch c := b[i]; c {
	case '"':
		return skipString(b, i)
	case '{':
		return skipObject(b, i, depth+1)
	case '[':
		return skipArray(b, i, depth+1)
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	default:
		return skipNumber(b, i)
	}
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return ^i
	}
	return i + len(word)
}

const (
	classPlain = iota
	classQuote
	classEscape
	classControl
)

// stringClass sorts the bytes of a string by what a scanner must do with them.
var stringClass = func() (t [256]uint8) {
	for c := range 0x20 {
		t[c] = classControl
	}
	t['"'], t['\\'] = classQuote, classEscape
	return t
}()

func skipString(b []byte, i int) int {
	for {
		if i = skipPlain(b, i+1); i == len(b) {
			return ^i
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			if i++; i == len(b) {
				return ^i
			}
		default:
			return ^i
		}
		switch b[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			if _, ok := hex4(b[i+1:]); !ok {
				return ^i
			}
			i += 4
		default:
			return ^i
		}
	}
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	start := i
	if i = skipDigits(b, i); i == start || (b[start] == '0' && i > start+1) {
		return ^start
	}
	if i < len(b) && b[i] == '.' {
		start = i + 1
		if i = skipDigits(b, start); i == start {
			return ^start
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		if i = skipDigits(b, start); i == start {
			return ^start
		}
	}
	return i
}

func skipArray(b []byte, i, depth int) int {
	if depth > maxDataDepth {
		return ^i
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = skipValue(b, i, depth); i < 0 {
			return i
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return ^i
		}
		if b[i] == ']' {
			return i + 1
		}
		if b[i] != ',' {
			return ^i
		}
		i = skipSpace(b, i+1)
	}
}

func skipObject(b []byte, i, depth int) int {
	if depth > maxDataDepth {
		return ^i
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		end, _ := skipKey(b, i)
		if end < 0 {
			return end
		}
		if i = skipColon(b, end); i < 0 {
			return i
		}
		if i = skipValue(b, i, depth); i < 0 {
			return i
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return ^i
		}
		if b[i] == '}' {
			return i + 1
		}
		if b[i] != ',' {
			return ^i
		}
		i = skipSpace(b, i+1)
	}
}

// checkJSON returns the one value in raw without the space around it, or an error that tells the offset.
func checkJSON(raw []byte) ([]byte, error) {
	start := skipSpace(raw, 0)
	end := skipValue(raw, start, 0)
	if end >= 0 {
		rest := skipSpace(raw, end)
		if rest == len(raw) {
			return raw[start:end], nil
		}
		end = ^rest
	}
	return nil, fmt.Errorf("not valid JSON at byte %d", ^end)
}
