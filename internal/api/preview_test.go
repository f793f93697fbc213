package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPreview looks at what is not stored yet, and at what was sent: the rehearsal of a new definition, the slots of an
// expression, the body of a delivery and the records of a set.
func TestPreview(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)

	t.Run("a new definition", func(t *testing.T) {
		steps := s.steps(uploadSteps)
		body := `{"name":"new","steps":` + steps + `,"rehearsal":{"input_data":{"id":"17","n":1.50}}}`
		res := s.Do(http.MethodPost, "/flows/definitions/dry-run", body).Want(http.StatusOK)
		got := res.JSON()
		assert.Equal(t, []any{"", 0.0}, []any{got["definition_id"], got["version"]})
		assert.Contains(t, string(res.Body), `"n":1.50`, "digits are kept")
		stored := s.Do(http.MethodPost, "/flows/definitions/"+s.define(steps)+"/dry-run",
			`{"input_data":{"id":"17","n":1.50}}`).Want(http.StatusOK).JSON()
		assert.Equal(t, stored["steps"], got["steps"])
		bad := strings.Replace(body, "{{ input }}", "{{ nothing( }}", 1)
		assert.Contains(t, string(s.Do(http.MethodPost, "/flows/definitions/dry-run",
			bad).Want(http.StatusUnprocessableEntity).Body), "nothing(")
		assert.Equal(t, 1.0, s.get("/flows/definitions")["total"])
	})

	t.Run("an expression", func(t *testing.T) {
		got := s.Do(http.MethodPost, "/flows/schedules/preview",
			`{"cron_expression":"30 2 29 3 *","timezone":"Europe/Berlin","count":3}`).Want(http.StatusOK).JSON()
		assert.Len(t, got["next_fires"], 3)
		assert.Contains(t, got["next_fires"].([]any)[0].(object)["local"], "-03-29T0")
		never := s.Do(http.MethodPost, "/flows/schedules/preview", `{"cron_expression":"0 0 30 2 *"}`).Want(
			http.StatusOK).JSON()
		assert.Equal(t, []any{0, 1}, []any{len(never["next_fires"].([]any)), len(never["warnings"].([]any))})
		s.Do(http.MethodPost, "/flows/schedules/preview", `{"cron_expression":"61 * * * *"}`).Want(
			http.StatusUnprocessableEntity)
		s.Do(http.MethodPost, "/flows/schedules/preview", `{"cron_expression":"0 * * * *","timezone":"Moon"}`).Want(
			http.StatusUnprocessableEntity)
	})

	t.Run("a delivery", func(t *testing.T) {
		h := s.webhook(s.webhookBody())
		at := "/flows/webhooks/" + h.id + "/deliveries/"
		read := func(id, body string, header ...string) object {
			return s.get(at + s.send(h, id, body, header...).Want(http.StatusAccepted).JSON()["delivery_id"].(string))
		}
		got := read("plain", `{"n":1.50}`)
		assert.Equal(t, []any{`{"n":1.50}`, false, "plain"}, []any{got["body"], got["body_truncated"],
			got["webhook_message_id"]})
		long := read("long", `"`+strings.Repeat("a", 70_000)+`"`)
		assert.Len(t, long["body"], 64<<10)
		assert.Equal(t, []any{true, 70_002.0}, []any{long["body_truncated"], long["size_bytes"]})
		assert.Equal(t, "a\ufffd\ufffdb", read("bytes", "a\x00\xffb")["body"])
		s.Do(http.MethodGet, at+"0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a44", nil).Want(http.StatusNotFound)
	})

	t.Run("a record set", func(t *testing.T) {
		at := "/data/record-sets/" + s.upload(rowsOf(600)) + "/records"
		items := s.get(at)["items"].([]any)
		require.Len(t, items, 20)
		assert.Equal(t, object{"position": 0.0, "data": object{"id": "k0", "n": 0.0}}, items[0])
		items = s.get(at + "?from=240&count=100")["items"].([]any)
		require.Len(t, items, 100)
		for i, item := range items { // over the end of a page
			assert.Equal(t, fmt.Sprintf("k%d", 240+i), item.(object)["data"].(object)["id"])
		}
		assert.Len(t, s.get(at + "?from=590")["items"], 10)
		assert.Empty(t, s.get(at + "?from=600")["items"])
		s.Do(http.MethodGet, at+"?count=101", nil).Want(http.StatusUnprocessableEntity)
	})
}
