package catalog

import (
	"errors"
	"strings"
	"testing"
)

// actionOf is one that takes parameters of a schema.
func actionOf(t *testing.T, properties, required string) *Action {
	t.Helper()
	a := &Action{
		Call: &Call{Body: JSON(`{"a":"{{ params.body }}","b":"{{ params.name }}","c":"{{ params.whole }}"}`)},
		ParamsSchema: JSON(`{"type":"object","additionalProperties":false,"required":[` + required + `],"properties":` +
			properties + `}`),
	}
	compiled, err := compileSchema(a.ParamsSchema)
	if err != nil {
		t.Fatal(err)
	}
	a.params = compiled
	return a
}

const checked = `{"kind":{"enum":["a","b"]},"name":{"type":"string","description":"d"},"short":{"type":"string","maxLength":3},
	"any":{},"count":{"type":"integer","minimum":1},
	"key":{"type":["string","number"]},"whole":{"type":"integer"},"headers":{"type":"object","additionalProperties":{"type":"string"}},
	"list":{"type":"array","items":{"type":"string"}},
	"body":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"note":{"type":"string"},"either":{"type":["string","null"]},"free":{}}}}`

func TestRenderCheck(t *testing.T) {
	t.Parallel()
	a := actionOf(t, checked, `"name"`)
	for name, c := range map[string]struct{ written, rendered, want string }{
		"Fits":      {`{"kind":"{{ x }}","count":"{{ x }}"}`, `{"kind":"b","count":7}`, ""},
		"Enum":      {`{"kind":"{{ x }}"}`, `{"kind":"c"}`, "kind must be one of a, b"},
		"Type":      {`{"name":"{{ x }}"}`, `{"name":7}`, "name must be string, not number"},
		"MaxLength": {`{"short":"{{ x }}!"}`, `{"short":"abc!"}`, "short must have at most 3 characters"},
		"Minimum":   {`{"count":"{{ x }}"}`, `{"count":0}`, "count must be at least 1"},
		"TypesFit":  {`{"key":"{{ x }}"}`, `{"key":1e999999999}`, ""},
		"NoInteger": {`{"whole":"{{ x }}"}`, `{"whole":1.5}`, "whole must be integer, not number"},
		"Huge": {`{"whole":"{{ x }}"}`, `{"whole":1e999999999}`,
			"whole must be a number nearer to zero, or with fewer digits"},
		"Null":         {`{"kind":"{{ x }}"}`, `{"kind":null}`, ""},
		"RequiredNull": {`{"name":"{{ x }}"}`, `{"name":null}`, "name must be string, not null"},
		"Header": {`{"headers":{"X-A":"{{ x }}"}}`, `{"headers":{"X-A":{}}}`,
			"headers.X-A must be string, not object"},
		"HeaderNumber":   {`{"headers":{"X-A":"{{ x }}"}}`, `{"headers":{"X-A":7}}`, ""},
		"TextNumber":     {`{"count":"{{ x }}"}`, `{"count":"7"}`, ""},
		"TextTooSmall":   {`{"count":"{{ x }}"}`, `{"count":"0"}`, "count must be at least 1"},
		"TextHuge":       {`{"count":"{{ x }}"}`, `{"count":"1e999999999"}`, "count must be integer, not string"},
		"TextNoNumber":   {`{"count":"{{ x }}"}`, `{"count":"many"}`, "count must be integer, not string"},
		"NumberTooLong":  {`{"short":"{{ x }}"}`, `{"short":1234}`, "short must have at most 3 characters"},
		"BooleanText":    {`{"list":["{{ x }}"]}`, `{"list":[true]}`, ""},
		"TextInBody":     {`{"whole":"{{ x }}"}`, `{"whole":"7"}`, "whole must be integer, not string"},
		"HeaderNull":     {`{"headers":{"X-A":"{{ x }}","X-B":"{{ x }}"}}`, `{"headers":{"X-A":null,"X-B":"b"}}`, ""},
		"Headers":        {`{"headers":"{{ x }}"}`, `{"headers":[]}`, "headers must be object, not array"},
		"Item":           {`{"list":["{{ x }}"]}`, `{"list":[null]}`, "list.0 must be string, not null"},
		"Nested":         {`{"body":{"id":"{{ x }}"}}`, `{"body":{"id":1}}`, "body.id must be string, not number"},
		"NestedNull":     {`{"body":{"id":"1","note":"{{ x }}"}}`, `{"body":{"id":"1","note":null,"either":null}}`, ""},
		"NestedRequired": {`{"body":{"id":"{{ x }}"}}`, `{"body":{"id":null,"note":null}}`, "body.id is required"},
		"NestedMissing":  {`{"body":"{{ x }}"}`, `{"body":{}}`, "body.id is required"},
		"Several": {`{"kind":"{{ x }}","name":"{{ x }}"}`, `{"name":7,"kind":7}`,
			"kind must be one of a, b; name must be string, not number"},
		"Escaped":     {`{"name":"{{ x }}"}`, `{"n\u0061me":7}`, "name must be string, not number"},
		"NotRendered": {`{"kind":"{{ x }}","name":"a"}`, `{"kind":"a","name":7}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := a.RenderCheck([]byte(c.written))
			err := check.Params([]byte(c.rendered))
			if c.want == "" && err == nil {
				return
			}
			if !errors.Is(err, ErrRendered) || strings.TrimPrefix(err.Error(), ErrRendered.Error()+": ") != c.want {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestRenderCheck_Nothing: what is rendered is not looked at where it is sure to fit.
func TestRenderCheck_Nothing(t *testing.T) {
	t.Parallel()
	a := actionOf(t, checked, "")
	for written, nothing := range map[string]bool{
		`{}`: true, `{"name":"a","count":3}`: true, `{"any":"{{ x }}"}`: true, `{"any":{"deep":["{{ x }}"]}}`: true,
		`{"name":"Hello {{ x }}"}`: true, `{"name":" {{ x }} "}`: false, `{"name":"{{ x }}{{ y }}"}`: false,
		`{"key":"{{ x }}"}`:     false,
		`{"short":"a {{ x }}"}`: false, `{"kind":"a {{ x }}"}`: false, `{"count":"{{ x }}"}`: false,
		`{"headers":{"X-A":"Bearer {{ x }}","X-B":"b"}}`: true, `{"headers":{"X-A":"{{ x }}"}}`: false,
		`{"body":{"id":"id-{{ x }}","free":"{{ x }}","other":"{{ x }}"}}`: true, `{"body":{"id":"{{ x }}"}}`: false,
		`{"list":["a {{ x }}"]}`:         false,
		`{"any":1e999,"kind":"{{ x }}"}`: false,
	} {
		if check := a.RenderCheck([]byte(written)); (check == nil) != nothing {
			t.Errorf("%s: %+v", written, check)
		}
	}
	if err := (*RenderCheck)(nil).Params(nil); err != nil {
		t.Error(err)
	}
	if err := (*RenderCheck)(nil).Record(nil); err != nil {
		t.Error(err)
	}
}

// TestRenderCheck_Record: each record of a bulk action is checked by itself, and the others with what they share.
func TestRenderCheck_Record(t *testing.T) {
	t.Parallel()
	a, _ := load(t, Options{}).Action("dialer__api__upload")
	check := a.RenderCheck([]byte(`{"list":"{{ input.list }}","row":"{{ input.row }}"}`))
	for _, c := range []struct {
		err  error
		want string
	}{
		{check.Record([]byte(`{"id":1}`)), ""},
		{check.Record([]byte(`[1]`)), "row must be object, not array"},
		{check.Record([]byte(`null`)), "row must be object, not null"},
		{check.Params([]byte(`{"list":"l"}`)), ""},
		{check.Params([]byte(`{"list":""}`)), "list must have at least 1 characters"},
	} {
		got := ""
		if c.err != nil {
			got = strings.TrimPrefix(c.err.Error(), ErrRendered.Error()+": ")
		}
		if got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}

func BenchmarkRenderCheck(b *testing.B) {
	c, err := Load(Options{})
	if err != nil {
		b.Fatal(err)
	}
	a, _ := c.Action("core__http__request")
	check := a.RenderCheck([]byte(`{"url":"https://example.com/{{ input.id }}","method":"POST","body":"{{ input }}"}`))
	params := []byte(`{"url":"https://example.com/1","method":"POST","body":{"id":1,"name":"Ada"}}`)
	for b.Loop() {
		if err := check.Params(params); err != nil {
			b.Fatal(err)
		}
	}
}
