package credential_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/tenant"
	"flowlane/internal/platform/vault"
	"flowlane/test/pgtest"
)

// keyedPlatform takes API keys and can tell accounts; plainPlatform takes them and cannot.
const keyedPlatform = `
id: keyed
name: Keyed
description: Takes API keys.
status: active
docs_url: https://keyed.example/docs
account:
  time_zone: Europe/Berlin
  whoami: {path: /me, account_number: id, account_name: name, time_zone: zone}
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
      - {name: note, label: Note, type: string, required: false, secret: false}
    actions: []
`

// prober stands for the platforms.
type prober struct {
	mu    sync.Mutex
	calls int
	reply func(secret provider.Secret) (provider.Account, error)
}

func (p *prober) Whoami(_ context.Context, _ *catalog.Platform, _ *catalog.Service,
	secret provider.Secret) (provider.Account, error) {
	p.mu.Lock()
	p.calls++
	reply := p.reply
	p.mu.Unlock()
	return reply(secret)
}

func (p *prober) answer(account provider.Account) {
	p.set(func(provider.Secret) (provider.Account, error) { return account, nil })
}

func (p *prober) refuse(class string) {
	p.set(func(provider.Secret) (provider.Account, error) {
		return provider.Account{}, &provider.ProbeError{Class: class, Details: "It went wrong."}
	})
}

func (p *prober) set(reply func(provider.Secret) (provider.Account, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reply = reply
}

// carries tells whether an outgoing secret is that of the user ann with this password. Only a request shows it.
func carries(t testing.TB, secret provider.Secret, password string) bool {
	t.Helper()
	var user, got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, got, _ = r.BasicAuth()
		_, _ = io.WriteString(w, `{"account_number": "1"}`)
	}))
	defer server.Close()
	sender := provider.NewSender(provider.Options{AllowHosts: []string{strings.TrimPrefix(server.URL, "http://")}})
	defer sender.Close()
	platform := &catalog.Platform{Account: &catalog.Account{Whoami: catalog.Probe{Question: catalog.Question{Path: "/"},
		AccountNumber: "account_number"}}}
	service := &catalog.Service{PlatformID: "dialer", BaseURL: server.URL, AuthMethod: credential.BasicAuth}
	if _, err := sender.Whoami(context.Background(), platform, service, secret); err != nil {
		t.Fatal(err)
	}
	return user == "ann" && got == password
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type bundle struct {
	pool    *pgxpool.Pool
	prober  *prober
	clock   *clock
	service *credential.Service
	vault   *vault.Vault
	org     uuid.UUID
}

var acme = provider.Account{Number: "1001", Name: "Acme", TimeZone: "America/New_York"}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{pool: pgtest.New(t), prober: &prober{}, clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0,
		time.UTC)}}
	b.prober.answer(acme)
	kek, err := vault.LoadKEK(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)), "")
	if err != nil {
		t.Fatal(err)
	}
	if b.vault, err = vault.New(kek); err != nil {
		t.Fatal(err)
	}
	b.service = b.newService(t)
	b.org = b.addOrg(t)
	return b
}

// newService is another process on the same database.
func (b *bundle) newService(t testing.TB) *credential.Service {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keyed.yaml"), []byte(keyedPlatform), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := catalog.Load(catalog.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return credential.New(credential.Deps{Pool: b.pool, Vault: b.vault, Catalog: loaded, Prober: b.prober,
		Now: b.clock.Now})
}

