package jsonraw_test

import (
	"encoding/json"
	"testing"

	"flowlane/internal/jsonraw"
)

func TestTooDeep(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		``: -1, `7`: -1, `[[]]`: -1, `[{}, [], {"a": 1}]`: -1,
		`[[[]]]`: 2, `{"a": [{}]}`: 7, `[[[`: 2,
		`["[[[{{{"]`: -1, `["\"[[["]`: -1, `["\\", [[]]]`: 8,
	} {
		if got := jsonraw.TooDeep([]byte(text), 2); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	var value any
	if err := json.Unmarshal([]byte(`{"a": [{"b": 7}, null]}`), &value); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path []string
		want any
	}{
		{[]string{"a", "0", "b"}, 7.0},
		{[]string{"a", "1"}, nil}, {[]string{"a", "2"}, nil}, {[]string{"a", "-1"}, nil}, {[]string{"a", "b"}, nil},
		{[]string{"a", "0", "b", "c"}, nil}, {[]string{"x"}, nil},
	} {
		if got := jsonraw.At(value, c.path); got != c.want {
			t.Errorf("%v: %v, want %v", c.path, got, c.want)
		}
	}
}
