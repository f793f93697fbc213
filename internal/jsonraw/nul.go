package jsonraw

import (
	"bytes"
	"encoding/json"
	"strings"
)

// HasNUL reports whether a string or a key of a valid JSON text has a NUL character, which nothing can store. Bodies of
// requests are looked at when they are read; expressions can make one.
func HasNUL(text []byte) bool {
	if !bytes.Contains(text, []byte(`\u0000`)) {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return false // its end
		}
		if s, ok := token.(string); ok && strings.IndexByte(s, 0) >= 0 {
			return true
		}
	}
}
