package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// TestCredentials_AllowedOrigins goes through origins good and bad, as somebody may write them.
func TestCredentials_AllowedOrigins(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	text, err := os.ReadFile("../platform/provider/testdata/allowed_origins.txt")
	require.NoError(t, err)
	cases := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		want, quoted, ok := strings.Cut(line, "\t")
		require.True(t, ok, line)
		origin, err := strconv.Unquote(`"` + quoted + `"`)
		require.NoError(t, err, line)
		cases++
		res := b.Do(http.MethodPost, "/credentials", coreBody(origin))
		if want == "no" {
			assert.Equal(t, http.StatusUnprocessableEntity, res.Status, line)
			res.Invalid("body.allowed_origins.0 value_error")
			continue
		}
		assert.Equal(t, []any{want}, res.Want(http.StatusCreated).JSON()["allowed_origins"], line)
	}
	assert.Greater(t, cases, 70)
	b.mustNotLeak(t)
}

func TestCredentials_AllowedOriginsKept(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.Do(http.MethodPost, "/credentials", with(coreBody(), "allowed_origins", absent)).Invalid(
		"body.allowed_origins missing")
	b.Do(http.MethodPost, "/credentials", coreBody()).Invalid("body.allowed_origins null_not_allowed")
	b.Do(http.MethodPost, "/credentials", with(coreBody(), "allowed_origins", []string{})).Invalid(
		"body.allowed_origins too_short")
	b.Do(http.MethodPost, "/credentials",
		coreBody(strings.Fields(strings.Repeat("https://a.example ", 21))...)).Invalid("body.allowed_origins too_long")
	// Those of other platforms follow from the catalog.
	b.Do(http.MethodPost, "/credentials", with(dialerBody("1001", needle), "allowed_origins",
		[]string{"https://evil.example"})).
		Invalid("body.allowed_origins value_error")
	b.Do(http.MethodPost, "/credentials", with(dialerBody("1001", needle), "allowed_origins", []string{b.dialer})).Want(
		http.StatusCreated)

	created, path := b.create(t, coreBody("https://b.example", "https://A.example:443", "https://a.example"))
	stored := []any{"https://a.example", "https://b.example"}
	assert.Equal(t, stored, created["allowed_origins"])
	same := with(coreBody(), "allowed_origins", absent)
	for name, body := range map[string]object{
		"absent":          with(same, "credentials", absent),
		"absent, rotated": same,
		"in another way":  with(coreBody("https://b.example", "https://a.example:443"), "credentials", absent),
	} {
		assert.Equal(t, stored, b.Do(http.MethodPut, path, body).Want(http.StatusOK).JSON()["allowed_origins"], name)
	}
	others := coreBody("https://a.example", "https://b.example", "https://evil.example")
	refused := b.Do(http.MethodPut, path, with(others, "credentials", absent)).Invalid("body.credentials missing")
	assert.Contains(t, string(refused.Body), "Another allowed_origins needs the secret again: send credentials, too")
	b.Do(http.MethodPut, path, with(coreBody("http://a.example"), "credentials", absent)).Invalid(
		"body.allowed_origins.0 value_error")
	assert.Equal(t, stored, b.Do(http.MethodGet, path, nil).Want(http.StatusOK).JSON()["allowed_origins"])
	assert.Equal(t, []any{"https://c.example"}, b.Do(http.MethodPut, path, coreBody("https://c.example")).Want(
		http.StatusOK).JSON()["allowed_origins"])
	b.mustNotLeak(t)
}

// TestCredentials_Labels: what a secret puts into the addresses of its platform stays within their pattern.
func TestCredentials_Labels(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	body := func(shop string) object {
		return with(keyedBody(object{"header_name": "X-Key"}), "platform_id", "shops",
			"credentials", object{"api_key": needle, "shop": shop})
	}
	created, path := b.create(t, body("acme"))
	assert.Equal(t, []any{"https://*.shops.example"}, created["allowed_origins"])
	for _, shop := range []string{"evil.example/", "evil.example#", "a.b", "me@evil", "*", " "} {
		b.Do(http.MethodPost, "/credentials", body(shop)).Invalid("body.credentials.shop value_error")
		b.Do(http.MethodPut, path, body(shop)).Invalid("body.credentials.shop value_error")
	}
	tested := b.Do(http.MethodPost, "/credentials/test", body("evil.example/")).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{"INVALID_CREDENTIALS_SHAPE",
		"credentials.shop: shop does not give the shop of the address https://{shop}.shops.example/admin"},
		[]any{tested["error"], tested["details"]})
	b.Do(http.MethodPut, path, with(body(""), "credentials", absent, "allowed_origins",
		created["allowed_origins"])).Want(http.StatusOK)
	b.mustNotLeak(t)
}

// TestCredentials_GoNowhereElse: whoever writes the records of a flow chooses addresses, but not who gets the secret. A
// redirect does not take it elsewhere either.
func TestCredentials_GoNowhereElse(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 10)
	listen := func(handle http.HandlerFunc) string {
		server := httptest.NewServer(handle)
		t.Cleanup(server.Close)
		return server.URL
	}
	evil := listen(func(_ http.ResponseWriter, r *http.Request) { seen <- "evil " + r.Header.Get("Authorization") })
	good := listen(func(w http.ResponseWriter, r *http.Request) {
		seen <- "good " + r.Header.Get("Authorization")
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, evil, http.StatusTemporaryRedirect)
		}
	})
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(good), hostOf(evil)) })
	s.credential = s.Do(http.MethodPost, "/credentials", coreBody(good)).Want(http.StatusCreated).JSON()["id"].(string)
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"CRED","params":{"url":"{{ input.u }}"}}]}]`)
	run := func(address string) map[string]any {
		batch := s.trigger(flow, fmt.Sprintf(`{"records":[{"u":%q}]}`, address))
		if s.await(batch)["status"] == "completed" {
			return nil
		}
		return field[map[string]any](t, s.pages("/flows/jobs?batch_id="+batch, 10)[0], "error")
	}
	assert.Nil(t, run(good+"/things"))
	assert.Equal(t, "good Bearer "+needle+"-key", <-seen)
	for _, address := range []string{evil, strings.Replace(good, "127.0.0.1", "localhost", 1),
		strings.Replace(good, "http", "https", 1)} {
		failure := run(address)
		assert.Equal(t, "invalid_parameters", failure["code"], address)
		assert.Contains(t, failure["message"], "the credential is of platform core and goes only to "+good+
			", its allowed_origins", address)
	}
	rehearsed := s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run", fmt.Sprintf(`{"input_data":{"u":%q}}`,
		evil)).Want(http.StatusOK)
	assert.Contains(t, string(rehearsed.Body), "goes only to "+good)
	assert.Empty(t, seen)
	assert.NotNil(t, run(good+"/moved"))
	close(seen)
	for one := range seen { // it may have been sent again
		assert.Equal(t, "good Bearer "+needle+"-key", one)
	}
}
