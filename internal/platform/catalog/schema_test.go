package catalog

import (
	"slices"
	"strings"
	"testing"
)

func TestValidateParams(t *testing.T) {
	t.Parallel()
	c := load(t, Options{})
	for name, tc := range map[string]struct {
		action, params string
		skip           bool
		want           []string
	}{
		"good":     {"dialer__api__dial", `{"number":"+15550100","campaign":"a"}`, false, nil},
		"template": {"dialer__api__upload", `{"list":"{{ input.list }}","row":"{{ input }}"}`, true, nil},
		"template rendered": {"dialer__api__upload", `{"list":"demo","row":"{{ input }}"}`, false,
			[]string{"row type_error"}},
		"missing": {"dialer__api__dial", `{}`, true, []string{"campaign missing", "number missing"}},
		"unknown name": {"dialer__api__dial", `{"number":"{{ input.n }}","campaign":"a","x":"{{ input.x }}"}`,
			true, []string{"x extra_forbidden"}},
		"literal type": {"dialer__api__upload", `{"list":7,"row":{}}`, true, []string{"list type_error"}},
		"short":        {"dialer__api__upload", `{"list":"","row":{}}`, true, []string{"list string_too_short"}},
		"enum": {"core__http__request", `{"url":"http://a.example","method":"STEAL"}`, true,
			[]string{"method enum"}},
		"enum template":  {"core__http__request", `{"url":"{{ input.u }}","method":"{{ input.m }}"}`, true, nil},
		"short template": {"core__http__request", `{"url":"{{ a }}"}`, true, nil},
		"deep": {"core__http__request", `{"url":"http://a.example","headers":{"X-A":1}}`, true,
			[]string{"headers/X-A type_error"}},
		"deep template": {"core__http__request", `{"url":"http://a.example","headers":{"X-A":"{{ input.a }}"}}`,
			true, nil},
		"not an object":  {"core__http__request", `[]`, true, []string{" type_error"}},
		"whole template": {"core__http__request", `"{{ input }}"`, true, nil},
		"no JSON":        {"core__http__request", `{`, true, []string{" json_invalid"}},
		"huge":           {"core__flow__delay", `{"seconds":1e9999999}`, true, []string{"seconds value_error"}},
		"huge and free":  {"core__http__request", `{"url":"http://a.example","body":{"a":1e9999999}}`, true, nil},
		"several": {"dialer__api__upload", `{"list":7,"row":8,"z":1}`, true, []string{"list type_error",
			"row type_error", "z extra_forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, ok := c.Action(tc.action)
			if !ok {
				t.Fatal("no such action")
			}
			var got []string
			for _, p := range a.ValidateParams([]byte(tc.params), tc.skip) {
				if p.Message == "" {
					t.Errorf("%v has no message", p)
				}
				got = append(got, strings.Join(p.Path, "/")+" "+p.Type)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("problems are %q; want %q", got, tc.want)
			}
		})
	}
}

// TestValidateParams_Words: problems say what would be right, in the words of all other answers.
func TestValidateParams_Words(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ schema, value, want string }{
		{`{"maximum":5}`, "6", "less_than_equal must be at most 5"},
		{`{"minimum":0.25}`, "0", "greater_than_equal must be at least 0.25"},
		{`{"exclusiveMinimum":0}`, "0", "greater_than must be more than 0"},
		{`{"exclusiveMaximum":7}`, "7", "less_than must be less than 7"},
		{`{"multipleOf":0.5}`, "0.3", "multiple_of must be a multiple of 0.5"},
		{`{"minItems":2}`, "[1]", "too_short must have at least 2 items"},
		{`{"maxItems":1}`, "[1,2]", "too_long must have at most 1 items"},
		{`{"minProperties":1}`, `{}`, "value_error must have at least 1 of its fields"},
		{`{"maxProperties":1}`, `{"a":1,"b":2}`, "value_error must have at most 1 of its fields"},
		{`{"pattern":"^a$"}`, `"b"`, "string_pattern_mismatch must match ^a$"},
		{`{"format":"uri"}`, `"b"`, "value_error must be a valid uri"},
		{`{"enum":["a","",3]}`, `"b"`, `enum must be one of a, "", 3`},
		{`{"const":true}`, `"b"`, "enum must be true"},
	} {
		compiled, err := compileSchema(JSON(tc.schema))
		if err != nil {
			t.Fatal(err)
		}
		a := Action{params: compiled}
		var got []string
		for _, p := range a.ValidateParams([]byte(tc.value), true) {
			got = append(got, p.Type+" "+p.Message)
		}
		if !slices.Equal(got, []string{tc.want}) {
			t.Errorf("%s of %s: %q; want %q", tc.value, tc.schema, got, tc.want)
		}
	}
}