func (b *bundle) addOrg(t testing.TB) (id uuid.UUID) {
	t.Helper()
	err := pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		org, err := account.CreateOrg(ctx, tx, "Org")
		id = org.ID
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func basic(password string) credential.Input {
	return credential.Input{
		Name: "Main", PlatformID: "dialer", AuthMethod: credential.BasicAuth,
		Secret: fmt.Appendf(nil, `{"username": "ann", "password": %q}`, password),
	}
}

func ptr[T any](v T) *T { return &v }

func keyed(key string) credential.Input {
	return credential.Input{
		Name: "Key", PlatformID: "keyed", AuthMethod: credential.APIKey, Secret: fmt.Appendf(nil, `{"api_key": %q}`,
			key),
		Placement: &credential.Placement{HeaderName: ptr("Authorization"), Scheme: ptr("Bearer")},
	}
}

func (b *bundle) create(t testing.TB, in credential.Input) *credential.Credential {
	t.Helper()
	c, err := b.service.Create(t.Context(), b.org, "account-1", in)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// password is the one that is stored now.
func (b *bundle) password(t testing.TB, id uuid.UUID) string {
	t.Helper()
	plain, _, err := b.vault.Get(t.Context(), b.pool, b.org, id)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]string
	if err := json.Unmarshal(plain, &fields); err != nil {
		t.Fatal(err)
	}
	return fields["password"]
}

func wantFault(t testing.TB, err error, code fault.Code) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Fatalf("err = %v, want %s", err, code)
	}
	return f
}

func TestCreate_IdentifiesTheAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("hunter2"))
	if c.TenancyID == nil || *c.TenancyID != tenant.TenancyID("dialer", "1001") || c.AccountLabel != "Acme" {
		t.Errorf("tenancy %v, label %q", c.TenancyID, c.AccountLabel)
	}
	if c.Status != credential.Active || c.LastVerified != nil || c.CreatedBy != "account-1" || c.Ref() != "vault://"+
		c.ID.String() {
		t.Errorf("credential = %+v", c)
	}
	if len(c.Uses) != 1 || c.Uses[0].ServiceID != "dialer__api" || c.Uses[0].LastSucceededAt == nil ||
		c.Uses[0].LastFailedAt != nil {
		t.Errorf("uses = %+v", c.Uses)
	}
	var zone, number string
	row := b.pool.QueryRow(t.Context(), "SELECT time_zone, account_number FROM flow.domain WHERE tenancy_id = $1",
		c.TenancyID)
	if err := row.Scan(&zone, &number); err != nil || zone != "America/New_York" || number != "1001" {
		t.Errorf("domain: zone %q, number %q, %v", zone, number, err)
	}
	// Another organization with the same account shares the row, and sees only its own credential.
	other := b.addOrg(t)
	b.prober.answer(provider.Account{Number: "1001", Name: "Acme Ltd", TimeZone: "Nowhere/Land"})
	twin, err := b.service.Create(t.Context(), other, "account-2", basic("other"))
	if err != nil || *twin.TenancyID != *c.TenancyID || twin.AccountLabel != "Acme Ltd" {
		t.Errorf("twin = %+v, %v", twin, err)
	}
	if err := b.pool.QueryRow(t.Context(), "SELECT time_zone FROM flow.domain").Scan(&zone); err != nil ||
		zone != "UTC" {
		t.Errorf("zone after an unknown one = %q, %v; want the catalog's", zone, err)
	}
	_, err = b.service.Read(t.Context(), other, c.ID)
	wantFault(t, err, fault.NotFound)
}

func TestCreate_PlatformRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.prober.refuse(provider.AuthFailed)
	in := basic("hunter2")
	_, err := b.service.Create(t.Context(), b.org, "account-1", in)
	wantFault(t, err, fault.Unprocessable)
	in.Unverified = true
	c := b.create(t, in)
	if c.TenancyID != nil || c.AccountLabel != "" {
		t.Errorf("tenancy %v, label %q", c.TenancyID, c.AccountLabel)
	}
	if len(c.Uses) != 1 || c.Uses[0].LastFailureClass == nil || *c.Uses[0].LastFailureClass != "AUTH_FAILED" ||
		c.Uses[0].LastSucceededAt != nil {
		t.Errorf("uses = %+v", c.Uses)
	}
	// Any secret may follow while the account is unknown; the first success binds it.
	in = basic("right")
	in.Secret = []byte(`{"username": "bob", "password": "right"}`)
	b.prober.answer(acme)
	c, err = b.service.Replace(t.Context(), b.org, c.ID, in)
	if err != nil || c.TenancyID == nil {
		t.Errorf("tenancy %v, %v", c.TenancyID, err)
	}
}

