package violation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"flowlane/internal/fault"
	"flowlane/internal/jsonraw"
)

// MaxDepth is how many objects and arrays may lie within one another.
const MaxDepth = 64

// Text returns what is wrong with a body before any schema is asked: text that is not UTF-8, lies too deep, is not
// JSON, or holds characters that cannot be stored. Nothing else in the service has to think of these.
func Text(body []byte) []fault.Field {
	if at := invalidUTF8(body); at >= 0 {
		return malformed(at, "The body is not valid UTF-8 at byte %d", at)
	}
	if at := jsonraw.TooDeep(body, MaxDepth); at >= 0 { // before every reader that calls itself
		return malformed(at, "The body has more than %d levels of nesting at byte %d", MaxDepth, at)
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		at := len(body)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = int(syntax.Offset)
		}
		return malformed(at, "The body is not valid JSON at byte %d: %s", at, strings.TrimPrefix(err.Error(), "json: "))
	}
	if !suspicious(body) {
		return nil
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(body)), body: body}
	w.dec.UseNumber()
	w.value([]string{"body"})
	return w.fields
}

func malformed(at int, format string, args ...any) []fault.Field {
	return []fault.Field{{
		Loc: []string{"body"}, Msg: fmt.Sprintf(format, args...), Type: "json_invalid",
		Ctx: map[string]any{"offset": at},
	}}
}

// RawQuery returns what keeps a query from being read whole: the standard library leaves out what it cannot read.
func RawQuery(raw string) []fault.Field {
	if _, err := url.ParseQuery(raw); err == nil {
		return nil
	}
	return []fault.Field{{
		Loc: []string{"query"}, Msg: "Must be name=value pairs with & between them, and escape % as %25 and ; as %3B",
		Type: "value_error",
	}}
}

// Query values come as text of their own; QueryText refuses in them what Text refuses in bodies.
func QueryText(name, value string) []fault.Field {
	if strings.IndexByte(value, 0) < 0 && utf8.ValidString(value) {
		return nil
	}
	return []fault.Field{unstorable([]string{"query", name})}
}

func unstorable(loc []string) fault.Field {
	return fault.Field{Loc: loc, Msg: "Must not contain a NUL character or half of a surrogate pair",
		Type: "value_error"}
}

func invalidUTF8(body []byte) int {
	if utf8.Valid(body) {
		return -1
	}
	for at := 0; ; {
		r, n := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// suspicious is a quick look for escapes that may stand for a NUL or a surrogate.
func suspicious(body []byte) bool {
	return bytes.Contains(body, []byte(`\u0000`)) || bytes.Contains(body, []byte(`\ud`)) ||
		bytes.Contains(body, []byte(`\uD`))
}

// walker finds the first strings that cannot be stored, with their places.
type walker struct {
	dec    *json.Decoder
	body   []byte
	fields []fault.Field
}

func (w *walker) value(loc []string) {
	tok, err := w.dec.Token()
	if err != nil {
		return // the text was found to be valid before
	}
	switch t := tok.(type) {
	case string:
		w.check(t, loc)
	case json.Delim:
		for i := 0; w.dec.More() && len(w.fields) <= Most; i++ {
			name := strconv.Itoa(i)
			if t == '{' {
				name = w.key(loc)
			}
			w.value(append(loc[:len(loc):len(loc)], name))
		}
		_, _ = w.dec.Token() // the closing bracket
	}
}

// key reads a name and returns it as it may stand in a place.
func (w *walker) key(loc []string) string {
	tok, _ := w.dec.Token()
	name, _ := tok.(string)
	shown := strings.ReplaceAll(name, "\x00", "\ufffd")
	w.check(name, append(loc[:len(loc):len(loc)], shown))
	return shown
}

// check looks at the string that was read last. A lone surrogate has become U+FFFD in it, as a real U+FFFD stays one;
// the text before the decoder's place tells them apart.
func (w *walker) check(s string, loc []string) {
	if strings.IndexByte(s, 0) >= 0 || strings.ContainsRune(s, utf8.RuneError) && loneSurrogate(w.literal()) {
		w.fields = append(w.fields, unstorable(loc))
	}
}

// literal returns the string literal that ends at the decoder's place, its opening quote left out.
func (w *walker) literal() []byte {
	end := int(w.dec.InputOffset()) - 1
	for start := end - 1; start >= 0; start-- {
		if w.body[start] != '"' {
			continue
		}
		slashes := 0
		for start-1-slashes >= 0 && w.body[start-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return w.body[start+1 : end]
		}
	}
	return nil
}

func loneSurrogate(literal []byte) bool {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		i++
		if literal[i] != 'u' {
			continue
		}
		high := hex4(literal[i+1:])
		i += 4
		switch {
		case high >= 0xDC00 && high <= 0xDFFF:
			return true
		case high >= 0xD800 && high <= 0xDBFF:
			rest := literal[i+1:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || hex4(rest[2:]) < 0xDC00 ||
				hex4(rest[2:]) > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex4(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 32)
	if err != nil {
		return 0
	}
	return int(n)
}
