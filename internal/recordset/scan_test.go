package recordset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/fault"
)

// entries parses a body and returns its bad places as "type body.records.0.name".
func entries(t *testing.T, body string, chunkSize int) []string {
	t.Helper()
	_, err := parse([]byte(body), chunkSize, nil)
	if err == nil {
		return nil
	}
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Equal(t, fault.Unprocessable, f.Code)
	var out []string
	for _, e := range f.Fields {
		require.NotEmpty(t, e.Msg)
		out = append(out, e.Type+" "+strings.Join(e.Loc, "."))
	}
	return out
}

func TestParse_Bad(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	row := func(row string) string { return `{"chunk_index":0,"records":[` + row + `]}` }
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"good", row(`{"a":1}`), nil},
		{"fields turned", ` { "records" : [ {} , { } ] , "chunk_index" : 7 } `, nil},
		{"field escaped", `{"chunk\u005findex":0,"records":[{}]}`, nil},
		{"index 1e1", `{"chunk_index":1e1,"records":[{}]}`, nil},
		{"index 0e99999", `{"chunk_index":0e99999,"records":[{}]}`, nil},
		{"400 digits", row(`{"n":` + strings.Repeat("7", 400) + `}`), nil},
		{"pair", row(`{"n":"\ud83d\ude00 é 😀"}`), nil},
		{"62 levels in a record", row(`{"a":` + deep(61) + `}`), nil},

		{"empty", ``, []string{"json_invalid body"}},
		{"no object", `[]`, []string{"object_type body"}},
		{"nothing in it", `{}`, []string{"missing body.chunk_index", "missing body.records"}},
		{"nulls", `{"chunk_index":null,"records":null}`, []string{"null_not_allowed body.chunk_index",
			"null_not_allowed body.records"}},
		{"types", `{"chunk_index":"0","records":{}}`, []string{"int_type body.chunk_index", "array_type body.records"}},
		{"fraction", `{"chunk_index":0.5,"records":[{}]}`, []string{"int_type body.chunk_index"}},
		{"tiny", `{"chunk_index":1e-5,"records":[{}]}`, []string{"int_type body.chunk_index"}},
		{"negative", `{"chunk_index":-1,"records":[{}]}`, []string{"greater_than_equal body.chunk_index"}},
		{"large", `{"chunk_index":2147483648,"records":[{}]}`, []string{"less_than_equal body.chunk_index"}},
		{"huge", `{"chunk_index":1e999999999,"records":[{}]}`, []string{"less_than_equal body.chunk_index"}},
		{"huge digits", `{"chunk_index":` + strings.Repeat("9", 400) + `,"records":[{}]}`,
			[]string{"less_than_equal body.chunk_index"}},
		{"unknown", `{"chunk_index":0,"records":[{}],"more":1,"x\u0041":{}}`, []string{"extra_forbidden body.more",
			"extra_forbidden body.xA"}},
		{"twice", `{"chunk_index":0,"records":[{}],"records":[{}]}`, []string{"value_error body.records"}},
		{"no records", `{"chunk_index":0,"records":[]}`, []string{"too_short body.records"}},
		{"too many", row(`{},{},{},{}`), []string{"too_long body.records"}},
		{"no objects", row(`1,{},"x"`), []string{"object_type body.records.0", "object_type body.records.2"}},
		{"everything", `{"chunk_index":-1,"extra":[],"records":[[],{"a":"\u0000"}]}`,
			[]string{"greater_than_equal body.chunk_index", "extra_forbidden body.extra", "object_type body.records.0",
				"value_error body.records.1.a"}},

		{"NUL escape", row(`{},{"name":"a\u0000b"}`), []string{"value_error body.records.1.name"}},
		{"NUL raw", row("{\"name\":\"a\x00b\"}"), []string{"value_error body.records.0.name"}},
		{"NUL deep", row(`{"a":[1,{"b":"\u0000"}],"c":"\u0000"}`), []string{"value_error body.records.0.a.1.b",
			"value_error body.records.0.c"}},
		{"NUL in a key", row(`{"k\u0000":1}`), []string{"value_error body.records.0.k\ufffd"}},
		{"half a pair", row(`{"a":"\ud83d","b":"\ude00","c":"\ud83dx\ude00"}`),
			[]string{"value_error body.records.0.a", "value_error body.records.0.b", "value_error body.records.0.c",
				"value_error body.records.0.c"}},
		{"invalid UTF-8", row("{\"a\":\"\xff\"}"), []string{"json_invalid body"}},
		{"surrogate in UTF-8", row("{\"a\":\"\xed\xa0\x80\"}"), []string{"json_invalid body"}},
		{"63 levels in a record", row(`{"a":` + deep(62) + `}`), []string{"json_invalid body"}},
		{"100 levels", row(`{"a":` + deep(100) + `}`), []string{"json_invalid body"}},
		{"a million levels", strings.Repeat("[", 1e6), []string{"json_invalid body"}},
		{"deep in an unknown field", `{"x":` + strings.Repeat(`{"a":`, 1e5) + `}`, []string{"json_invalid body"}},
		{"two bodies", row(`{}`) + `{}`, []string{"json_invalid body"}},
		{"a comma too many", row(`{},`), []string{"json_invalid body"}},
		{"byte order mark", "\ufeff" + row(`{}`), []string{"json_invalid body"}},
		{"bad fields before bad JSON", `{"chunk_index":-1,"records":[{"a":tru}]}`, []string{"json_invalid body"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, entries(t, c.body, 3))
		})
	}
}