func TestCreate_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const needle = "needle-secret"
	with := func(in credential.Input, change func(*credential.Input)) credential.Input {
		change(&in)
		return in
	}
	secret := func(text string) credential.Input {
		return with(basic(needle), func(in *credential.Input) { in.Secret = []byte(text) })
	}
	place := func(p *credential.Placement) credential.Input {
		return with(keyed(needle), func(in *credential.Input) { in.Placement = p })
	}
	for name, tc := range map[string]struct {
		in   credential.Input
		want string // places and types
	}{
		"no secret":        {secret(""), "body.credentials object_type"},
		"missing password": {secret(`{"username": "ann"}`), "body.credentials.password missing"},
		"missing both":     {secret(`{}`), "body.credentials.username missing, body.credentials.password missing"},
		"null password": {secret(`{"username": "ann", "password": null}`),
			"body.credentials.password null_not_allowed"},
		"number": {secret(`{"username": "ann", "password": 12345}`), "body.credentials.password string_type"},
		"empty": {secret(`{"username": "", "password": "needle-secret"}`),
			"body.credentials.username string_too_short"},
		"line break": {secret(`{"username": "ann", "password": "needle-secret\r\nX: y"}`),
			"body.credentials.password value_error"},
		"colon": {secret(`{"username": "a:b", "password": "needle-secret"}`),
			"body.credentials.username value_error"},
		"too long": {secret(`{"username": "ann", "password": "` + strings.Repeat("x", 20000) + `"}`),
			"body.credentials.password string_too_long"},
		"unknown field": {secret(`{"username": "ann", "password": "needle-secret", "pin": "needle-secret"}`),
			"body.credentials.pin extra_forbidden"},
		"other method": {with(keyed(needle), func(in *credential.Input) { in.PlatformID = "dialer" }),
			"body.auth_method value_error"},
		"core, bad method": {with(basic(needle), func(in *credential.Input) {
			in.PlatformID, in.AuthMethod = "core",
				"none"
		}), "body.auth_method value_error"},
		"core, no key": {with(keyed(needle), func(in *credential.Input) {
			in.PlatformID, in.Origins, in.Secret = "core", []string{"https://api.example"}, []byte("{}")
		}), "body.credentials.api_key missing"},
		"core, no origin": {with(keyed(needle), func(in *credential.Input) { in.PlatformID = "core" }),
			"body.allowed_origins missing"},
		"origins of another": {with(basic(needle),
			func(in *credential.Input) { in.Origins = []string{"https://api.example"} }),
			"body.allowed_origins value_error"},
		"unsupported method": {with(basic(needle), func(in *credential.Input) { in.AuthMethod = "oauth2" }),
			"body.auth_method value_error"},
		"stray placement": {with(basic(needle), func(in *credential.Input) { in.Placement = keyed("").Placement }),
			"body.api_key_placement value_error"},
		"no placement":    {place(nil), "body.api_key_placement missing"},
		"empty placement": {place(&credential.Placement{}), "body.api_key_placement value_error"},
		"two placements": {place(&credential.Placement{HeaderName: ptr("X-Key"), QueryParam: ptr("key")}),
			"body.api_key_placement value_error"},
		"scheme with query": {place(&credential.Placement{QueryParam: ptr("key"), Scheme: ptr("Bearer")}),
			"body.api_key_placement.scheme value_error"},
		"bad header": {place(&credential.Placement{HeaderName: ptr("X Key")}),
			"body.api_key_placement.header_name value_error"},
		"reserved header": {place(&credential.Placement{HeaderName: ptr("content-length")}),
			"body.api_key_placement.header_name value_error"},
		"bad query": {place(&credential.Placement{QueryParam: ptr("a b")}),
			"body.api_key_placement.query_param value_error"},
		"bad scheme": {place(&credential.Placement{HeaderName: ptr("X-Key"), Scheme: ptr("a\nb")}),
			"body.api_key_placement.scheme value_error"},
	} {
		_, err := b.service.Create(t.Context(), b.org, "account-1", tc.in)
		f := wantFault(t, err, fault.Unprocessable)
		var got []string
		for _, field := range f.Fields {
			got = append(got, strings.Join(field.Loc, ".")+" "+field.Type)
			if field.Input != nil {
				t.Errorf("%s: echoes %v", name, field.Input)
			}
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
		if strings.Contains(fmt.Sprintf("%+v %v", *f, err), needle) {
			t.Errorf("%s: the secret is in %+v", name, f)
		}
	}
	_, err := b.service.Create(t.Context(), b.org, "account-1",
		with(basic(needle), func(in *credential.Input) { in.PlatformID = "nowhere" }))
	if f := wantFault(t, err, fault.NotFound); f.Detail != "Platform not found" {
		t.Errorf("detail = %q", f.Detail)
	}
	_, err = b.service.Create(t.Context(), b.org, "account-1",
		with(basic(needle), func(in *credential.Input) { in.Secret = nil }))
	wantFault(t, err, fault.Unprocessable)
	var rows int
	if err := b.pool.QueryRow(t.Context(),
		"SELECT (SELECT count(*) FROM flow.credential) + (SELECT count(*) FROM flow.secret)").Scan(&rows); err != nil ||
		rows != 0 {
		t.Errorf("%d rows left, %v", rows, err)
	}
	if b.prober.calls != 0 {
		t.Errorf("the platform was asked %d times", b.prober.calls)
	}
}

