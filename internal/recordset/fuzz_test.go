package recordset

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"flowlane/internal/fault"
)

// FuzzParse holds the scanner of chunks to encoding/json: what it takes is JSON and has these rows, byte for byte, and
// what it calls broken is not JSON, or too deep.
func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"chunk_index":0,"records":[{"a":1,"b":[true,null,-0.5e+3]},{"c":{"d":{}}}]}`,
		` { "records" : [ {} ] , "chunk\u005findex" : 1e1 } `,
		`{"chunk_index":0,"records":[{"n":"\ud83d\ude00 é \u0000"}]}`,
		`{"chunk_index":0,"records":[{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}]}`,
		`{"chunk_index":-1,"more":1,"records":[1]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		valid := utf8.Valid(body) && json.Valid(body)
		got, err := parse(body, 1000, nil)
		if err != nil {
			wantRefused(t, body, valid, err)
			return
		}
		var want struct {
			ChunkIndex json.Number       `json:"chunk_index"`
			Records    []json.RawMessage `json:"records"`
		}
		if !valid || json.Unmarshal(body, &want) != nil {
			t.Fatalf("%q is taken", body)
		}
		if len(got.rows) != len(want.Records) {
			t.Fatalf("%q: %d rows, want %d", body, len(got.rows), len(want.Records))
		}
		for i, row := range got.rows {
			text := body[row.from:row.to]
			if !bytes.Equal(text, want.Records[i]) || text[0] != '{' {
				t.Fatalf("%q: row %d is %q, want %q", body, i, text, want.Records[i])
			}
			if !sameValue(text, want.Records[i]) {
				t.Fatalf("%q: row %d is not itself", body, i)
			}
		}
	})
}

func wantRefused(t *testing.T, body []byte, valid bool, err error) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.Unprocessable || len(f.Fields) == 0 || len(f.Fields) > maxFields {
		t.Fatalf("%q: %v", body, err)
	}
	broken := f.Fields[0].Type == "json_invalid"
	deep := bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > maxDepth
	if broken && valid && !deep {
		t.Fatalf("%q is JSON, and refused: %+v", body, f.Fields)
	}
	// A raw NUL in a string is named more exactly than "not JSON".
	if !broken && !valid && !bytes.Contains(body, []byte{0}) {
		t.Fatalf("%q is not JSON, and refused as %+v", body, f.Fields)
	}
}

// FuzzSameValue: the comparison says what a comparison of what is decoded says, but for the spelling of numbers, which
// counts there; and two spellings of one value are the same.
func FuzzSameValue(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":1.0}`, `{"b":10e-1,"a":1}`}, {`[0,-0,0e9]`, `[0,0,0]`}, {`"\u00e9"`, `"é"`},
		{`{"a":1,"a":2}`, `{"a":2}`}, {`{"":{"\u0000":1}}`, `{"":{}}`},
		{`1e999999999`, `1e999999998`}, {`1e99999999999999999999`, `1`}, {`"a"`, `"b"`}, {`null`, `{}`},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !storable(a) || !storable(b) {
			return
		}
		same := sameValue(a, b)
		if sameValue(b, a) != same {
			t.Fatalf("%q, %q: %t, but not turned", a, b, same)
		}
		if !same && reflect.DeepEqual(decoded(t, a), decoded(t, b)) {
			t.Fatalf("%q and %q are the same", a, b)
		}
		if same && !bytes.ContainsAny(a, "0123456789") && !reflect.DeepEqual(decoded(t, a), decoded(t, b)) {
			t.Fatalf("%q and %q are not the same", a, b)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, a, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		if !sameValue(a, spaced.Bytes()) {
			t.Fatalf("%q and %q are the same", a, spaced.Bytes())
		}
	})
}

// storable tells whether a text is a value that an upload would take.
func storable(text []byte) bool {
	s := scanner{b: text}
	for i := range s.path {
		s.path[i].from = -1
	}
	return json.Valid(text) && utf8.Valid(text) && s.value(s.space(0), 0) > 0 && s.fault() == nil
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
