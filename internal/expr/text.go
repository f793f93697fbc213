package expr

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendJSONString appends s as a JSON string, quotes included. Invalid UTF-8 becomes U+FFFD; nothing but quotes,
// backslashes and control characters is escaped.
func AppendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendEscaped(dst, s)
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends the inside of a JSON string.
func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf && stringClass[c] == classPlain {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			var buf [utf8.UTFMax]byte
			n := copy(buf[:], s[i:])
			r, size := utf8.DecodeRune(buf[:n])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			if c >= utf8.RuneSelf {
				dst = append(dst, "\uFFFD"...)
			} else {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
		}
		i++
		start = i
	}
	return append(dst, s[start:]...)
}

// hex4 reads four hex digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// appendUnescaped appends the text that the inside of a valid JSON string stands for, reading it as encoding/json does:
// half a surrogate pair and invalid UTF-8 become U+FFFD.
func appendUnescaped(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\\':
			var n int
			dst, n = appendEscape(dst, s[i:])
			i += n
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, size := utf8.DecodeRune(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
		}
	}
	return dst
}

// appendEscape appends what the escape sequence at the start of s stands for and returns its length.
func appendEscape(dst, s []byte) ([]byte, int) {
	switch c := s[1]; c {
	case 'b':
		return append(dst, '\b'), 2
	case 'f':
		return append(dst, '\f'), 2
	case 'n':
		return append(dst, '\n'), 2
	case 'r':
		return append(dst, '\r'), 2
	case 't':
		return append(dst, '\t'), 2
	case 'u':
	default:
		return append(dst, c), 2
	}
	r, _ := hex4(s[2:])
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(dst, r), 6
	}
	if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
		if low, ok := hex4(s[8:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return utf8.AppendRune(dst, pair), 12
			}
		}
	}
	return utf8.AppendRune(dst, utf8.RuneError), 6
}

// unquote returns the text of a valid JSON string.
func unquote(raw []byte) string {
	inside := raw[1 : len(raw)-1]
	if bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return string(inside)
	}
	return string(appendUnescaped(make([]byte, 0, len(inside)), inside))
}

// appendRaw appends a JSON value as it is, on one line: results are written as lines, and outside of strings a line
// break is only white space.
func appendRaw(dst, raw []byte) []byte {
	if len(raw) == 0 {
		return append(dst, "null"...)
	}
	if c := raw[0]; c != '{' && c != '[' {
		return append(dst, raw...)
	}
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return append(dst, raw...)
	}
	return appendCompact(dst, raw)
}

// appendCompact appends a JSON value without the white space outside of its strings.
func appendCompact(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		switch raw[i] {
		case ' ', '\n', '\t', '\r':
			i++
		case '"':
			end := skipString(raw, i)
			if end < 0 {
				end = len(raw)
			}
			dst = append(dst, raw[i:end]...)
			i = end
		default:
			dst = append(dst, raw[i])
			i++
		}
	}
	return dst
}

// appendText appends a JSON value as text inside a JSON string: strings as they are (their escapes stay valid), numbers
// digit for digit, null as nothing, arrays and objects as JSON.
func appendText(dst, raw []byte) []byte {
	if len(raw) == 0 {
		return dst
	}
	switch raw[0] {
	case '"':
		if len(raw) < 2 {
			return dst
		}
		return append(dst, raw[1:len(raw)-1]...)
	case 'n':
		return dst
	case '{', '[':
		return appendEscaped(dst, appendRaw(nil, raw))
	}
	return append(dst, raw...)
}

// appendFloat appends a finite float64 as encoding/json writes it.
func appendFloat(dst []byte, f float64) []byte {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
