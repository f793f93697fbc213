package api_test

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCredentials_Ways: one service takes several methods, and the catalog says how each is sent.
func TestCredentials_Ways(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	key := with(keyedBody(nil), "platform_id", "ways", "api_key_placement", absent)
	created, path := b.create(t, key)
	placement := object{"header_name": "Authorization", "scheme": "Ways-API-Key", "query_param": nil}
	assert.Equal(t, placement, created["api_key_placement"])
	sent := func(path string) http.Header {
		t.Helper()
		assert.Equal(t, true, b.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()["success"])
		return b.keyed.headers()
	}
	got := sent(path)
	assert.Equal(t, "Ways-API-Key "+needle+"-key", got.Get("Authorization"))
	assert.Equal(t, "2026-07-15", got.Get("Revision"))
	// What was read may be sent back; nothing else may be said of it.
	b.Do(http.MethodPut, path, with(key, "api_key_placement", placement)).Want(http.StatusOK)
	b.Do(http.MethodPut, path, with(key, "api_key_placement", object{"header_name": "X-Other"})).Invalid(
		"body.api_key_placement value_error")
	b.Do(http.MethodPut, path, with(key, "credentials", absent)).Want(http.StatusOK)

	basic := with(key, "auth_method", "basic_auth", "credentials", object{"email": "ann@shop.example", "token": needle})
	_, path = b.create(t, basic)
	want := base64.StdEncoding.EncodeToString([]byte("ann@shop.example/token:" + needle))
	assert.Equal(t, "Basic "+want, sent(path).Get("Authorization"))
	b.Do(http.MethodPost, "/credentials", with(basic, "credentials", object{"username": "a", "password": needle})).
		Invalid("body.credentials.email missing", "body.credentials.token missing",
			"body.credentials.password extra_forbidden", "body.credentials.username extra_forbidden")
	b.Do(http.MethodPost, "/credentials", with(basic, "auth_method", "jwt")).Invalid("body.auth_method value_error")

	_, path = b.create(t, keyedBody(object{"cookie_name": "session"}))
	assert.Equal(t, "session="+needle+"-key", sent(path).Get("Cookie"))
	bad := with(keyedBody(object{"cookie_name": "session"}), "credentials", object{"api_key": needle + "; other=1"})
	b.Do(http.MethodPost, "/credentials", bad).Invalid("body.credentials value_error")
	b.Do(http.MethodPost, "/credentials", keyedBody(object{"cookie_name": "a;b"})).Invalid(
		"body.api_key_placement.cookie_name value_error")
	b.Do(http.MethodPost, "/credentials", keyedBody(object{"cookie_name": "a", "query_param": "b"})).Invalid(
		"body.api_key_placement value_error")

	service := b.Do(http.MethodGet, "/catalog/services/ways__api", nil).Want(http.StatusOK).JSON()
	var methods []any
	for _, way := range service["auth_methods"].([]any) {
		methods = append(methods, way.(object)["auth_method"])
	}
	assert.Equal(t, []any{"api_key", "basic_auth"}, methods)
	b.mustNotLeak(t)
}
