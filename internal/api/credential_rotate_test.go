package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/app"
)

// TestCredentials_RotationReachesWorkers: the process that calls is not the one that rotates, and has the old secret in
// memory.
func TestCredentials_RotationReachesWorkers(t *testing.T) {
	t.Parallel()
	api := newTokenAPI(t)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(api.URL)) })
	front := s.replica(func(c *app.Config) { c.AllowHosts = s.config.AllowHosts })
	body := object{
		"name": "key", "platform_id": "core", "auth_method": "api_key",
		"api_key_placement": object{"header_name": "Authorization", "scheme": "Bearer"},
		"credentials":       object{"api_key": "old"}, "allowed_origins": []string{api.URL},
	}
	s.credential = front.Do(http.MethodPost, "/credentials", body).Want(http.StatusCreated).JSON()["id"].(string)
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"CRED","params":{"url":"` + api.URL + `/x"}}]}]`)
	call := func() string {
		s.await(s.trigger(flow, `{"records":[{}]}`))
		api.mu.Lock()
		defer api.mu.Unlock()
		return api.log[len(api.log)-1]
	}
	assert.Equal(t, "Bearer old", call())
	front.Do(http.MethodPut, "/credentials/"+s.credential, with(body, "credentials", object{"api_key": "new"})).Want(
		http.StatusOK)
	rotated := time.Now()
	for call() != "Bearer new" {
		if time.Since(rotated) > 30*time.Second {
			t.Fatal("the worker still has the old secret")
		}
	}
	t.Logf("a worker had the new secret %v after the rotation", time.Since(rotated).Round(time.Millisecond))
}