// Plain HTTP calls any address, so that its credentials have no account and need no catalog entry.
func TestCreate_PlainHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.prober.set(func(provider.Secret) (provider.Account, error) {
		return provider.Account{},
			provider.ErrNothingAsked
	})
	for _, in := range []credential.Input{basic("p"), keyed("k")} {
		in.PlatformID, in.Origins = "core", []string{"https://api.example"}
		c := b.create(t, in)
		if c.TenancyID != nil || len(c.Uses) != 0 {
			t.Errorf("created = %+v", c)
		}
		if r, err := b.service.Resolve(t.Context(), b.org, c.ID); err != nil || r.TenancyID != "" ||
			r.AuthMethod != in.AuthMethod {
			t.Errorf("resolved = %+v, %v", r, err)
		}
	}
	in := basic("p")
	in.PlatformID, in.Origins, in.Unverified = "core", []string{"https://api.example"}, true
	calls := b.prober.calls
	if b.create(t, in); b.prober.calls != calls {
		t.Errorf("a secret that is not to be tested was tested")
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []uuid.UUID
	for i := range 5 {
		in := basic("p")
		if i == 3 {
			in.Status = credential.Revoked
		}
		want = append(want, b.create(t, in).ID)
	}
	if _, err := b.service.Create(t.Context(), b.addOrg(t), "x", basic("p")); err != nil {
		t.Fatal(err)
	}
	list := func(f credential.Filter, at listing.Page) []*credential.Credential {
		f.Created = listing.Created(nil, nil)
		items, total, err := b.service.List(t.Context(), b.org, f, at)
		if err != nil {
			t.Fatal(err)
		}
		if all := int64(5); f.Status == nil && total != all || f.Status != nil && total != 1 {
			t.Errorf("total = %d for %+v", total, f)
		}
		return items
	}
	var got []uuid.UUID
	for at := (listing.Page{Range: listing.Created(nil, nil), MaxRows: 2}); ; at = at.Behind(got[len(got)-1]) {
		items := list(credential.Filter{}, at)
		if len(items) == 0 {
			break
		}
		for _, c := range items {
			got = append(got, c.ID)
			if len(c.Uses) != 1 || c.AccountLabel != "Acme" {
				t.Errorf("row = %+v", c)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("ids %v, want %v", got, want)
	}
	if items := list(credential.Filter{}, listing.Page{Range: listing.Created(nil, nil), MaxRows: 2, Skip: 4}); len(
		items) != 1 || items[0].ID != want[4] {
		t.Errorf("skip: %+v", items)
	}
	if items := list(credential.Filter{Status: ptr(credential.Revoked)}, listing.Page{Range: listing.Created(nil, nil),
		MaxRows: 5}); len(items) != 1 || items[0].ID != want[3] {
		t.Errorf("status: %+v", items)
	}
}
