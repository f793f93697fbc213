package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManyProblems: an answer names the first hundred bad places, and that there are more.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	var body strings.Builder
	for i := range 250 {
		fmt.Fprintf(&body, `,"f%03d":1`, i)
	}
	answer := s.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":1`+body.String()+
		`}`).Want(http.StatusUnprocessableEntity)
	var doc struct{ Detail []map[string]any }
	require.NoError(t, json.Unmarshal(answer.Body, &doc))
	require.Len(t, doc.Detail, 101)
	assert.Equal(t, []any{"body", "f000"}, doc.Detail[0]["loc"])
	assert.Equal(t, []any{"body", "f099"}, doc.Detail[99]["loc"])
	assert.Equal(t, "too_many_errors", doc.Detail[100]["type"])
	assert.Contains(t, doc.Detail[100]["msg"], "More places")
}
