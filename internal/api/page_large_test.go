package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPages_Large: a page of things whose authors made them large is bounded in bytes, whatever its limit; the pages
// together have all.
func TestPages_Large(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	large := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 900<<10))
	for path, body := range map[string]string{
		"/flows/schedules": scheduleOf(flow, "0 0 29 2 *", `"input_data":`+large),
		"/flows/webhooks":  fmt.Sprintf(`{"definition_id":%q,"description":"d","input_template":%s}`, flow, large),
		"/flows/event-subscriptions": fmt.Sprintf(`{"definition_id":%q,"description":"d","event_kind":"batch.completed","input_template":%s}`,
			flow, large),
	} {
		const made = 20
		for range made {
			s.Do(http.MethodPost, path, body).Want(http.StatusCreated)
		}
		first := s.get(path + "?limit=200")
		assert.Less(t, len(first["items"].([]any)), made, path)
		require.NotNil(t, first["next_cursor"], path)
		assert.EqualValues(t, made, first["total"], path)
		rest := s.get(path + "?limit=200&cursor=" + first["next_cursor"].(string))
		assert.Nil(t, rest["next_cursor"], path)
		ids := map[any]bool{}
		for _, item := range append(first["items"].([]any), rest["items"].([]any)...) {
			ids[item.(map[string]any)["id"]] = true
		}
		assert.Len(t, ids, made, path)
	}
}
