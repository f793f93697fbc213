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
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/api"
	"flowlane/internal/api/apitest"
	"flowlane/internal/catalog"
	"flowlane/internal/credential"
	"flowlane/internal/pg/pgtest"
	"flowlane/internal/provider"
	"flowlane/internal/provider/dialersim"
	"flowlane/internal/request"
	"flowlane/internal/tenant"
	"flowlane/internal/vault"
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
	count         int
	// answer answers all requests; nil for an account.
	answer http.HandlerFunc
}

func (l *lastRequest) use(answer http.HandlerFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

func (l *lastRequest) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

func (l *lastRequest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.header, l.query = r.Header.Get("X-Api-Token"), r.URL.Query().Get("key")
	l.count++
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
	b := &credentialBundle{pool: pgtest.New(t), sim: dialersim.New(dialersim.Options{}), log: &sink{}, keyed: &lastRequest{}}
	dialer, keyed := httptest.NewServer(b.sim), httptest.NewServer(b.keyed)
	b.dialer = dialer.URL
	t.Cleanup(func() { b.sim.Close(); dialer.Close(); keyed.Close() })
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keyed.yaml"), []byte(keyedPlatform), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := catalog.Load(catalog.Options{Dir: dir, BaseURLs: map[string]string{"dialer": dialer.URL, "keyed": keyed.URL}})
	if err != nil {
		t.Fatal(err)
	}
	kek, err := vault.LoadOrCreateKEK("", filepath.Join(dir, "kek"), bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := vault.Open(kek)
	if err != nil {
		t.Fatal(err)
	}
	sender := provider.NewSender(provider.Options{AllowHosts: []string{hostOf(dialer.URL), hostOf(keyed.URL)}})
	t.Cleanup(sender.Close)
	accounts := apitest.Accounts(t, b.pool)
	handler, err := api.New(api.Deps{
		Pool: b.pool, Accounts: accounts, Catalog: loaded, Answers: apitest.Answers(t, b.pool), Limits: request.NewLimits(b.pool, time.Now, slog.New(slog.DiscardHandler)), Now: time.Now,
		Log:         slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Credentials: credential.New(credential.Deps{Pool: b.pool, Vault: secrets, Catalog: loaded, Prober: sender, Now: time.Now, AllowHosts: []string{"sim:8080", "sim:80", "[fd00::1]:8080"}}),
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
	rows, err := b.pool.Query(t.Context(), `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('flow', 'river')`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 10 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		var found int
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" t WHERE t::text LIKE '%"+needle+"%' OR t::text LIKE '%"+hex.EncodeToString([]byte(needle))+"%'").Scan(&found)
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
	return with(keyedBody(object{"header_name": "Authorization", "scheme": "Bearer"}), "platform_id", "core", "allowed_origins", origins)
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

func TestCredentials_Lifecycle(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Name: "Acme", TimeZone: "America/New_York"})
	created, path := b.create(t, dialerBody("1001/ann", needle))
	tenancy := tenant.TenancyID("dialer", "1001")
	want := with(created, "org_id", b.mine.ID.String(), "created_by", b.mine.AccountID.String(), "name", "Main", "platform_id", "dialer",
		"auth_method", "basic_auth", "credentials_ref", "vault://"+created["id"].(string), "tenancy_id", tenancy,
		"tenant", object{"id": tenancy, "is_manual": false, "label": "Acme", "platform_id": "dialer"},
		"grant_type", nil, "token_url", nil, "audience", nil, "scopes", []any{}, "api_key_placement", nil,
		"aws_region", nil, "aws_default_bucket", nil, "aws_endpoint_url", nil, "allowed_origins", []any{b.dialer}, "status", "active", "last_verified", nil)
	if !reflect.DeepEqual(created, want) {
		t.Errorf("created %v\nwant %v", created, want)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); !reflect.DeepEqual(read, created) {
		t.Errorf("read %v\nwant %v", read, created)
	}
	tested := b.Do("POST", path+"/test", nil).Want(200).JSON()
	if tested["success"] != true || tested["error"] != nil || tested["details"] == "" {
		t.Errorf("test = %v", tested)
	}
	verified := b.Do("GET", path, nil).Want(200).JSON()
	if verified["last_verified"] != tested["tested_at"] {
		t.Errorf("last_verified %v, tested_at %v", verified["last_verified"], tested["tested_at"])
	}
	use := verified["telemetry"].(object)["dialer__api"].(object)
	if use["last_used_at"] == nil || use["last_succeeded_at"] == nil || use["last_stamped_at"] == nil || use["last_failed_at"] != nil || use["last_failure_class"] != nil {
		t.Errorf("telemetry = %v", use)
	}
	// What was read can be sent back; it sets what can be set, and nothing else.
	back := with(verified, "name", "Renamed", "credentials", object{"username": "1001/ann", "password": needle + "2"}, "tenancy_id", "dialer-0", "credentials_ref", 7)
	rotated := b.Do("PUT", path, back).Want(200).JSON()
	if want := with(verified, "name", "Renamed", "last_verified", nil, "telemetry", rotated["telemetry"]); !reflect.DeepEqual(rotated, want) {
		t.Errorf("rotated %v\nwant %v", rotated, want)
	}
}

func TestCredentials_List(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	var want []string
	for i := range 3 {
		c, path := b.create(t, dialerBody("1001", needle))
		want = append(want, c["id"].(string))
		if i == 1 {
			b.Do("PUT", path, with(dialerBody("", ""), "credentials", nil, "status", "revoked")).Want(200)
		}
	}
	b.As(b.other.Key).Do("POST", "/credentials", dialerBody("1001", needle)).Want(201)
	type list struct {
		Items []struct {
			ID        string
			Telemetry object
		}
		Total, Limit, Skip int
		NextCursor         *string `json:"next_cursor"`
	}
	get := func(query string) (l list) {
		b.Do("GET", "/credentials?"+query, nil).Want(200).Into(&l)
		return l
	}
	first := get("limit=2")
	if first.Total != 3 || first.Limit != 2 || first.NextCursor == nil || len(first.Items) != 2 || first.Items[0].ID != want[0] || len(first.Items[0].Telemetry) != 1 {
		t.Fatalf("first page = %+v", first)
	}
	second := get("limit=2&cursor=" + *first.NextCursor)
	if len(second.Items) != 1 || second.Items[0].ID != want[2] || second.NextCursor != nil || second.Total != 3 {
		t.Errorf("second page = %+v", second)
	}
	if revoked := get("status=revoked"); revoked.Total != 1 || revoked.Items[0].ID != want[1] {
		t.Errorf("revoked = %+v", revoked)
	}
	if skipped := get("skip=2"); len(skipped.Items) != 1 || skipped.Items[0].ID != want[2] || skipped.Skip != 2 {
		t.Errorf("skipped = %+v", skipped)
	}
	b.Do("GET", "/credentials?status=active&cursor="+*first.NextCursor, nil).Detail(400, "Invalid cursor")
	b.Do("GET", "/credentials?status=gone", nil).Invalid("query.status enum")
}

func TestCredentials_Isolation(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	created, path := b.create(t, dialerBody("1001", needle))
	other := b.As(b.other.Key)
	for _, p := range []string{path, "/credentials/" + uuid.NewString(), "/credentials/x", "/credentials/" + strings.ToUpper(created["id"].(string))} {
		other.Do("GET", p, nil).Detail(404, "Credential not found")
		other.Do("PUT", p, dialerBody("1001", needle)).Detail(404, "Credential not found")
		other.Do("POST", p+"/test", nil).Detail(404, "Credential not found")
	}
	var list struct{ Total int }
	if other.Do("GET", "/credentials", nil).Want(200).Into(&list); list.Total != 0 {
		t.Errorf("another organization sees %d credentials", list.Total)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); !reflect.DeepEqual(read, created) {
		t.Errorf("read %v\nwant %v", read, created)
	}
	b.As("").Do("GET", path, nil).Detail(401, "Authentication required")
}

func TestCredentials_CreateRefused(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	ok := dialerBody("1001", needle)
	header := keyedBody(object{"header_name": "X-Api-Token"})
	for name, tc := range map[string]struct {
		body any
		want []string
	}{
		"nothing":            {object{}, []string{"body.auth_method missing", "body.credentials missing", "body.name missing", "body.platform_id missing"}},
		"unknown field":      {with(ok, "secret", needle), []string{"body.secret extra_forbidden"}},
		"null name":          {with(ok, "name", nil), []string{"body.name null_not_allowed"}},
		"null credentials":   {with(ok, "credentials", nil), []string{"body.credentials null_not_allowed"}},
		"null status":        {with(ok, "status", nil), []string{"body.status null_not_allowed"}},
		"null scopes":        {with(ok, "scopes", nil), []string{"body.scopes null_not_allowed"}},
		"missing password":   {with(ok, "credentials", object{"username": needle}), []string{"body.credentials.password missing"}},
		"unknown secret":     {with(ok, "credentials", object{"username": "1001", "password": needle, "pin": needle}), []string{"body.credentials.pin extra_forbidden"}},
		"secret is a number": {with(ok, "credentials", object{"username": "1001", "password": 7}), []string{"body.credentials.password string_type"}},
		"secret is a list":   {with(ok, "credentials", []string{needle}), []string{"body.credentials object_type"}},
		"unsupported method": {with(ok, "auth_method", "kerberos"), []string{"body.auth_method enum"}},
		"other method":       {with(header, "platform_id", "dialer"), []string{"body.auth_method value_error"}},
		"no placement":       {with(header, "api_key_placement", nil), []string{"body.api_key_placement missing"}},
		"both placements":    {with(header, "api_key_placement", object{"header_name": "X-A", "query_param": "a"}), []string{"body.api_key_placement value_error"}},
		"scheme alone":       {with(header, "api_key_placement", object{"scheme": "Bearer", "query_param": "a"}), []string{"body.api_key_placement.scheme value_error"}},
		"unknown placement":  {with(header, "api_key_placement", object{"cookie": "a"}), []string{"body.api_key_placement.cookie extra_forbidden"}},
		"NUL":                {with(ok, "credentials", object{"username": "1001", "password": needle + "\x00"}), []string{"body.credentials.password value_error"}},
	} {
		t.Log(name)
		b.Do("POST", "/credentials", tc.body).Invalid(tc.want...)
	}
	b.Do("POST", "/credentials", with(ok, "platform_id", "nowhere")).Detail(404, "Platform not found")
	b.mustNotLeak(t)
}

func TestCredentials_Placement(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	created, path := b.create(t, keyedBody(object{"header_name": "X-Api-Token", "scheme": "Token", "query_param": nil}))
	if got := created["api_key_placement"]; !reflect.DeepEqual(got, object{"header_name": "X-Api-Token", "scheme": "Token", "query_param": nil}) {
		t.Errorf("placement = %v", got)
	}
	if b.keyed.header != "Token "+needle+"-key" || b.keyed.query != "" || created["tenancy_id"] != tenant.TenancyID("keyed", "k-1") {
		t.Errorf("the platform saw header %q, query %q; created %v", b.keyed.header, b.keyed.query, created)
	}
	b.Do("PUT", path, with(keyedBody(object{"query_param": "key"}), "credentials", absent)).Invalid("body.credentials missing")
	b.Do("PUT", path, keyedBody(object{"query_param": "key"})).Want(200)
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true || b.keyed.query != needle+"-key" || b.keyed.header != "" {
		t.Errorf("test %v; the platform saw header %q, query %q", tested, b.keyed.header, b.keyed.query)
	}
	b.mustNotLeak(t)
}

func TestCredentials_PlainHTTP(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	created, path := b.create(t, coreBody("https://api.example"))
	if created["tenancy_id"] != nil || created["tenant"] != nil || len(created["telemetry"].(object)) != 0 {
		t.Errorf("created = %v", created)
	}
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != false || tested["error"] != "UNKNOWN" || tested["details"] == "" {
		t.Errorf("test = %v", tested)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); len(read["telemetry"].(object)) != 0 {
		t.Errorf("a use that never was is recorded: %v", read)
	}
	b.mustNotLeak(t)
}

func TestCredentials_Rotation(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr(needle)})
	created, path := b.create(t, dialerBody("1001/ann", needle))
	b.Do("POST", path+"/test", nil).Want(200)
	before := b.Do("GET", path, nil).Want(200).JSON()
	body := with(dialerBody("1001/ann", needle), "name", "Changed", "status", "expired")
	for name, tc := range map[string]struct {
		body   object
		status int
	}{
		"another account":  {with(body, "credentials", object{"username": "2002", "password": needle}), 409},
		"another user":     {with(body, "credentials", object{"username": "1001/bob", "password": needle}), 409},
		"another platform": {with(body, "platform_id", "keyed"), 400},
		"missing field":    {with(body, "credentials", object{}), 422},
		"unknown field":    {with(body, "kek", 1), 422},
		"null name":        {with(body, "name", nil), 422},
	} {
		b.Do("PUT", path, tc.body).Want(tc.status)
		if after := b.Do("GET", path, nil).Want(200).JSON(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s changed it: %v\nbefore %v", name, after, before)
		}
		if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true {
			t.Errorf("%s changed the secret: %v", name, tested)
		}
		before = b.Do("GET", path, nil).Want(200).JSON()
	}
	// A provider that does not know the new secret yet is no mismatch.
	rotated := b.Do("PUT", path+"?verify=false", with(body, "status", absent, "credentials", object{"username": "1001/ann", "password": needle + "-new"})).Want(200).JSON()
	if rotated["tenancy_id"] != created["tenancy_id"] || rotated["last_verified"] != nil || rotated["status"] != "active" || rotated["credentials_ref"] != created["credentials_ref"] {
		t.Errorf("rotated = %v", rotated)
	}
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != false || tested["error"] != "AUTH_FAILED" {
		t.Errorf("test = %v", tested)
	}
	b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr(needle + "-new")})
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true {
		t.Errorf("test = %v", tested)
	}
	b.mustNotLeak(t)
}

