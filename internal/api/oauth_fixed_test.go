package api_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// assertionServer is an issuer that has assertions verified by the package jose, and the API that its tokens open. It
// takes a client in the body alone. Its first argument is the public key of the client app.
const assertionServer = `
const jose = require("jose"), express = require("express")
const { OAuth2Server } = require("oauth2-mock-server")
const server = new OAuth2Server()
const seen = []
const at = () => "http://127.0.0.1:" + server.address().port
server.service.on("beforeResponse", (answer, req) => {
  seen.push([req.body.grant_type, req.body.client_id, req.headers.authorization || ""])
  Object.assign(answer.body, { instance_url: at(), refresh_token: "next-" + seen.length })
})
const app = server.service.requestHandler
app.post("/assert", express.urlencoded({ extended: false }), async (req, res) => {
  try {
    if (req.body.grant_type !== "urn:ietf:params:oauth:grant-type:jwt-bearer" || req.headers.authorization) throw new Error("request")
    const key = await jose.importSPKI(process.argv[1], "RS256")
    const { payload } = await jose.jwtVerify(req.body.assertion, key,
      { issuer: "app", audience: "https://login.forces.example", algorithms: ["RS256"], maxTokenAge: "5m", requiredClaims: ["exp", "sub"] })
    seen.push([req.body.grant_type, req.body.scope, payload.sub])
    res.json({ access_token: "good", token_type: "Bearer", instance_url: payload.sub === "evil" ? "http://evil.example" : at() })
  } catch (e) {
    res.status(400).json({ error: "invalid_grant", error_description: e.message })
  }
})
app.get("/seen", (req, res) => res.json(seen))
app.get(["/api/me", "/api/things"], (req, res) =>
  res.status(/^Bearer (good$|ey)/.test(req.headers.authorization) ? 200 : 401).json({ region: req.headers["x-region"] }))
server.issuer.keys.generate("RS256").then(() => server.start(0, "127.0.0.1")).then(() => console.log(server.address().port))`

// forcesPlatform fixes where its tokens come from, and has them say where it is.
const forcesPlatform = `
id: forces
name: Forces
description: Fixes how tokens are had.
status: active
labels:
  instance: {token: instance_url, match: 'http://(127\.0\.0\.[0-9]+):PORT', values: [127.0.0.1]}
  login: {field: login, values: [127.0.0.1], default: 127.0.0.1}
  region: {field: region, default: eu}
services:
  - id: forces__api
    name: API
    description: Things.
    kind: api
    protocol: REST
    auth_method: oauth2
    sign_in: {grant_type: jwt_bearer, token_url: "http://{login}:PORT/assert", audience: "https://login.forces.example", scopes: [api], client_in: body}
    headers: {x-region: "zone-{region}"}
    base_url: http://{instance}:PORT/api
    requires_connection: true
    status: active
    check: /me
    credential_fields:
      - {name: issuer, label: Client id, type: string, required: true, secret: false}
      - {name: subject, label: User, type: string, required: true, secret: false}
      - {name: algorithm, label: Algorithm, type: string, required: true, secret: false}
      - {name: key, label: Private key, type: password, required: true, secret: true}
      - &login {name: login, label: Login host, type: string, required: false, secret: false}
      - &region {name: region, label: Region, type: string, required: false, secret: false}
    other_auth:
      - auth_method: oauth2
        grant_type: authorization_code
        token_url: http://{login}:PORT/token
        authorize_url: http://{login}:PORT/authorize?prompt=consent
        scopes: [api, offline]
        credential_fields: [{name: client_id, label: Client id, type: string, required: true, secret: false}, *login, *region]
    actions:
      - id: forces__api__get
        name: Get
        description: Gets things.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, properties: {}}
        call: {method: GET, path: /things, answer: {success: [200]}}
`

type fixedBundle struct {
	*stack
	at, key string
}

// setupFixed is a stack with the platform above and the private key of its client.
func setupFixed(t *testing.T) *fixedBundle {
	t.Helper()
	private, public := keyPair(t)
	b := &fixedBundle{key: private}
	host := "127.0.0.1:" + servers.Start(t, assertionServer, public)
	b.at = "http://" + host
	dir := t.TempDir()
	text := strings.ReplaceAll(forcesPlatform, "PORT", host[strings.LastIndex(host, ":")+1:])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "forces.yaml"), []byte(text), 0o600))
	b.stack = serveStack(t, true, func(c *app.Config) { c.AllowHosts, c.CatalogDir = append(c.AllowHosts, host), dir })
	return b
}

func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	own, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	other, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("PRIVATE KEY", own), text("PUBLIC KEY", other)
}

func (b *fixedBundle) body(subject string, fields ...any) object {
	secret := object{"issuer": "app", "subject": subject, "algorithm": "RS256", "key": b.key}
	return object{"name": "app", "platform_id": "forces", "auth_method": "oauth2", "credentials": with(secret,
		fields...)}
}

