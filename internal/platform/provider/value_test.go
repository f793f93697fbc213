package provider

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// An answer that is nothing but brackets has no value, and does not end the process that reads it.
func TestAnswer_Deep(t *testing.T) {
	t.Parallel()
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	value := func(body string) string {
		a := Answer{Status: http.StatusOK, Body: []byte(body),
			Header: http.Header{"Content-Type": {"application/json"}}}
		return string(a.Value(nil))
	}
	assert.Equal(t, nested(maxDepth), value(nested(maxDepth)))
	for _, body := range []string{nested(maxDepth + 1), nested(4 << 20), strings.Repeat("[", 8<<20),
		strings.Repeat(`{"a":`, 2<<20)} {
		assert.Empty(t, value(body))
	}
}
