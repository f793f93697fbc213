package media

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// ErrNoXML is wrapped by the errors about values that have no form in XML.
var ErrNoXML = errors.New("has no form in XML")

// maxDepth is how deep elements may be written.
const maxDepth = 64

const declaration = `<?xml version="1.0" encoding="UTF-8"?>`

// AppendDocument appends an XML document: value is an object with one field, its root element. What XML reads of it is
// the same value again, but for numbers, true and false, which become texts, and for nulls, which are left out: an
// element is written for each field, in their order, one for each item of an array; a field "@name" is an attribute,
// "#text" the text beside elements. The error wraps ErrNoXML.
func AppendDocument(dst []byte, value gjson.Result) ([]byte, error) {
	roots := 0
	value.ForEach(func(name, v gjson.Result) bool {
		if v.Type != gjson.Null {
			roots++
		}
		if v.IsArray() || strings.HasPrefix(name.String(), "@") || name.String() == "#text" {
			roots = 2
		}
		return true
	})
	if !value.IsObject() || roots != 1 {
		return dst, fmt.Errorf("the document %w: it must be an object with one field, the root element", ErrNoXML)
	}
	return AppendElements(append(dst, declaration...), value)
}

// AppendElements appends an element for each field of an object, as AppendDocument does.
func AppendElements(dst []byte, value gjson.Result) (out []byte, err error) {
	if !value.IsObject() {
		return dst, fmt.Errorf("the content %w: it must be an object of elements", ErrNoXML)
	}
	return appendContent(dst, value, 0)
}

// AppendElement appends the elements of one name: one, or one for each item of an array.
func AppendElement(dst []byte, name string, v gjson.Result) ([]byte, error) {
	return appendField(dst, name, v, 1)
}

func appendContent(dst []byte, object gjson.Result, depth int) (out []byte, err error) {
	object.ForEach(func(key, v gjson.Result) bool {
		switch name := key.String(); {
		case strings.HasPrefix(name, "@") && depth > 0: // stands in the tag
		case name == "#text" && depth > 0:
			dst, err = appendScalar(dst, name, v, false)
		default:
			dst, err = appendField(dst, name, v, depth+1)
		}
		return err == nil
	})
	return dst, err
}

func appendField(dst []byte, name string, v gjson.Result, depth int) (out []byte, err error) {
	if !v.IsArray() {
		return appendElement(dst, name, v, depth)
	}
	v.ForEach(func(_, item gjson.Result) bool {
		if item.IsArray() {
			err = fmt.Errorf("%q %w: an array lies directly in an array", name, ErrNoXML)
			return false
		}
		dst, err = appendElement(dst, name, item, depth)
		return err == nil
	})
	return dst, err
}

func appendElement(dst []byte, name string, v gjson.Result, depth int) (out []byte, err error) {
	switch {
	case v.Type == gjson.Null:
		return dst, nil
	case depth > maxDepth:
		return dst, fmt.Errorf("%q %w: more than %d elements lie in one another", name, ErrNoXML, maxDepth)
	case !isName(name):
		return dst, fmt.Errorf("%q %w: it is no name of an element", name, ErrNoXML)
	}
	dst = append(append(dst, '<'), name...)
	if v.IsObject() {
		if dst, err = appendAttributes(dst, v); err != nil {
			return dst, err
		}
	}
	end := len(dst)
	dst = append(dst, '>')
	if v.IsObject() {
		dst, err = appendContent(dst, v, depth)
	} else {
		dst, err = appendScalar(dst, name, v, false)
	}
	if err != nil {
		return dst, err
	}
	if len(dst) == end+1 {
		return append(dst[:end], "/>"...), nil
	}
	return append(append(append(dst, "</"...), name...), '>'), nil
}

func appendAttributes(dst []byte, object gjson.Result) (out []byte, err error) {
	object.ForEach(func(key, v gjson.Result) bool {
		name, is := strings.CutPrefix(key.String(), "@")
		if !is || v.Type == gjson.Null {
			return true
		}
		if !isName(name) {
			err = fmt.Errorf("%q %w: it is no name of an attribute", key.String(), ErrNoXML)
			return false
		}
		dst = append(append(append(dst, ' '), name...), `="`...)
		dst, err = appendScalar(dst, key.String(), v, true)
		dst = append(dst, '"')
		return err == nil
	})
	return dst, err
}

// appendScalar appends a text, numbers digit for digit.
func appendScalar(dst []byte, name string, v gjson.Result, attribute bool) ([]byte, error) {
	text := v.Raw
	switch v.Type {
	case gjson.Null:
		return dst, nil
	case gjson.JSON:
		return dst, fmt.Errorf("%q %w: it must be a text, a number, true or false", name, ErrNoXML)
	case gjson.String:
		text = v.Str
	}
	for _, r := range text {
		switch {
		case r == '&':
			dst = append(dst, "&amp;"...)
		case r == '<':
			dst = append(dst, "&lt;"...)
		case r == '>':
			dst = append(dst, "&gt;"...)
		case attribute && r == '"':
			dst = append(dst, "&#34;"...)
		case r == '\r', attribute && (r == '\n' || r == '\t'): // else the reader would take them for something else
			dst = fmt.Appendf(dst, "&#%d;", r)
		case r < ' ' && r != '\n' && r != '\t', r == '\uFFFE', r == '\uFFFF':
			return dst, fmt.Errorf("%q %w: it holds the character U+%04X", name, ErrNoXML, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst, nil
}

// isName reports whether an element or attribute may be called so, with or without a prefix.
func isName(name string) bool {
	prefix, local, prefixed := strings.Cut(name, ":")
	return isNCName(prefix) && (!prefixed || isNCName(local))
}

func isNCName(name string) bool {
	for i, r := range name {
		first := unicode.IsLetter(r) || r == '_'
		if !first && (i == 0 || !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) && r != '-' && r != '.') {
			return false
		}
	}
	return name != ""
}