// call runs a flow that makes one call, and returns its job.
func (b *fixedBundle) call(credential string) object {
	b.t.Helper()
	b.credential = credential
	flow := b.define(`[{"id":"s","tasks":[{"id":"t","action_id":"forces__api__get","credential_id":"CRED","params":{}}]}]`)
	batch := b.trigger(flow, `{"records":[{}]}`)
	b.await(batch)
	return b.get("/flows/jobs/" + batch + ".0")
}

func (b *fixedBundle) seen() (out [][]string) {
	b.t.Helper()
	res, err := http.Get(b.at + "/seen")
	require.NoError(b.t, err)
	defer res.Body.Close()
	require.NoError(b.t, json.NewDecoder(res.Body).Decode(&out))
	return out
}

// TestOAuthFixed_Assertion: the catalog says where an assertion goes and for whom it is; the answer says where the API
// is.
func TestOAuthFixed_Assertion(t *testing.T) {
	t.Parallel()
	b := setupFixed(t)
	made := b.Do(http.MethodPost, "/credentials", b.body("ann", "region", "us2")).Want(http.StatusCreated).JSON()
	shown := strings.Replace(b.at, "127.0.0.1", "*", 1) + "/assert"
	assert.Equal(t, []any{"jwt_bearer", shown, "https://login.forces.example", []any{"api"}, nil},
		[]any{made["grant_type"], made["token_url"], made["audience"], made["scopes"], made["authorize_url"]})
	path := "/credentials/" + made["id"].(string)
	job := b.call(made["id"].(string))
	assert.Equal(t, "completed", job["status"], job["error"])
	assert.Equal(t, "zone-us2", job["output"].(object)["region"])
	for _, request := range b.seen() {
		assert.Equal(t, []string{"urn:ietf:params:oauth:grant-type:jwt-bearer", "api", "ann"}, request)
	}
	// What was read may be sent back; nothing else may be said of it.
	b.Do(http.MethodPut, path, with(made, "name", "renamed")).Want(http.StatusOK)
	b.Do(http.MethodPut, path, with(made, "token_url", "https://evil.example/token")).Invalid(
		"body.token_url value_error")
	b.Do(http.MethodPost, "/credentials", with(b.body("ann"), "token_url", b.at+"/assert", "audience", "x")).
		Invalid("body.token_url value_error", "body.audience value_error")
	// No field leads the secret elsewhere.
	b.Do(http.MethodPost, "/credentials", b.body("ann", "login", "evil.example")).Invalid(
		"body.credentials.login value_error")
	b.Do(http.MethodPost, "/credentials", b.body("ann", "region", "eu\r\nX-Other: 1")).Invalid(
		"body.credentials.region value_error")
	// Another key, or another issuer, is refused by whoever verifies.
	other, _ := keyPair(t)
	b.Do(http.MethodPost, "/credentials", b.body("ann", "key", other)).Invalid("body.credentials value_error")
	b.Do(http.MethodPost, "/credentials", b.body("ann", "issuer", "another")).Invalid("body.credentials value_error")
	// An address outside of the pattern gets nothing.
	evil := b.Do(http.MethodPost, "/credentials?verify=false", b.body("evil")).Want(http.StatusCreated).JSON()
	job = b.call(evil["id"].(string))
	assert.Equal(t, "failed", job["status"])
	assert.Contains(t, job["error"].(object)["provider_message"], "does not name an address like http://{instance}")
}

// TestOAuthFixed_Person: a client without a secret is authorized by a person at the catalog's addresses.
func TestOAuthFixed_Person(t *testing.T) {
	t.Parallel()
	b := setupFixed(t)
	body := object{"name": "app", "platform_id": "forces", "auth_method": "oauth2",
		"credentials": object{"client_id": "public"}}
	b.Do(http.MethodPost, "/credentials", body).Want(http.StatusUnprocessableEntity)
	b.Do(http.MethodPost, "/credentials", with(body, "grant_type", "password")).Invalid("body.grant_type value_error")
	body["grant_type"] = "authorization_code"
	made := b.Do(http.MethodPost, "/credentials", with(body, "scopes", []string{"api"})).Want(http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	b.Do(http.MethodPut, path, body).Want(http.StatusOK)
	consent := b.Do(http.MethodPost, path+"/authorize", nil).Want(http.StatusOK).JSON()
	address, err := url.Parse(consent["url"].(string))
	require.NoError(t, err)
	assert.Equal(t, b.at+"/authorize", address.Scheme+"://"+address.Host+address.Path)
	assert.Equal(t, []string{"api offline", "consent"}, []string{address.Query().Get("scope"),
		address.Query().Get("prompt")})
	browse(t, consent["url"].(string), http.StatusOK)
	job := b.call(made["id"].(string))
	assert.Equal(t, "completed", job["status"], job["error"])
	assert.Equal(t, [][]string{{"authorization_code", "public", ""}}, b.seen())

	var ways []any
	for _, way := range b.get("/catalog/services/forces__api")["auth_methods"].([]any) {
		ways = append(ways, way.(object)["grant_type"])
	}
	assert.Equal(t, []any{"jwt_bearer", "authorization_code"}, ways)
}
