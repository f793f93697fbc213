package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLists_Long: a list that is written item by item is the one that its short pages make together.
func TestLists_Long(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	const records = 1_700
	batch := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ 10 / (input.n % 10 - 3) }}"}}]}]`),
		fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(records))))
	s.await(batch)
	for _, path := range []string{"/flows/jobs?batch_id=" + batch, "/flows/executions?batch_id=" + batch,
		"/flows/batches/" + batch + "/results?"} {
		path = strings.TrimSuffix(path, "?")
		want := s.pages(path, 900)
		require.Len(t, want, records, path)
		for _, limit := range []int{1_001, 1_699, 1_700, 50_000} {
			got := s.pages(path, limit)
			require.Len(t, got, records, path)
			for i := range want {
				require.JSONEq(t, string(want[i]), string(got[i]), "%s, limit %d, item %d", path, limit, i)
			}
		}
	}
	one := s.Do(http.MethodGet, "/flows/jobs?limit=1600&skip=50&batch_id="+batch, nil).Want(http.StatusOK).JSON()
	assert.Len(t, one["items"], 1600)
	assert.Equal(t, 1600.0, one["limit"])
	assert.Equal(t, 50.0, one["skip"])
	assert.Equal(t, float64(records), one["total"])
	assert.NotNil(t, one["next_cursor"])
}

// TestLists_LargeRows: a list whose rows are large ends early, and its cursor leads on.
func TestLists_LargeRows(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	const rows = 20 // of 900 KiB, of which a page holds 18
	pad := strings.Repeat("m", 900<<10)
	definition := s.define(transformSteps)
	for range rows {
		s.trigger(definition, `{"records":[{}],"metadata":{"pad":"`+pad+`"}}`)
		s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"` + pad +
			`"}}]}]`)
		s.Do(http.MethodPost, "/data/record-sets", `{"metadata":{"pad":"`+pad+`"}}`).Want(http.StatusCreated)
	}
	for path, total := range map[string]int{"/data/record-sets": rows, "/flows/batches": rows,
		"/flows/definitions": rows + 1} {
		first := s.get(path + "?limit=50000")
		assert.Less(t, len(first["items"].([]any)), rows, path)
		assert.Equal(t, float64(total), first["total"])
		assert.NotNil(t, first["next_cursor"], path)
		assert.Len(t, s.pages(path, 50_000), total, path)
		assert.Len(t, s.pages(path, 3), total, path)
	}
	assert.Len(t, s.pages("/flows/jobs", 50_000), rows)
}
