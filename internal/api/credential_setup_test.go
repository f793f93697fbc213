package api_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/api"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/vault"
	"flowlane/internal/request"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// needle is part of every secret of these tests: wherever it shows up, a secret leaked.
const needle = "n33dle"

// keyedPlatform takes API keys; it is served by keyedServer.
const keyedPlatform = `
id: keyed
name: Keyed
description: Takes API keys.
status: active
docs_url: https://keyed.example/docs
account:
  time_zone: Europe/Berlin
  whoami: {path: /me, account_number: id}
services:
  - id: keyed__api
    name: API
    description: Takes API keys.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://api.keyed.example
    docs_url: https://keyed.example/docs
    requires_connection: true
    status: active
    credential_fields:
      - {name: api_key, label: Key, type: password, required: true, secret: true}
    actions: []
`

// shopPlatform has an address for each shop.
const shopPlatform = `
id: shops
name: Shops
description: Has an address for each shop.
status: active
labels:
  shop: {field: shop}
services:
  - id: shops__api
    name: API
    description: Takes API keys.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://{shop}.shops.example/admin
    requires_connection: true
    status: active
    credential_fields:
      - {name: api_key, label: Key, type: password, required: true, secret: true}
      - {name: shop, label: Shop, type: string, required: true, secret: false}
    actions: []
`

// waysPlatform takes several methods, and says how each is sent; it is served by keyedServer.
const waysPlatform = `
id: ways
name: Ways
description: Takes several methods.
status: active
services:
  - id: ways__api
    name: API
    description: Takes several methods.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://api.ways.example
    requires_connection: true
    status: active
    check: /me
    headers: {revision: "2026-07-15"}
    sign_in: {header: Authorization, scheme: Ways-API-Key}
    credential_fields:
      - {name: api_key, label: Key, type: password, required: true, secret: true}
    other_auth:
      - auth_method: basic_auth
        username: "{email}/token"
        password: "{token}"
        credential_fields:
          - {name: email, label: Email, type: string, required: true, secret: false}
          - {name: token, label: Token, type: password, required: true, secret: true}
    actions: []
`

type credentialBundle struct {
	*apitest.Client
	pool  *pgxpool.Pool
	sim   *dialersim.Sim
	mine  apitest.Tenant
	other apitest.Tenant
	log   *sink
	// keyed is what the platform with API keys saw last.
	keyed *lastRequest
	// dialer is where the dialer is.
	dialer string
	// answers are the bodies of all answers.
	answers strings.Builder
}

// Do is Client.Do, which also keeps the answer for mustNotLeak.
func (b *credentialBundle) Do(method, path string, body any) apitest.Response {
	res := b.Client.Do(method, path, body)
	b.answers.Write(res.Body)
	return res
}

// sink keeps what is logged.
type sink struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

type lastRequest struct {
	mu            sync.Mutex
	header, query string
	all           http.Header
	count         int
	// answer answers all requests; nil for an account.
	answer http.HandlerFunc
}

