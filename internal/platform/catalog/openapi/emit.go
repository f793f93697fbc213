package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// emitter writes a value as YAML that any parser reads alike: texts that could be taken for something else stand in
// double quotes, small values on one line.
type emitter struct{ bytes.Buffer }

const (
	lineWidth  = 110
	blockDepth = 24
)

var (
	plainText = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)
	notPlain  = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
)

func (e *emitter) block(n *node, indent int) {
	pad := strings.Repeat("  ", indent)
	for _, f := range n.fields {
		e.WriteString(pad)
		if n.kind == isArray {
			e.WriteString("- ")
			e.item(f.value, indent+1)
			continue
		}
		e.WriteString(plain(f.name) + ":")
		if e.oneLine(f.value, indent) {
			e.WriteByte(' ')
			e.flow(f.value)
			e.WriteByte('\n')
			continue
		}
		e.WriteByte('\n')
		e.block(f.value, indent+1)
	}
}

// item writes an element of an array behind its dash; the first field of an object stands on the same line.
func (e *emitter) item(n *node, indent int) {
	if n.kind != isObject || e.oneLine(n, indent) {
		e.flow(n)
		e.WriteByte('\n')
		return
	}
	var inner emitter
	inner.block(n, indent)
	e.Write(inner.Bytes()[2*indent:])
}

func (e *emitter) oneLine(n *node, indent int) bool {
	return (n.kind != isObject && n.kind != isArray) || len(n.fields) == 0 || indent > blockDepth ||
		sizeOf(n) < lineWidth || (n.kind == isArray && !slices.ContainsFunc(n.fields,
		func(f field) bool { return f.value.kind == isObject }))
}

func (e *emitter) flow(n *node) {
	switch n.kind {
	case isNull:
		e.WriteString("null")
	case isString:
		e.WriteString(plain(n.text))
	case isObject, isArray:
		open, end := byte('['), byte(']')
		if n.kind == isObject {
			open, end = '{', '}'
		}
		e.WriteByte(open)
		for i, f := range n.fields {
			if i > 0 {
				e.WriteString(", ")
			}
			if n.kind == isObject {
				e.WriteString(plain(f.name) + ": ")
			}
			e.flow(f.value)
		}
		e.WriteByte(end)
	default:
		e.WriteString(n.text)
	}
}

func plain(s string) string {
	if len(s) < 100 && plainText.MatchString(s) && !slices.Contains(notPlain, strings.ToLower(s)) {
		return s
	}
	return quoteText(s)
}

// quoteText writes a text in double quotes, as JSON and YAML both read it.
func quoteText(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(strings.ToValidUTF8(s, "\uFFFD")); err != nil {
		return `""`
	}
	quoted := strings.TrimSuffix(b.String(), "\n")
	if !strings.ContainsFunc(quoted, unprintable) {
		return quoted
	}
	var out strings.Builder
	for _, r := range quoted {
		if unprintable(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// unprintable tells whether a YAML parser may refuse or change a character.
func unprintable(r rune) bool {
	return r >= 0x7f && r <= 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff
}