func TestCredentials_TestFailures(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr("something else")})
	created := b.Do("POST", "/credentials?verify=false", dialerBody("1001", needle)).Want(201).JSON()
	path := "/credentials/" + created["id"].(string)
	if created["tenancy_id"] != nil || created["tenant"] != nil {
		t.Errorf("created = %v", created)
	}
	for _, tc := range []struct {
		arrange func()
		want    string
	}{
		{func() {}, "AUTH_FAILED"},
		{func() {
			b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr(needle), Suspended: ptr(true)})
		}, "PERMISSION_DENIED"},
		{func() {
			b.sim.SetAccount("1001", dialersim.AccountSettings{Suspended: ptr(false)})
			b.sim.AddFault(dialersim.Fault{Kind: "over_limit", Operation: "whoami"})
		}, "RATE_LIMITED"},
		{func() { b.sim.AddFault(dialersim.Fault{Kind: "cut_before", Operation: "whoami"}) }, "NETWORK"},
		{func() { b.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "whoami", Status: 502}) }, "UNKNOWN"},
		{func() { b.sim.AddFault(dialersim.Fault{Kind: "garbage_body", Operation: "whoami"}) }, "UNKNOWN"},
	} {
		tc.arrange()
		tested := b.Do("POST", path+"/test", nil).Want(200).JSON()
		if tested["success"] != false || tested["error"] != tc.want || tested["details"] == "" || tested["tested_at"] == nil {
			t.Errorf("test = %v, want %s", tested, tc.want)
		}
		read := b.Do("GET", path, nil).Want(200).JSON()
		if use := read["telemetry"].(object)["dialer__api"].(object); use["last_failure_class"] != tc.want || use["last_succeeded_at"] != nil || read["last_verified"] != nil {
			t.Errorf("after %s: %v", tc.want, read)
		}
	}
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true {
		t.Errorf("test = %v", tested)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); read["tenancy_id"] != tenant.TenancyID("dialer", "1001") {
		t.Errorf("the account is not bound: %v", read)
	}
	b.mustNotLeak(t)
}
