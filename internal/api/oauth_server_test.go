package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// oauthServer is an issuer that others wrote; it holds a PKCE verifier against its challenge. With the address of an
// API it is told to end what it prints of the requests that it got.
const oauthServer = `
const { OAuth2Server } = require("oauth2-mock-server")
const server = new OAuth2Server()
const seen = []
server.service.on("beforeResponse", (answer, req) => {
  seen.push(req.body.grant_type)
  if (req.body.grant_type === "authorization_code" || req.body.grant_type === "refresh_token") answer.body.refresh_token = "next-" + seen.length
})
server.service.requestHandler.get("/seen", (req, res) => res.json(seen))
server.service.requestHandler.get("/things", (req, res) => res.status(/^Bearer ey/.test(req.headers.authorization) ? 200 : 401).json({}))
server.issuer.keys.generate("RS256").then(() => server.start(0, "127.0.0.1")).then(() => console.log(server.address().port))`

// TestOAuthServer goes through the grants with an issuer that none of us wrote, a person who agrees in a browser among
// them.
func TestOAuthServer(t *testing.T) {
	t.Parallel()
	host := "127.0.0.1:" + servers.Start(t, oauthServer)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	at := "http://" + host
	body := func(grant string, fields object) object {
		return object{
			"name": grant, "platform_id": "core", "auth_method": "oauth2", "grant_type": grant, "token_url": at +
				"/token",
			"authorize_url": at + "/authorize", "scopes": []string{"read"}, "credentials": fields,
			"allowed_origins": []string{at},
		}
	}
	client := object{"client_id": "app", "client_secret": needle}
	works := func() {
		t.Helper()
		flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"CRED","params":{"url":"` + at + `/things"}}]}]`)
		batch := s.trigger(flow, `{"records":[{},{}]}`)
		assert.Equal(t, "completed", s.await(batch)["status"])
	}
	for grant, fields := range map[string]object{
		"client_credentials": client,
		"password":           {"client_id": "app", "username": "ann", "password": needle},
		"refresh_token":      {"client_id": "app", "client_secret": needle, "refresh_token": needle + "-first"},
	} {
		s.credential = s.made("/credentials", body(grant, fields))
		works()
		assert.Equal(t, "authorized", s.authorization("/credentials/" + s.credential)["state"], grant)
	}

	s.credential = s.made("/credentials", body("authorization_code", client))
	path := "/credentials/" + s.credential
	assert.Equal(t, "pending", s.authorization(path)["state"])
	consent := s.Do(http.MethodPost, path+"/authorize", nil).Want(http.StatusOK).JSON()
	address, err := url.Parse(consent["url"].(string))
	require.NoError(t, err)
	assert.Equal(t, "S256", address.Query().Get("code_challenge_method"))
	assert.Equal(t, s.app.URL()+"/v1/credentials/callback", consent["redirect_uri"])
	// A browser goes there, and follows the issuer back.
	back := browse(t, consent["url"].(string), http.StatusOK)
	assert.Contains(t, back, "The credential is authorized.")
	assert.Equal(t, "authorized", s.authorization(path)["state"])
	works()
	audited := s.get("/account/audit-log?resource_id=" + s.credential)["items"].([]any)[0].(object)
	assert.Equal(t, []any{"returnAuthorization", "succeeded", "api_key"}, []any{audited["action"], audited["outcome"],
		audited["auth_method"]})
	// The state was good once.
	assert.Contains(t, browse(t, consent["url"].(string), http.StatusBadRequest), "was used already")
	assert.Equal(t, true, s.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()["success"])

	res, err := http.Get(at + "/seen")
	require.NoError(t, err)
	defer res.Body.Close()
	var seen []string
	require.NoError(t, json.NewDecoder(res.Body).Decode(&seen))
	counts := map[string]int{}
	for _, grant := range seen {
		counts[grant]++
	}
	assert.Equal(t, 1, counts["authorization_code"])
	assert.Equal(t, 2, counts["refresh_token"], "one of its own, and one of the test")
}

// TestCatalogImport_Grant: who imports a document whose callers sign in as persons authorizes a credential once, of
// which he gives no more than the client's id and secret.
func TestCatalogImport_Grant(t *testing.T) {
	t.Parallel()
	host := "127.0.0.1:" + servers.Start(t, oauthServer)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	document := strings.ReplaceAll(`{"openapi":"3.1.0","info":{"title":"Things"},"servers":[{"url":"http://HOST"}],"security":[{"key":[]},{"person":[]}],
		"components":{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"X-Key"},
			"person":{"type":"oauth2","flows":{"authorizationCode":{"authorizationUrl":"http://HOST/authorize","tokenUrl":"http://HOST/token","scopes":{}}}}}},
		"paths":{"/things":{"get":{"operationId":"things","tags":["All"],"responses":{"200":{"description":"ok"}}}}}}`,
		"HOST", host)
	s.Do(http.MethodPost, "/catalog/imports", object{"document": document, "auth": []string{"person"}}).Want(
		http.StatusCreated)
	s.credential = s.made("/credentials", object{"name": "person", "platform_id": "things", "auth_method": "oauth2",
		"grant_type":  "authorization_code",
		"credentials": object{"client_id": "app", "client_secret": needle}})
	path := "/credentials/" + s.credential
	assert.Equal(t, "pending", s.authorization(path)["state"])
	consent := s.Do(http.MethodPost, path+"/authorize", nil).Want(http.StatusOK).JSON()
	assert.Contains(t, browse(t, consent["url"].(string), http.StatusOK), "The credential is authorized.")
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"things__all__things","credential_id":"CRED","params":{}}]}]`)
	assert.Equal(t, "completed", s.await(s.trigger(flow, `{"records":[{}]}`))["status"])

	for _, place := range []string{"/token", "/authorize"} {
		moved := strings.ReplaceAll(document, "http://"+host+place, "https://elsewhere.example"+place)
		assert.Contains(t, string(s.Do(http.MethodPost, "/catalog/imports", object{"document": moved,
			"auth": []string{"person"}}).Want(http.StatusConflict).Body), "Its secret would go to https://elsewhere.example")
	}
}

