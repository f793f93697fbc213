package jsonraw_test

import (
	"encoding/json"
	"testing"

	"github.com/go-faster/jx"

	"flowlane/internal/jsonraw"
)

func TestObject_KeepsItsBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"b":1.00,"a":1e400,"b":-0}`,
		`{ "x" : [ {"y":"\u00e9"} , 12345678901234567890.10 ] }`} {
		var o jsonraw.Object
		if err := o.Decode(jx.DecodeStr(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var e jx.Encoder
		o.Encode(&e)
		if e.String() != text {
			t.Errorf("%s came back as %s", text, e.String())
		}
	}
}

func TestObject_RefusesTheRest(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`[]`, `"x"`, `1`, `null`, `true`, ``, `{"a":}`, `{"a"`} {
		var o jsonraw.Object
		if o.Decode(jx.DecodeStr(text)) == nil {
			t.Errorf("%q passes as an object", text)
		}
		if json.Unmarshal([]byte(text), &o) == nil {
			t.Errorf("%q passes as an object by encoding/json", text)
		}
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`null`, `1.50`, `"x"`, `[1, 2]`, `{"a":null}`} {
		var v jsonraw.Value
		if err := v.Decode(jx.DecodeStr(text)); err != nil || string(v.Bytes()) != text {
			t.Errorf("%s came back as %s, %v", text, v.Bytes(), err)
		}
	}
}

func TestZeroValues(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(map[string]any{"o": jsonraw.Object(nil), "v": jsonraw.Value(nil)})
	if err != nil || string(text) != `{"o":{},"v":null}` {
		t.Errorf("%s, %v", text, err)
	}
}
