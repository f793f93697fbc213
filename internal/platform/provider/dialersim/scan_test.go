package dialersim

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSkipValue_AgreesWithEncodingJSON mutates JSON at random: the scanner must take exactly what encoding/json takes.
func TestSkipValue_AgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	seeds := []string{
		`{"rows":[{"id":"a","n":-1.5e+10,"t":true,"f":false,"z":null,"s":"\"\\\/\b\f\n\r\t\u00e9 long enough for eight"},[],{}],"key_field":"id"}`,
		"[0, -0, 1.0, 10e1,\n\t\"\x7f\", {\"a\" : [ ] }]", `"plain text of more than eight bytes"`, `-12.5E-7`,
		`  {}  `,
	}
	const bytes = "{}[]\",:\\0123456789.eE+-ntfu \n\x00\x1f\x20a/"
	valid := 0
	for i := range 200_000 {
		text := []byte(seeds[i%len(seeds)])
		for range random.IntN(4) {
			at := random.IntN(len(text))
			switch random.IntN(3) {
			case 0:
				text[at] = bytes[random.IntN(len(bytes))]
			case 1:
				text = slices.Delete(text, at, at+1)
			case 2:
				text = slices.Insert(text, at, bytes[random.IntN(len(bytes))])
			}
			if len(text) == 0 {
				break
			}
		}
		end := skipValue(text, skipSpace(text, 0), 0)
		got := end >= 0 && skipSpace(text, end) == len(text)
		if want := json.Valid(text); got != want {
			t.Fatalf("%q: %v, want %v", text, got, want)
		} else if want {
			valid++
		}
	}
	if valid < 10_000 {
		t.Errorf("only %d were valid", valid)
	}
}

func TestSkipValue_Depth(t *testing.T) {
	t.Parallel()
	for depth, ok := range map[int]bool{64: true, 65: false, 1_000_000: false} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		if got := skipValue(text, 0, 0) == len(text); got != ok {
			t.Errorf("depth %d: %v", depth, got)
		}
	}
}

// TestParsePayload_AgreesWithEncodingJSON mutates uploads at random, and compares what both find.
func TestParsePayload_AgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	seed := `{"rows":[{"id":"a","x":1},{"id":"b","x":2},{"x":3,"id":"c"},{"id":"d","x":[{"id":"e"}]}],"key_field":"id"}`
	read := 0
	for range 100_000 {
		text := []byte(seed)
		for range random.IntN(3) {
			at, from := random.IntN(len(text)), random.IntN(len(seed))
			text[at] = seed[from]
		}
		p, err := parsePayload(text, 100, nil, nil)
		if err != nil {
			continue
		}
		read++
		var want struct {
			Rows     []map[string]json.RawMessage `json:"rows"`
			KeyField string                       `json:"key_field"`
		}
		if err := json.Unmarshal(text, &want); err != nil || len(want.Rows) != p.count || want.KeyField != p.keyField {
			t.Fatalf("%s: %d rows by %q, want %d by %q, %v", text, p.count, p.keyField, len(want.Rows), want.KeyField,
				err)
		}
		for row := range p.count {
			if got := p.value(row, 0); string(got) != string(want.Rows[row][p.keyField]) {
				t.Fatalf("%s: key of row %d is %s, want %s", text, row, got, want.Rows[row][p.keyField])
			}
		}
	}
	if read < 10_000 {
		t.Errorf("only %d could be read", read)
	}
}

func TestIsE164(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"+49": true, "+4971112345": true, "+123456789012345": true,
		"": false, "+": false, "+1": false, "49711": false, "+049711": false, "+1234567890123456": false,
		"+49 711": false, "+49711a": false,
	} {
		if isE164([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