// browse gets an address as a browser does, following redirects, and returns the page.
func browse(t *testing.T, address string, status int) string {
	t.Helper()
	res, err := http.Get(address)
	require.NoError(t, err)
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Equal(t, status, res.StatusCode, string(page))
	return string(page)
}

// TestOAuthServer_Code: a code that was given for another address is of no use, even to whoever has a good state, and
// the exchange names the address that the person was sent back to.
func TestOAuthServer_Code(t *testing.T) {
	t.Parallel()
	host := "127.0.0.1:" + servers.Start(t, strings.Replace(oauthServer, "seen.push(req.body.grant_type)",
		"seen.push(req.body.redirect_uri)", 1))
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	at := "http://" + host
	path := "/credentials/" + s.made("/credentials", strings.ReplaceAll(codeCredential, "https://issuer.example", at))
	consent := func() *url.URL {
		t.Helper()
		u, err := url.Parse(s.Do(http.MethodPost, path+"/authorize", nil).Want(http.StatusOK).JSON()["url"].(string))
		require.NoError(t, err)
		return u
	}
	// code agrees at the issuer, without coming back.
	stay := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	code := func(u *url.URL) string {
		t.Helper()
		res, err := stay.Get(u.String())
		require.NoError(t, err)
		defer res.Body.Close()
		back, err := res.Location()
		require.NoError(t, err)
		return back.Query().Get("code")
	}
	mine, stolen := consent(), consent()
	require.NotEqual(t, mine.Query().Get("code_challenge"), stolen.Query().Get("code_challenge"))
	back := func(state, code string) string {
		return "/credentials/callback?" + url.Values{"state": {state}, "code": {code}}.Encode()
	}
	nobody := s.As("")
	nobody.Do(http.MethodGet, back(mine.Query().Get("state"), code(stolen)), nil).Want(http.StatusBadRequest)
	assert.NotEqual(t, "authorized", s.authorization(path)["state"])
	assert.Zero(t, s.count("flow.audit_log WHERE action = 'returnAuthorization'"))
	// it was used
	nobody.Do(http.MethodGet, back(mine.Query().Get("state"), code(mine)), nil).Want(http.StatusBadRequest)
	again := consent()
	nobody.Do(http.MethodGet, back(again.Query().Get("state"), code(again)), nil).Want(http.StatusOK)
	assert.Equal(t, "authorized", s.authorization(path)["state"])
	assert.Contains(t, browse(t, at+"/seen", http.StatusOK), `"`+s.app.URL()+`/v1/credentials/callback"`)
}

