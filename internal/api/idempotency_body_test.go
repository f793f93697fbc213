package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIdempotency_Body: a key goes in the field of the body that the catalog names, the same with each repeat. What
// fails for good with the error that the provider keeps is not held for failed: nobody knows what was done. Sent again
// it has its key still; once a person says that it was not done, a retry gives it another one.
func TestIdempotency_Body(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys, calls := map[string][]string{}, map[string]int{}
	text := strings.NewReplacer("$BUCKET", "windows: {60: 1000}", "outcome_check: safe", "outcome_check: keyed",
		"method: POST", "method: POST\n          idempotency: {body: meta.key, replays_errors: true}").Replace(mailer)
	s, credential, _ := serveMailer(t, true, text, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			To   string
			Meta struct{ Key string }
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		mu.Lock()
		keys[in.To], calls[in.To] = append(keys[in.To], in.Meta.Key), calls[in.To]+1
		n := calls[in.To]
		mu.Unlock()
		if in.To == "kept" && in.Meta.Key == keys["kept"][0] || in.To == "once" && n == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(`{}`))
	})
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"mailer__api__send","credential_id":"` + credential +
		`",
		"retry":{"max_attempts":2,"initial_seconds":0.1},"params":{"to":"{{ input.to }}"}}]}]`)
	batch := s.trigger(flow, `{"records":[{"to":"good"},{"to":"once"},{"to":"kept"}]}`)
	s.until(batch, func(b map[string]any) bool { return counted(b)["completed"] == 2 && counted(b)["unresolved"] == 1 })
	s.resolve(batch, 2, `{"outcome":"requeue"}`)
	s.until(batch, func(map[string]any) bool {
		mu.Lock()
		sent := calls["kept"]
		mu.Unlock()
		return sent == 3 && s.get("/flows/jobs/" + batch + ".2")["status"] == "unresolved"
	})
	mu.Lock()
	assert.Equal(t, map[string]int{"good": 1, "once": 2, "kept": 3}, calls)
	seen := map[string]bool{}
	for to, of := range keys {
		assert.NotEmpty(t, of[0], to)
		assert.Equal(t, of[0], of[len(of)-1], to)
		assert.False(t, seen[of[0]], "each record has its own")
		seen[of[0]] = true
	}
	mu.Unlock()

	s.resolve(batch, 2, `{"outcome":"rejected"}`)
	require.Equal(t, map[string]int{"completed": 2, "failed": 1}, counted(s.await(batch)))
	_, again := s.retry(batch, "")
	assert.Equal(t, map[string]int{"completed": 1}, counted(s.await(again)), "under a new key")
}