func TestParse_ManyBadPlaces(t *testing.T) {
	t.Parallel()
	rows := strings.Repeat(`{"a":"\u0000"},`, 500) + "{}"
	got := entries(t, `{"chunk_index":0,"records":[`+rows+`]}`, 1000)
	require.Len(t, got, maxFields)
	assert.Equal(t, "value_error body.records.99.a", got[99])
}

// Every text that is cut or changed at one byte is judged as encoding/json judges it.
func TestParse_AgreesWithStandardLibrary(t *testing.T) {
	t.Parallel()
	const text = `{"chunk_index": 12, "records": [{"a":"x\n\u00e9\"y","b":[true,false,null,-0.5e+3,0,10],"c":{"d":{},"e":[]}}, {"long":"0123456789012345678901234567890123456789"}]}`
	require.Nil(t, entries(t, text, 10))
	check := func(body string) {
		valid := json.Valid([]byte(body))
		got := entries(t, body, 10)
		broken := len(got) > 0 && strings.HasPrefix(got[0], "json_invalid")
		// A raw NUL in a string is named more exactly than "not JSON".
		if !valid && !broken && strings.Contains(body, "\x00") && len(got) > 0 && strings.HasPrefix(got[0],
			"value_error") {
			return
		}
		require.Equal(t, valid, !broken, "%q: %v", body, got)
	}
	for i := range len(text) {
		check(text[:i])
		for _, c := range "\"\\{}[],:0-+.eEtfn \x00\x01\x1f\x7fxu" {
			check(text[:i] + string(c) + text[i+1:])
			check(text[:i] + string(c) + text[i:])
		}
		check(text[:i] + text[i+1:])
	}
}

// anyJSON draws JSON text with free white space, spelling and nesting.
func anyJSON(depth int) *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t \r"})
	text := rapid.Custom(func(t *rapid.T) string {
		s, _ := json.Marshal(strings.ReplaceAll(rapid.String().Draw(t, "s"), "\x00", ""))
		return string(s)
	})
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,10})?([eE][+-]?[0-9]{1,5})?`)
	scalar := rapid.OneOf(text, number, rapid.SampledFrom([]string{"true", "false", "null", `""`, "{}", "[]"}))
	if depth == 0 {
		return scalar
	}
	inner := anyJSON(depth - 1)
	list := rapid.Custom(func(t *rapid.T) string {
		sp := space.Draw(t, "space")
		return "[" + sp + strings.Join(rapid.SliceOfN(inner, 1, 4).Draw(t, "items"), sp+","+sp) + sp + "]"
	})
	return rapid.OneOf(scalar, list, anyObject(text, inner, space))
}

func anyObject(text, inner, space *rapid.Generator[string]) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			sp := space.Draw(t, "space")
			parts = append(parts, sp+text.Draw(t, "key")+sp+":"+sp+inner.Draw(t, "value")+sp)
		}
		return "{" + strings.Join(parts, ",") + "}"
	})
}

func anyRow() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf(`{"id":%s,"v":%s}`, anyJSON(0).Draw(t, "id"), anyJSON(3).Draw(t, "v"))
	})
}

func TestParse_AnyRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(anyRow(), 1, 20).Draw(t, "rows")
		gap := rapid.SampledFrom([]string{"", " ", "\r\n"}).Draw(t, "gap")
		body := `{"records":[` + gap + strings.Join(rows, gap+","+gap) + gap + `],"chunk_index":3}`
		c, err := parse([]byte(body), 20, nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, c.index)
		require.Len(t, c.rows, len(rows))
		for i, s := range c.rows {
			require.Equal(t, rows[i], body[s.from:s.to])
		}
	})
}

func TestSameValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1.0`, true}, {`1`, `10e-1`, true}, {`100`, `1e2`, true}, {`1E+2`, `100.00`, true}, {`0`, `-0.0e5`, true},
		{`0.001`, `1e-3`, true}, {`12.5`, `125e-1`, true}, {`-1`, `1`, false}, {`1`, `2`, false}, {`1e2`, `1e3`, false},
		{`1e99999999999999999999`, `10e99999999999999999998`, true}, {`1e99999999999999999999`,
			`1e99999999999999999998`, false},
		{strings.Repeat("9", 400), strings.Repeat("9", 400) + ".0", true}, {strings.Repeat("9", 400),
			strings.Repeat("9", 399) + "8", false},
		{`"1"`, `1`, false}, {`null`, `false`, false}, {`"\u0041"`, `"A"`, true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true}, {`{"a":1}`, `{"a":1,"b":null}`, false}, {`{"a":1,"a":2}`, `{"a":2}`,
			true},
		{`[1,2]`, `[2,1]`, false}, {`[1,2]`, ` [ 1 , 2 ] `, true}, {`[]`, `{}`, false}, {`[1]`, `[1,2]`, false},
		{`"\ud83d\ude00"`, `"😀"`, true}, {`"\/\t"`, `"/\u0009"`, true}, {`"a"`, `"ab"`, false}, {`""`, `"a"`, false},
		{`{"a":1,"\u0061":2,"b":[{}]}`, "{ \"b\" : [ { } ] , \"a\" : 2 }", true}, {`{"a":1}`, `{"a":1,"b":1}`, false},
		{`{"a":{"x":1,"y":2},"b":0}`, `{"b":0,"a":{"y":2,"x":1}}`, true}, {`{"a":[{"x":1}]}`, `{"a":[{"x":2}]}`, false},
		{`{"a":1}`, `{"b":1}`, false}, {`true`, `true `, true}, {`{"a":2,"a":1}`, `{"a":2}`, false},
	} {
		assert.Equal(t, c.want, sameValue([]byte(c.a), []byte(c.b)), "%s %s", c.a, c.b)
		assert.Equal(t, c.want, sameValue([]byte(c.b), []byte(c.a)), "%s %s", c.b, c.a)
	}
}
