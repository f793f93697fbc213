package media

import "strings"

// Form returns a form as an object. Every value is a string, a repeated key becomes an array of its values in their
// order. As browsers have it, a key without = has the value "", and a % that begins no escape stands for itself, so
// that the only forms that are refused are those with NUL in them or with too many fields.
func Form(body []byte, b Bounds) (payload []byte, ok bool) {
	var form object
	parts := 0
	for pair := range strings.SplitSeq(string(body), "&") {
		if pair == "" {
			continue
		}
		if parts++; parts > b.Parts {
			return nil, false
		}
		key, text, _ := strings.Cut(pair, "=")
		key, text = unescape(key), unescape(text)
		if strings.Contains(key, "\x00") || strings.Contains(text, "\x00") {
			return nil, false
		}
		form.add(key, value{text: text})
	}
	return form.appendTo(make([]byte, 0, 2*len(body)+2)), true
}

// unescape undoes + and %XX, and makes the result UTF-8, so that keys that differ still do when they are written.
func unescape(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			c = hexValue(s[i+1])<<4 | hexValue(s[i+2])
			i += 2
		}
		out = append(out, c)
	}
	return strings.ToValidUTF8(string(out), "\ufffd")
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
