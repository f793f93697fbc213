package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSchedule_Zone: a schedule may be in a zone, shows its next slots, and warns where it never fires.
func TestSchedule_Zone(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	body := func(cron, more string) string {
		return `{"definition_id":"` + flow + `","description":"d","cron_expression":"` + cron + `"` + more + `}`
	}
	made := s.Do(http.MethodPost, "/flows/schedules", body("30 6 * * *", `,"timezone":"Asia/Tokyo"`)).Want(
		http.StatusCreated).JSON()
	assert.Equal(t, "Asia/Tokyo", made["timezone"])
	fires, ok := made["next_fires"].([]any)
	require.True(t, ok)
	require.Len(t, fires, 5)
	first := fires[0].(map[string]any)
	assert.Contains(t, first["local"], "T06:30:00+09:00")
	assert.Contains(t, first["at"], "T21:30:00Z")
	assert.Equal(t, made["next_fire_at"], first["at"])
	assert.Empty(t, made["warnings"])

	path := "/flows/schedules/" + made["id"].(string)
	s.Do(http.MethodPut, path, made).Want(http.StatusOK)
	assert.Equal(t, "Asia/Tokyo", s.Do(http.MethodPatch, path, `{"enabled":false}`).Want(
		http.StatusOK).JSON()["timezone"])
	changed := s.Do(http.MethodPatch, path, `{"timezone":"UTC"}`).Want(http.StatusOK).JSON()
	assert.Contains(t, changed["next_fire_at"], "T06:30:00Z")
	plain := s.Do(http.MethodPost, "/flows/schedules", body("30 6 * * *", "")).Want(http.StatusCreated).JSON()
	assert.Equal(t, "UTC", plain["timezone"])

	never := s.Do(http.MethodPost, "/flows/schedules", body("0 0 30 2 *", `,"timezone":"Europe/Berlin"`)).Want(
		http.StatusCreated).JSON()
	assert.Nil(t, never["next_fire_at"])
	assert.Equal(t, []any{"cron_expression: it never fires, because no day to come has this date"}, never["warnings"])

	for _, zone := range []string{"UTC+2", "Berlin", "EST", "../etc", ""} {
		s.Do(http.MethodPost, "/flows/schedules", body("0 0 * * *", `,"timezone":"`+zone+`"`)).Invalid(
			"body.timezone value_error")
	}
	s.Do(http.MethodPost, "/flows/schedules", `{"definition_id":"`+flow+`","cron_expression":"x","timezone":"y"}`).
		Invalid("body.cron_expression value_error", "body.description missing", "body.timezone value_error")
}
