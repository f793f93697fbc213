package recordset

import (
	"bytes"
	"encoding/json"
	"errors"
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
			if same, err := sameValue(text, want.Records[i]); err != nil || !same {
				t.Fatalf("%q: row %d is not itself: %v", body, i, err)
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

// FuzzSameValue: the comparison is symmetric, and two spellings of one value are the same.
func FuzzSameValue(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":1.0}`, `{"b":10e-1,"a":1}`}, {`[0,-0,0e9]`, `[0,0,0]`}, {`"\u00e9"`, `"é"`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`1e999999999`, `1e999999998`}, {`1e99999999999999999999`, `1`}, {`"a"`, `"b"`}, {`null`, `{}`},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !json.Valid(a) || !json.Valid(b) {
			return
		}
		ab, err := sameValue(a, b)
		if err != nil {
			t.Fatalf("%q, %q: %v", a, b, err)
		}
		if ba, err := sameValue(b, a); err != nil || ba != ab {
			t.Fatalf("%q, %q: %t, but turned %t, %v", a, b, ab, ba, err)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, a, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		if same, err := sameValue(a, spaced.Bytes()); err != nil || !same {
			t.Fatalf("%q and %q are the same: %v", a, spaced.Bytes(), err)
		}
	})
}
