package provider

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
)

const (
	// shortestMasked is the length of the shortest secret that is looked for in answers: a shorter one stands in them
	// by chance.
	shortestMasked = 6
	// windowMost bounds how much of a form is searched for, and how far the search may go at once.
	windowMost = 32
	// shifts is how many different groups of groupBytes bytes the search tells apart.
	shifts, groupBytes = 4096, 3
)

// mask overwrites secrets and tokens in the answers to the calls that carried them: who is sent a secret may send it
// back, and answers are stored and shown. The forms are what such a service does to text: as it is, escaped for JSON,
// HTML or addresses, in base64 (also of a longer text) and in hex. A nil mask has none.
type mask struct {
	values []string

	once  sync.Once
	forms []form
	// window is the length of the shortest form, shift how far from the end of a window the same bytes are the end of
	// a group of a form's window, at least: a search with all forms at once (Wu and Manber).
	window int
	shift  []uint8
}

// form is a text that must not be shown. fill overwrites it: a digit where the form can be a number.
type form struct {
	text []byte
	fill byte
}

func newMask(values ...string) *mask { return &mask{values: values} }

func (m *mask) build() {
	seen := map[string]bool{}
	m.window = windowMost
	for _, v := range m.values {
		if len(v) < shortestMasked {
			continue
		}
		for _, text := range formsOf(v) {
			if len(text) < shortestMasked || seen[text] {
				continue
			}
			seen[text] = true
			f := form{text: []byte(text), fill: '*'}
			if strings.Trim(text, "0123456789") == "" {
				f.fill = '9'
			}
			m.forms, m.window = append(m.forms, f), min(m.window, len(text))
		}
	}
	slices.SortFunc(m.forms, func(a, b form) int { return cmp.Compare(len(b.text), len(a.text)) }) // some hold others
	m.shift = bytes.Repeat([]byte{byte(m.window - groupBytes + 1)}, shifts)
	for i := range m.forms {
		for end := groupBytes; end <= m.window; end++ {
			at := groupOf(m.forms[i].text, end)
			m.shift[at] = min(m.shift[at], uint8(m.window-end))
		}
	}
}

// groupOf is the number of the group of bytes that ends there; different groups may have the same.
func groupOf(text []byte, end int) int {
	return (int(text[end-1]) ^ int(text[end-2])<<3 ^ int(text[end-3])<<6) % shifts
}

func formsOf(v string) []string {
	out := []string{v, html.EscapeString(v), hex.EncodeToString([]byte(v)),
		strings.ToUpper(hex.EncodeToString([]byte(v)))}
	query := url.QueryEscape(v)
	component := strings.ReplaceAll(query, "+", "%20")
	for _, escaped := range []string{query, url.PathEscape(v), component, inScripts.Replace(component),
		inForms.Replace(query), strings.ReplaceAll(component, "%2F", "/")} {
		out = append(out, escaped, lowerEscapes(escaped))
	}
	for _, htmlToo := range []bool{true, false} {
		text := inJSON(v, htmlToo)
		for _, t := range []string{text, inASCII(text)} {
			out = append(out, t, strings.ReplaceAll(t, "/", `\/`))
		}
	}
	out = append(out, inNet(v))
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			out = append(out, inBase64(alphabet, v, before))
		}
	}
	return out
}

// inScripts and inForms leave, and escape, what the functions of JavaScript and Java do, which differ from Go's.
var (
	inScripts = strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*")
	inForms   = strings.NewReplacer("%2A", "*", "~", "%7E")
)

// inNet is a text as .NET writes it in JSON: what HTML gives a meaning to, and what is not ASCII, as \u and capitals.
func inNet(v string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(v)) {
		switch {
		case unit == '\\':
			b.WriteString(`\\`)
		case unit < ' ' || unit > '~' || strings.ContainsRune("\"&'+<>`", rune(unit)):
			fmt.Fprintf(&b, `\u%04X`, unit)
		default:
			b.WriteByte(byte(unit))
		}
	}
	return b.String()
}

// inBase64 is what a text becomes within a longer one, so many bytes after a multiple of three: what hangs on its
// neighbours is left out.
func inBase64(alphabet *base64.Encoding, v string, before int) string {
	const bits = 6
	text := alphabet.EncodeToString(append(make([]byte, before), v...))
	whole := (before + len(v)) * 8 / bits
	return text[(before*8+bits-1)/bits : whole]
}

func inJSON(v string, htmlToo bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(htmlToo)
	if e.Encode(v) != nil {
		return v
	}
	text := strings.TrimSuffix(b.String(), "\n")
	return text[1 : len(text)-1]
}

// inASCII escapes the characters of a JSON text that are not ASCII, as many encoders do.
func inASCII(text string) string {
	if isASCII(text) {
		return text
	}
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		if unit < 0x80 {
			b.WriteByte(byte(unit))
		} else {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(text string) string {
	out := []byte(text)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:], bytes.ToLower(out[i+1:i+3]))
		}
	}
	return string(out)
}

// overwrite masks a text in place; its length stays.
func (m *mask) overwrite(text []byte) {
	if m == nil {
		return
	}
	m.once.Do(m.build)
	if len(m.forms) == 0 {
		return
	}
	for end := m.window; end <= len(text); {
		if shift := m.shift[groupOf(text, end)]; shift > 0 {
			end += int(shift)
			continue
		}
		end += m.fill(text[end-m.window:])
	}
}

// fill overwrites the form with which a text begins, and returns how far to go on.
func (m *mask) fill(text []byte) int {
	for i := range m.forms {
		if f := &m.forms[i]; bytes.HasPrefix(text, f.text) {
			for j := range f.text {
				text[j] = f.fill
			}
			return len(f.text)
		}
	}
	return 1
}

// answer masks the headers and the body of an answer.
func (m *mask) answer(ans *Answer) {
	if m == nil {
		return
	}
	m.overwrite(ans.Body)
	for name, values := range ans.Header {
		for i, v := range values {
			text := []byte(v)
			if m.overwrite(text); string(text) != v {
				ans.Header[name][i] = string(text)
			}
		}
	}
}
