package provider

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/internal/expr"
)

// maxFormDepth is how deep the values of a form may lie in one another.
const maxFormDepth = 16

// fields writes an object as names and values.
func (p *preparer) fields(place string, t *expr.Template) (string, error) {
	raw, err := p.render(place, t)
	if err != nil || raw == nil {
		return "", err
	}
	text, err := appendForm(nil, gjson.ParseBytes(raw))
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrParams, place, err)
	}
	return string(text), nil
}

// appendForm appends an object as names and values, in its order, as browsers encode forms. A null is left out. An
// array of plain values repeats its name. What is in an object has its name in brackets behind the object's, what is in
// an array of objects, or in an array within an object, its number: metadata[k]=v, items[0][price]=5. A name that ends
// in [] is repeated wherever it stands.
func appendForm(dst []byte, value gjson.Result) ([]byte, error) {
	f := formWriter{dst: dst}
	if value.Type == gjson.Null {
		return dst, nil
	}
	if !value.IsObject() {
		return dst, errors.New("must be an object")
	}
	var err error
	value.ForEach(func(key, v gjson.Result) bool {
		err = f.field(key.String(), v, 1)
		return err == nil
	})
	return f.dst, err
}

type formWriter struct{ dst []byte }

func (f *formWriter) field(name string, v gjson.Result, depth int) (err error) {
	switch {
	case v.Type == gjson.Null:
		return nil
	case depth > maxFormDepth:
		return fmt.Errorf("%q: more than %d values lie in one another", name, maxFormDepth)
	case v.IsArray():
		return f.items(name, v, depth)
	case v.IsObject():
		v.ForEach(func(key, of gjson.Result) bool {
			inner, repeats := strings.CutSuffix(key.String(), "[]")
			inner = name + "[" + inner + "]"
			if repeats {
				inner += "[]"
			}
			err = f.field(inner, of, depth+1)
			return err == nil
		})
		return err
	}
	text, _ := scalar(v)
	if len(f.dst) > 0 {
		f.dst = append(f.dst, '&')
	}
	f.dst = append(append(append(f.dst, url.QueryEscape(name)...), '='), url.QueryEscape(text)...)
	return nil
}

func (f *formWriter) items(name string, list gjson.Result, depth int) (err error) {
	repeats := strings.HasSuffix(name, "[]") || depth == 1
	list.ForEach(func(_, v gjson.Result) bool {
		repeats = repeats && v.Type != gjson.JSON
		return repeats
	})
	n := 0
	list.ForEach(func(_, v gjson.Result) bool {
		inner := name
		if !repeats {
			inner = fmt.Sprintf("%s[%d]", strings.TrimSuffix(name, "[]"), n)
		}
		n++
		err = f.field(inner, v, depth+1)
		return err == nil
	})
	return err
}