// TestCredentials_Return: nobody comes back with a state that is not good.
func TestCredentials_Return(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.made("/credentials", codeCredential)
	path := "/credentials/" + id
	s.other.Do(http.MethodPost, path+"/authorize", nil).Detail(http.StatusNotFound, "Credential not found")
	s.Do(http.MethodPost, "/credentials/"+s.credential+"/authorize", nil).
		Detail(http.StatusConflict,
			"Only a credential of oauth2 with grant_type authorization_code is authorized by a person")
	state := func() string {
		t.Helper()
		u, err := url.Parse(s.Do(http.MethodPost, path+"/authorize", nil).Want(http.StatusOK).JSON()["url"].(string))
		require.NoError(t, err)
		return u.Query().Get("state")
	}
	nobody := s.As("")
	const refused = "This authorization is not known, was used already or took too long; ask for a new address"
	nobody.Do(http.MethodGet, "/credentials/callback?code=c", nil).Want(http.StatusUnprocessableEntity)
	nobody.Do(http.MethodGet, "/credentials/callback?code=c&state="+uuid.NewString(), nil).Detail(http.StatusBadRequest,
		refused)
	given := state()
	nobody.Do(http.MethodGet, "/credentials/callback?error=access_denied&state="+given, nil).
		Detail(http.StatusBadRequest,
			"The issuer did not authorize the credential (access_denied); ask for a new address")
	nobody.Do(http.MethodGet, "/credentials/callback?code=c&state="+given, nil).Detail(http.StatusBadRequest, refused)
	// An older secret's authorization gives nothing to a newer secret.
	given = state()
	s.Do(http.MethodPut, path, codeCredential).Want(http.StatusOK)
	nobody.Do(http.MethodGet, "/credentials/callback?code=c&state="+given, nil).Detail(http.StatusBadRequest, refused)
	given = state()
	_, err := s.reader().Exec(t.Context(), "UPDATE flow.credential_authorization SET expires_at = flow.clock()")
	require.NoError(t, err)
	nobody.Do(http.MethodGet, "/credentials/callback?code=c&state="+given, nil).Detail(http.StatusBadRequest, refused)
	// Who is let in no longer asked for nothing.
	made := s.Do(http.MethodPost, "/account/api-keys", `{"name":"leaves"}`).Want(http.StatusCreated).JSON()
	u, err := url.Parse(s.As(made["key"].(string)).Do(http.MethodPost, path+"/authorize",
		nil).Want(http.StatusOK).JSON()["url"].(string))
	require.NoError(t, err)
	s.Do(http.MethodDelete, "/account/api-keys/"+made["id"].(string), nil).Want(http.StatusNoContent)
	given = u.Query().Get("state")
	nobody.Do(http.MethodGet, "/credentials/callback?code=c&state="+given, nil).Detail(http.StatusBadRequest, refused)
	assert.Zero(t, s.count("flow.credential_authorization"))
	assert.Zero(t, s.count("flow.audit_log t WHERE t::text LIKE '%"+given+"%'"))
	assert.False(t, strings.Contains(string(s.Do(http.MethodGet, path, nil).Body), given))
}
