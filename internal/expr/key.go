package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// maxKey is how many characters a key may have.
const maxKey = 200

// Key is a compiled text that tells records apart, such as {{ input.id }}. It is safe for concurrent use.
type Key struct {
	t *Template
	// plain: it is one value of the record as it stands there, so that the record has the text of the key in it.
	plain bool
}

var errStaticKey = errors.New("a key must name something of the record, such as {{ input.id }}")

// CompileKey compiles a text with expressions, which must depend on the record.
func CompileKey(s string, scope Scope) (*Key, []Error) {
	t, errs := Compile(AppendJSONString(nil, s), scope)
	if len(errs) > 0 {
		return nil, errs
	}
	if t.Static() {
		return nil, []Error{{Msg: errStaticKey.Error()}}
	}
	return &Key{t: t, plain: len(t.ops) == 1 && t.ops[0].source != "" && t.ops[0].eval == nil}, nil
}

// Of returns the key of a record, given as JSON: a string, or a number, true or false as text. It is empty where the
// expression has no value for the record, or one of another type, or one that is too long.
func (k *Key) Of(record json.RawMessage) string {
	var buf [256]byte
	out, err := k.t.Append(buf[:0], &Env{Input: record})
	if err != nil || len(out) == 0 {
		return ""
	}
	switch out[0] {
	case '{', '[', 'n':
		return ""
	case '"':
		out = []byte(unquote(out))
	}
	if utf8.RuneCount(out) > maxKey {
		return ""
	}
	return string(out)
}

// Is returns what tells whether a record has this key. Most records that have another one are told by their bytes
// alone.
func (k *Key) Is(key string) func(record []byte) bool {
	text := []byte(key)
	return func(record []byte) bool {
		if k.plain && !bytes.Contains(record, text) && bytes.IndexByte(record, '\\') < 0 {
			return false
		}
		return k.Of(record) == key
	}
}
