package recordset

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxExponentDigits bounds the work on the exponent of a number.
const maxExponentDigits = 1000

// sameValue tells whether two JSON texts stand for the same value: key order, white space, escapes and the spelling of
// numbers (1, 1.0, 10e-1) do not count. Of a key that stands twice the last one counts. Both have been scanned before.
// Nothing is decoded: of values as short as can be, a decoded one takes a hundred times its bytes.
func sameValue(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := &scanner{b: a}, &scanner{b: b}
	return same(x, x.space(0), y, y.space(0), 0)
}

// same compares the values at i and j, which lie in so many open containers.
func same(x *scanner, i int, y *scanner, j, depth int) bool {
	if isNumber(x.b[i]) && isNumber(y.b[j]) {
		n, m := x.b[i:x.number(i)], y.b[j:y.number(j)]
		return bytes.Equal(n, m) || decimalOf(string(n)).equals(decimalOf(string(m)))
	}
	if x.b[i] != y.b[j] {
		return false
	}
	switch x.b[i] {
	case '{':
		return sameObject(x, i, y, j, depth+1)
	case '[':
		return sameArray(x, i, y, j, depth+1)
	case '"':
		return compareText(x.b[i+1:], y.b[j+1:]) == 0
	}
	return true // one of the words, each of which has a first letter of its own
}

func isNumber(first byte) bool { return first == '-' || first-'0' <= 9 }

func sameArray(x *scanner, i int, y *scanner, j, depth int) bool {
	i, j = x.space(i+1), y.space(j+1)
	for x.b[i] != ']' && y.b[j] != ']' {
		if !same(x, i, y, j, depth) {
			return false
		}
		i, j = x.next(i, depth), y.next(j, depth)
	}
	return x.b[i] == y.b[j]
}

// next returns where, behind the value at i, the next one stands, or the end of the container.
func (s *scanner) next(i, depth int) int {
	if i = s.space(s.value(i, depth)); s.b[i] == ',' {
		i = s.space(i + 1)
	}
	return i
}

// member is where a key of an object begins, behind its quote, and where its value does.
type member struct{ key, value uint32 }

func sameObject(x *scanner, i int, y *scanner, j, depth int) bool {
	xs, ys := x.members(i, depth), y.members(j, depth)
	if len(xs) != len(ys) {
		return false
	}
	for k := range xs {
		if compareText(x.b[xs[k].key:], y.b[ys[k].key:]) != 0 {
			return false
		}
	}
	for k := range xs {
		if !same(x, int(xs[k].value), y, int(ys[k].value), depth) {
			return false
		}
	}
	return true
}

// members lists an object by key, of equal ones the last.
func (s *scanner) members(i, depth int) []member {
	var all []member
	for i = s.space(i + 1); s.b[i] != '}'; {
		m := member{key: uint32(i + 1)} //nolint:gosec // a body has far fewer bytes
		i = s.space(s.space(s.text(i+1, depth)) + 1)
		m.value = uint32(i) //nolint:gosec // a body has far fewer bytes
		all = append(all, m)
		i = s.next(i, depth)
	}
	slices.SortFunc(all, func(m, n member) int {
		// Of equal keys the last comes first, which is the one that stays.
		return cmp.Or(compareText(s.b[m.key:], s.b[n.key:]), cmp.Compare(n.key, m.key))
	})
	return slices.CompactFunc(all, func(m, n member) bool { return compareText(s.b[m.key:], s.b[n.key:]) == 0 })
}

// compareText compares two JSON strings, each from behind its first quote, as what they stand for: by their bytes in
// UTF-8, which is the order of the characters, too.
func compareText(a, b []byte) int {
	for i, j := 0, 0; ; {
		x, y := a[i], b[j]
		switch {
		case x == '\\' || y == '\\':
			c, n := character(a[i:])
			d, m := character(b[j:])
			if a[i] == '"' || b[j] == '"' || c != d {
				return cmp.Or(cmp.Compare(ended(y), ended(x)), cmp.Compare(c, d))
			}
			i, j = i+n, j+m
		case x != y:
			return cmp.Or(cmp.Compare(ended(y), ended(x)), cmp.Compare(x, y))
		case x == '"':
			return 0
		default:
			i, j = i+1, j+1
		}
	}
}

// ended is 1 for the quote behind a string.
func ended(b byte) int {
	if b == '"' {
		return 1
	}
	return 0
}

// character is the first character of a part of a JSON string, and its length there.
func character(text []byte) (c rune, n int) {
	if text[0] != '\\' {
		return utf8.DecodeRune(text)
	}
	switch text[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		c, n = unit(text), len(`\u0000`)
		if utf16.IsSurrogate(c) { // the second half follows
			return utf16.DecodeRune(c, unit(text[n:])), 2 * n
		}
		return c, n
	}
	return rune(text[1]), 2
}

// unit is what \u and four digits stand for.
func unit(escape []byte) rune {
	var pair [2]byte
	_, _ = hex.Decode(pair[:], escape[2:6])
	return rune(binary.BigEndian.Uint16(pair[:]))
}

// decimal is a number as digits × 10^exponent, without zeros at either end of digits; zero is "0" and exponent 0.
type decimal struct {
	negative bool
	digits   string
	exponent big.Int
	// odd holds an exponent that is too long to compute with; such numbers equal only their like.
	odd string
}

// decimalOf reads a number of valid JSON.
func decimalOf(text string) decimal {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa, exponent = text[:at], text[at+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(all, "0")
	if d.digits == "" {
		return decimal{digits: "0"}
	}
	sign := ""
	if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
		sign, exponent = strings.Trim(exponent[:1], "+"), exponent[1:]
	}
	exponent = strings.TrimLeft(exponent, "0")
	shift := int64(len(all) - len(d.digits) - len(fraction))
	if len(exponent) > maxExponentDigits {
		d.odd, exponent = sign+exponent, ""
	}
	if exponent != "" {
		d.exponent.SetString(sign+exponent, 10)
	}
	d.exponent.Add(&d.exponent, big.NewInt(shift))
	return d
}

func (d decimal) equals(o decimal) bool {
	return d.negative == o.negative && d.digits == o.digits && d.odd == o.odd && d.exponent.Cmp(&o.exponent) == 0
}
