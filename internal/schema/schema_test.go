package schema_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/schema"
)

func places(problems []schema.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, strings.Join(p.Path, ".")+" "+p.Type)
	}
	return out
}

func TestCompile_Refuses(t *testing.T) {
	t.Parallel()
	doubling := `{"$defs":{"d0":{"type":"object"}`
	for i := range 20 {
		doubling += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
	}
	doubling += `},"$ref":"#/$defs/d20"}`
	for text, want := range map[string][]string{
		`{"type":"text"}`: {"type value_error"},
		`{"properties":{"a":{"minLength":-1},"b":{"type":["string","nothing"]}}}`: {
			"properties.a.minLength greater_than_equal", "properties.b.type value_error"},
		`{"properties":{"a":{"$ref":"https://example.com/a.json"},"b":{"$ref":"other.json#/$defs/x"}}}`: {
			"properties.a.$ref value_error", "properties.b.$ref value_error"},
		`{"$ref":"#/$defs/none"}`: {"$ref value_error"},
		`{"$ref":"#none"}`:        {"$ref value_error"},
		`{"$id":"https://example.com/x","$schema":"http://json-schema.org/draft-07/schema#"}`: {"$id value_error",
			"$schema value_error"},
		`{"properties":{"a":{"pattern":"("}},"patternProperties":{"[":true}}`: {
			"patternProperties.[ value_error", "properties.a.pattern value_error"},
		`{"$defs":{"a":{"properties":{"x":{"$ref":"#/$defs/a"}}}},"$ref":"#/$defs/a"}`: {"$defs.a value_error"},
		`{"items":{"$ref":"#"}}`:           {" value_error"},
		`{"allOf":[{"$ref":"#/allOf/0"}]}`: {"allOf.0 value_error"},
		`{"maximum":1e999999}`:             {"maximum value_error"},
		`{"enum":[1,{"a":1e99999}]}`:       {"enum.1.a value_error"},
		doubling:                           {" too_long"},
		`{"pattern":"(?:` + strings.Repeat("x", 3000) + `){1000}"}`: {"pattern value_error"},
		`{"properties":{"a":{"pattern":"a{990}"},"b":{"allOf":[` +
			strings.TrimSuffix(strings.Repeat(`{"pattern":"b{990}"},`, 10), ",") + `]}}}`: {
			"properties.b.allOf.9.pattern value_error"},
		`{"title":"` + strings.Repeat("x", schema.MaxBytes) + `"}`: {" too_long"},
		strings.Repeat(`{"not":`, 40) + `{}` + strings.Repeat(`}`, 40): {strings.Repeat("not.", 32) +
			"not value_error"},
	} {
		s, problems := schema.Compile([]byte(text))
		assert.Nil(t, s)
		assert.Equal(t, want, places(problems), "%.200s", text)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s, problems := schema.Compile([]byte(
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["id","phone"],"additionalProperties":false,
		"$defs":{"tag":{"$anchor":"tag","type":"string","maxLength":3}},
		"properties":{"id":{"type":"integer","minimum":1},"phone":{"type":"string","pattern":"^\\+[0-9]+$"},"mail":{"format":"email"},"$ref":{"type":"string"},
			"tags":{"type":"array","items":{"$ref":"#/$defs/tag"}},"first":{"$ref":"#tag"},"kind":{"enum":["a","b"]}}}`))
	require.Empty(t, problems)
	for value, want := range map[string][]string{
		`{"id":1,"phone":"+42","tags":["a","abc"],"mail":"a@b.cz","kind":"b","$ref":"x"}`: nil,
		`{"id":1.0,"phone":"+42"}`: nil,
		`{}`:                       {"id missing", "phone missing"},
		`{"id":"1","phone":"secret","tags":["abcd",1],"also":1,"mail":"x","kind":"c","first":"long"}`: {
			"also extra_forbidden", "first string_too_long", "id type_error",
			"kind enum", "mail value_error", "phone string_pattern_mismatch", "tags.0 string_too_long",
			"tags.1 type_error"},
		`{"id":0,"phone":"+1"}`:        {"id greater_than_equal"},
		`{"id":1e999999999,"phone":1}`: {"id value_error"},
		`[]`:                           {" type_error"},
		`{"id":1,"phone":"+1","tags":[` + strings.Repeat(`"a",`, 300_000) + `"a"]}`: {" too_long"},
	} {
		got := s.Check([]byte(value))
		assert.Equal(t, want, places(got), "%.200s", value)
		for _, p := range got {
			assert.NotContains(t, p.Message, "secret")
		}
	}
}

// TestCheck_Bounded_Cost checks values that are small against schemas that are, and would take long together.
func TestCheck_Bounded_Cost(t *testing.T) {
	t.Parallel()
	numbers, names := "0", `"0"`
	for i := 1; i < 2000; i++ {
		numbers += fmt.Sprintf(",%d", i)
		names += fmt.Sprintf(`,"%d"`, i)
	}
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for name, c := range map[string]struct {
		schema, fits, tooLong string
	}{
		"Numbers":   {`{"items":{"enum":[` + numbers + `]}}`, list("1999", 70), list("1999", 90)},
		"Const":     {`{"items":{"const":[` + numbers + `]}}`, list("["+numbers+"]", 0), list("["+numbers+"]", 1)},
		"Names":     {`{"items":{"required":[` + names + `]}}`, list("{}", 0), list("{}", 2500)},
		"Dependent": {`{"items":{"dependentRequired":{"a":[` + names + `]}}}`, list(`{}`, 2400), list(`{}`, 2500)},
		"Distinct":  {`{"items":{"uniqueItems":true}}`, list("[1,2,3]", 20000), list("[1,2,3]", 40000)},
		"Pattern": {`{"items":{"pattern":"(x{1000}){1}y"}}`, list(`"`+strings.Repeat("y", 1000)+`"`, 90),
			list(`"`+strings.Repeat("y", 1000)+`"`, 110)},
		"Format": {`{"items":{"format":"regex"}}`, list(`"a{900}"`, 500), list(`"a{900}"`, 600)},
	} {
		s, problems := schema.Compile([]byte(c.schema))
		require.Empty(t, problems, name)
		assert.NotContains(t, places(s.Check([]byte(c.fits))), " too_long", name)
		assert.Equal(t, []string{" too_long"}, places(s.Check([]byte(c.tooLong))), name)
		assert.NotContains(t, places(s.Check([]byte(c.fits))), " too_long", "%s: each check has its own allowance",
			name)
	}
}

// TestCheck_Problems breaks a schema in more places than anybody reads.
func TestCheck_Problems(t *testing.T) {
	t.Parallel()
	s, problems := schema.Compile([]byte(`{"items":{"type":"string"}}`))
	require.Empty(t, problems)
	assert.Len(t, s.Check([]byte("["+strings.Repeat("1,", 5000)+"1]")), schema.MaxProblems)
}

// TestCheck_Bounded checks large values against a large schema: what would take minutes is refused.
func TestCheck_Bounded(t *testing.T) {
	t.Parallel()
	s, problems := schema.Compile([]byte(`{"items":{"allOf":[` +
		strings.TrimSuffix(strings.Repeat(`{"type":"integer"},`, 1900), ",") + `]}}`))
	require.Empty(t, problems)
	began := time.Now()
	assert.Equal(t, []string{" too_long"}, places(s.Check([]byte("["+strings.Repeat("1,", 500_000)+"1]"))))
	assert.Empty(t, s.Check([]byte("["+strings.Repeat("1,", 500)+"1]")))
	assert.Less(t, time.Since(began), 30*time.Second)
}