func (l *lastRequest) use(answer http.HandlerFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// headers are those of the last request.
func (l *lastRequest) headers() http.Header {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

func (l *lastRequest) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

func (l *lastRequest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.header, l.query = r.Header.Get("X-Api-Token"), r.URL.Query().Get("key")
	l.count, l.all = l.count+1, r.Header.Clone()
	answer := l.answer
	l.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	_, _ = fmt.Fprint(w, `{"id": "k-1"}`)
}

func setupCredentials(t *testing.T) *credentialBundle {
	t.Helper()
	b := &credentialBundle{pool: pgtest.New(t), sim: dialersim.New(dialersim.Options{}), log: &sink{},
		keyed: &lastRequest{}}
	dialer, keyed := httptest.NewServer(b.sim), httptest.NewServer(b.keyed)
	b.dialer = dialer.URL
	t.Cleanup(func() { b.sim.Close(); dialer.Close(); keyed.Close() })
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keyed.yaml"), []byte(keyedPlatform), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "shops.yaml"), []byte(shopPlatform), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ways.yaml"), []byte(waysPlatform), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := catalog.Load(catalog.Options{Dir: dir,
		BaseURLs: map[string]string{"dialer": dialer.URL, "keyed": keyed.URL, "ways": keyed.URL}})
	if err != nil {
		t.Fatal(err)
	}
	kek, err := vault.LoadOrCreateKEK("", filepath.Join(dir, "kek"), bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := vault.New(kek)
	if err != nil {
		t.Fatal(err)
	}
	sender := provider.NewSender(provider.Options{AllowHosts: []string{hostOf(dialer.URL), hostOf(keyed.URL)}})
	t.Cleanup(sender.Close)
	accounts := apitest.Accounts(t, b.pool)
	handler, err := api.New(api.Deps{
		Pool: b.pool, Accounts: accounts, Catalog: loaded, Answers: apitest.Answers(t,
			b.pool), Limits: request.NewLimits(b.pool, time.Now,
			slog.New(slog.DiscardHandler)), Now: time.Now,
		Log: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Credentials: credential.New(credential.Deps{Pool: b.pool, Vault: secrets, Catalog: loaded, Prober: sender,
			Now: time.Now, AllowHosts: []string{"sim:8080", "sim:80", "[fd00::1]:8080"}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.mine, b.other = apitest.NewTenant(t, b.pool, accounts, "Mine"), apitest.NewTenant(t, b.pool, accounts, "Other")
	b.Client = apitest.Serve(t, handler, b.mine.Key)
	return b
}

func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

// mustNotLeak looks for secrets in answers, logs and every table.
func (b *credentialBundle) mustNotLeak(t *testing.T) {
	t.Helper()
	if strings.Contains(b.answers.String(), needle) {
		t.Errorf("a secret is in an answer: %s", b.answers.String())
	}
	log := b.log.String()
	if !strings.Contains(log, "/v1/credentials") {
		t.Error("nothing was logged, so that the search of the log shows nothing")
	}
	if strings.Contains(log, needle) {
		t.Errorf("a secret is in the log: %s", log)
	}
	rows, err := b.pool.Query(t.Context(),
		`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('flow', 'river')`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 10 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		var found int
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" t WHERE t::text LIKE '%"+needle+
			"%' OR t::text LIKE '%"+hex.EncodeToString([]byte(needle))+"%'").Scan(&found)
		if err != nil || found > 0 {
			t.Errorf("a secret is in %s (%d rows), %v", table, found, err)
		}
	}
}

func ptr[T any](v T) *T { return &v }

type object = map[string]any

func dialerBody(user, password string) object {
	return object{
		"name": "Main", "platform_id": "dialer", "auth_method": "basic_auth",
		"credentials": object{"username": user, "password": password},
	}
}

func keyedBody(placement object) object {
	return object{
		"name": "Key", "platform_id": "keyed", "auth_method": "api_key",
		"credentials": object{"api_key": needle + "-key"}, "api_key_placement": placement,
	}
}

func coreBody(origins ...string) object {
	return with(keyedBody(object{"header_name": "Authorization", "scheme": "Bearer"}), "platform_id", "core",
		"allowed_origins", origins)
}

// with returns a copy of body with these fields set; the value absent leaves one out.
func with(body object, pairs ...any) object {
	out := object{}
	for k, v := range body {
		out[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		if out[pairs[i].(string)] = pairs[i+1]; pairs[i+1] == absent {
			delete(out, pairs[i].(string))
		}
	}
	return out
}

type nothing struct{}

var absent = nothing{}

// create returns a new credential and its path.
func (b *credentialBundle) create(t *testing.T, body object) (object, string) {
	t.Helper()
	c := b.Do("POST", "/credentials", body).Want(201).JSON()
	return c, "/credentials/" + c["id"].(string)
}
