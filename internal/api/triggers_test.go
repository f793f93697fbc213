package api_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTriggers(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	first, second := s.define(transformSteps), s.define(uploadSteps)
	var batches []string
	for i := range 5 {
		definition := first
		if i == 3 {
			definition = second
		}
		batches = append(batches, s.trigger(definition, `{"records":[{"n":1},{"n":2}]}`))
	}
	rows := s.pages("/flows/triggers", 2)
	require.Len(t, rows, 5)
	for i, row := range rows {
		assert.Equal(t, batches[i], field[string](t, row, "batch_id"))
		assert.Equal(t, "api_call", field[string](t, row, "trigger_type"))
		assert.Equal(t, 2.0, field[float64](t, row, "record_count"))
		id := field[string](t, row, "id")
		assert.Equal(t, s.get("/flows/batches/" + batches[i])["trigger_id"], id)
		assert.JSONEq(t, string(row), string(s.Do(http.MethodGet, "/flows/triggers/"+id, nil).Want(http.StatusOK).Body))
		s.other.Do(http.MethodGet, "/flows/triggers/"+id, nil).Detail(http.StatusNotFound, "Trigger not found")
	}
	assert.Len(t, s.pages("/flows/triggers?definition_id="+second, 1), 1)
	assert.Len(t, s.pages("/flows/triggers?trigger_type=api_call", 3), 5)
	assert.Empty(t, s.pages("/flows/triggers?trigger_type=webhook", 3))
	assert.Empty(t, s.pages("/flows/triggers?definition_id=nobody", 3))
	for _, id := range []string{"x", first} {
		s.Do(http.MethodGet, "/flows/triggers/"+id, nil).Detail(http.StatusNotFound, "Trigger not found")
	}
	assert.Zero(t, s.other.Do(http.MethodGet, "/flows/triggers", nil).Want(http.StatusOK).JSON()["total"])
	cursor := s.get("/flows/triggers?limit=1")["next_cursor"].(string)
	s.Do(http.MethodGet, "/flows/batches?limit=1&cursor="+cursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
}

// table reads an export as CSV.
func (s *stack) table(path string) [][]string {
	s.t.Helper()
	res := s.Do(http.MethodGet, path, nil).Want(http.StatusOK)
	if got := res.Header.Get("Content-Type"); got != "text/csv" {
		s.t.Fatalf("content type %s", got)
	}
	if text := string(res.Body); strings.Count(text, "\n") != strings.Count(text, "\r\n") {
		s.t.Fatalf("lines end in different ways: %q", text)
	}
	rows, err := csv.NewReader(strings.NewReader(string(res.Body))).ReadAll()
	require.NoError(s.t, err)
	return rows
}
