package jsonraw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/jsonraw"
)

func TestHasNUL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"a":"b"}`: false, `"\u0000"`: true, `"\\u0000"`: false, `"\\\u0000"`: true, `{"\u0000":1}`: true,
		`[[{"a":["x\u0000"]}]]`: true, `["\\u0000",1e999]`: false,
	} {
		assert.Equal(t, want, jsonraw.HasNUL([]byte(text)), text)
	}
}
