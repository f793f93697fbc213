package api_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// echoing refuses what it is asked, and repeats the key in its words.
func echoing(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Token")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "no such key: %s %s %s %s\n%s", key, url.QueryEscape(key),
			base64.StdEncoding.EncodeToString([]byte(key)),
			base64.RawURLEncoding.EncodeToString([]byte(key)), strings.Repeat("x", 1000))
	}
}

// TestCredentials_TestedFirst: a secret that the platform refuses is not stored, and takes the place of none.
func TestCredentials_TestedFirst(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	body := keyedBody(object{"header_name": "X-Api-Token"})
	refused := func(res apitest.Response, status int) {
		t.Helper()
		text := apitest.Detail(string(res.Invalid("body.credentials value_error").Body))
		const masked = `\S*\*{8}\S*`
		assert.Regexp(t, fmt.Sprintf(`\(status %d\)\. It said: no such key: (%s ){4}xxx`, status, masked), text)
		assert.NotContains(t, string(res.Body), needle)
		assert.Contains(t, text, "Nothing was changed; ?verify=false stores it nevertheless.")
		assert.Less(t, len(text), 600)
	}
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		b.keyed.use(echoing(status))
		refused(b.Do(http.MethodPost, "/credentials", body), status)
		assert.InDelta(t, 0, b.Do(http.MethodGet, "/credentials", nil).Want(http.StatusOK).JSON()["total"], 0)
	}
	b.keyed.use(nil)
	_, path := b.create(t, body)
	assert.Equal(t, true, b.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()["success"])
	before := b.Do(http.MethodGet, path, nil).Want(http.StatusOK).JSON()
	other := with(body, "name", "Other", "credentials", object{"api_key": needle + "+/other key"})
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		b.keyed.use(echoing(status))
		refused(b.Do(http.MethodPut, path, other), status)
		assert.Equal(t, before, b.Do(http.MethodGet, path, nil).Want(http.StatusOK).JSON())
	}
	b.keyed.use(nil)
	b.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK)
	assert.Equal(t, needle+"-key", b.keyed.header, "the stored key")

	// A platform that does not say is not waited for.
	b.keyed.use(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	stored := b.Do(http.MethodPut, path, other).Want(http.StatusOK).JSON()
	assert.Nil(t, stored["last_verified"])
	assert.Equal(t, "UNKNOWN", stored["telemetry"].(object)["keyed__api"].(object)["last_failure_class"])
	b.keyed.use(echoing(http.StatusUnauthorized))
	stored = b.Do(http.MethodPut, path+"?verify=false", body).Want(http.StatusOK).JSON()
	assert.Equal(t, "AUTH_FAILED", stored["telemetry"].(object)["keyed__api"].(object)["last_failure_class"])
	b.Do(http.MethodPost, "/credentials?verify=false", body).Want(http.StatusCreated)
	b.Do(http.MethodPut, path+"?verify=no", body).Want(http.StatusUnprocessableEntity)
	// Not even unverified does a secret of another account take the place.
	b.keyed.use(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"id": "k-2"}`) })
	b.Do(http.MethodPut, path+"?verify=false", other).Want(http.StatusConflict)
	b.mustNotLeak(t)
}

// TestCredentials_TestedOnce: the repeat of a creation asks nobody.
func TestCredentials_TestedOnce(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	body := keyedBody(object{"header_name": "X-Api-Token"})
	first := b.Client.Do(http.MethodPost, "/credentials", body, idempotencyKey, "once").Want(http.StatusCreated)
	b.keyed.use(echoing(http.StatusUnauthorized))
	again := b.Client.Do(http.MethodPost, "/credentials", body, idempotencyKey, "once").Want(http.StatusCreated)
	assert.Equal(t, string(first.Body), string(again.Body))
	assert.Equal(t, 1, b.keyed.requests())
}

// TestCredentials_RotatedMeanwhile: what was tested before another rotation says nothing after it.
func TestCredentials_RotatedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	body := keyedBody(object{"header_name": "X-Api-Token"})
	_, path := b.create(t, body)
	asked, answer := make(chan struct{}), make(chan struct{})
	b.keyed.use(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Api-Token"), "slow") {
			close(asked)
			<-answer
		}
		_, _ = fmt.Fprint(w, `{"id": "k-1"}`)
	})
	var group sync.WaitGroup
	var slow apitest.Response
	group.Go(func() {
		slow = b.Client.Do(http.MethodPut, path, with(body, "credentials", object{"api_key": needle + "-slow"}))
	})
	<-asked
	b.Do(http.MethodPut, path, with(body, "credentials", object{"api_key": needle + "-fast"})).Want(http.StatusOK)
	close(answer)
	group.Wait()
	slow.Detail(http.StatusConflict,
		"The credential was rotated meanwhile; read it, and try again if that is still right")
	b.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK)
	assert.Equal(t, needle+"-fast", b.keyed.header)
}

// TestCredentials_TokensTestedFirst: the secret of a client is tried by asking for a token.
func TestCredentials_TokensTestedFirst(t *testing.T) {
	t.Parallel()
	api := newTokenAPI(t)
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(api.URL)) })
	wrong := s.Do(http.MethodPost, "/credentials", api.body(needle+"-wrong")).Invalid("body.credentials value_error")
	assert.Contains(t, string(wrong.Body),
		"The token endpoint refused the client (status 401 invalid_client). Check client_id and client_secret, "+
			"and rotate the credential. It said: {\\\"error\\\":\\\"invalid_client\\\"}")
	created := s.Do(http.MethodPost, "/credentials", api.body(needle)).Want(http.StatusCreated).JSON()
	path := "/credentials/" + created["id"].(string)
	assert.NotNil(t, created["telemetry"].(object)["core__http"].(object)["last_succeeded_at"])
	s.Do(http.MethodPut, path, api.body(needle+"-wrong")).Invalid("body.credentials value_error")
	assert.Equal(t, created, s.get(path))
	require.Equal(t, true, s.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()["success"])
	tokens := api.counts()[0]
	s.Do(http.MethodPut, path+"?verify=false", api.body(needle+"-wrong")).Want(http.StatusOK)
	assert.Equal(t, tokens, api.counts()[0], "nobody is asked")
}
