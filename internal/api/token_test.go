package api_test

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api/violation"
	"flowlane/internal/app"
	"flowlane/internal/platform/vault"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// orgID is the organization of a key.
func (s *stack) orgID(key string) string {
	s.t.Helper()
	return readMe(s.As(key)).Organization.ID
}

type me struct {
	Account      struct{ ID, Name, Kind string }
	Organization struct{ ID string }
	Role         string
	AuthMethod   string  `json:"auth_method"`
	APIKeyID     *string `json:"api_key_id"`
}

func readMe(c *apitest.Client) (m me) {
	c.Do("GET", "/account/me", nil).Want(200).Into(&m)
	return m
}

// badToken is a token that nobody must believe, by one fault: a line of testdata/hostile_tokens.jsonl.
type badToken struct {
	Name string
	// Text is the token; HEAD, CLAIMS and SIGNATURE stand for the parts of a good one, CUT for a signature without its
	// end, NONE for a head that names no algorithm. Where it is empty, the token is made of the rest.
	Text string
	// Alg and Key are what signs it: RS256 and the provider's own key where they are empty.
	Alg, Key string
	// Header and Claims change those of a good token; null takes one away.
	Header, Claims map[string]any
	// Borrow gives it the signature of a good token.
	Borrow bool
}

// badTokens reads them.
func badTokens(t *testing.T, i *apitest.Issuer, org string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/hostile_tokens.jsonl")
	require.NoError(t, err)
	now := time.Now()
	lines := strings.NewReplacer(`"A MINUTE AGO"`, strconv.FormatInt(now.Add(-time.Minute).Unix(), 10), `"IN A MINUTE"`,
		strconv.FormatInt(now.Add(time.Minute).Unix(), 10), "16 KiB", strings.Repeat("x", 16<<10), "ORG", org,
		"CAPITALS",
		strings.ToUpper(org), "ISSUER", apitest.TokenIssuer, "MODULUS",
		base64.RawURLEncoding.EncodeToString(i.Strange.N.Bytes())).Replace(string(text))
	out := map[string]string{}
	for line := range strings.Lines(lines) {
		var b badToken
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&b), line)
		out[b.Name] = b.make(t, i, org)
	}
	require.Greater(t, len(out), 40)
	return out
}

func (b *badToken) make(t *testing.T, i *apitest.Issuer, org string) string {
	t.Helper()
	good := strings.Split(i.Token(org, map[string]any{"role": "admin"}), ".")
	if b.Text != "" {
		none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"` + apitest.GoodKey + `"}`))
		return strings.NewReplacer("HEAD", good[0], "CLAIMS", good[1], "SIGNATURE", good[2], "CUT",
			good[2][:len(good[2])-8],
			"NONE", none).Replace(b.Text)
	}
	public, err := x509.MarshalPKIXPublicKey(&i.Private.PublicKey)
	require.NoError(t, err)
	key, ok := map[string]any{
		"": i.Private, "strange": i.Strange, "public DER": public, "public modulus": i.Private.N.Bytes(),
		"nothing":    []byte{},
		"public PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
	}[b.Key]
	require.True(t, ok, b.Key)
	if b.Alg == "none" {
		key = jwt.UnsafeAllowNoneSignatureType
	}
	token := jwt.NewWithClaims(jwt.GetSigningMethod(cmp.Or(b.Alg, "RS256")), apitest.Claims(org, b.Claims))
	token.Header["kid"] = apitest.GoodKey
	maps.Copy(token.Header, b.Header)
	maps.DeleteFunc(token.Header, func(_ string, v any) bool { return v == nil })
	text, err := token.SignedString(key)
	require.NoError(t, err)
	if b.Borrow {
		text = text[:strings.LastIndex(text, ".")+1] + good[2]
	}
	return text
}

func TestToken_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	org := s.orgID(s.Key)
	want := s.As("").Do("GET", "/account/me", nil, "X-API-Key", "nonsense").Detail(http.StatusUnauthorized,
		"Authentication required")
	// A key in the wrong header is told so, be it a valid one or not.
	key := s.As("").Do("GET", "/account/me", nil, "Authorization", "Bearer "+s.Key).Detail(http.StatusUnauthorized,
		"Authentication required")
	refused := func(t *testing.T, header ...string) {
		t.Helper()
		want := want
		if strings.HasPrefix(header[1], "Bearer flow_") {
			want = key
		}
		for _, call := range []struct{ method, path, body string }{
			{"GET", "/account/me", ""},
			{"POST", "/account/api-keys", `{"name":"x"}`},
			{"POST", "/data/record-sets/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11/records",
				`{"chunk_index":0,"records":[{}]}`},
		} {
			var body any
			if call.body != "" {
				body = call.body
			}
			got := s.As("").Do(call.method, call.path, body, header...).Want(http.StatusUnauthorized)
			assert.Equal(t, want.Alike(), got.Alike(), "%s %s", call.method, call.path)
			assert.Equal(t, want.Header.Get("Content-Type"), got.Header.Get("Content-Type"))
			assert.Empty(t, got.Header.Get("WWW-Authenticate"))
		}
	}
	good := s.issuer.Token(org, map[string]any{"role": "admin"})
	readMe(s.Bearer(good))
	for name, token := range badTokens(t, s.issuer, org) {
		t.Run(name, func(t *testing.T) { refused(t, "Authorization", "Bearer "+token) })
	}
	t.Run("bad key beside a good token", func(t *testing.T) {
		refused(t, "X-API-Key", "nonsense", "Authorization", "Bearer "+good)
	})
	t.Run("another scheme", func(t *testing.T) { refused(t, "Authorization", "Basic "+good) })
	t.Run("no scheme", func(t *testing.T) { refused(t, "Authorization", good) })
	t.Run("suspended organization", func(t *testing.T) {
		_, err := s.owner.Exec(t.Context(), `UPDATE flow.organization SET status = 'suspended' WHERE id = $1`, org)
		require.NoError(t, err)
		refused(t, "Authorization", "Bearer "+s.issuer.Token(org, map[string]any{"sub": "user-2"}))
		refusedWithinASecond(t, s.Bearer(good))
	})
	var accounts int
	require.NoError(t, s.owner.QueryRow(t.Context(), `SELECT count(*) FROM flow.account WHERE kind = 'user'`).Scan(
		&accounts))
	assert.Equal(t, 1, accounts, "accounts of refused tokens")
	assert.LessOrEqual(t, s.issuer.Reads.Load(), int64(2),
		"readings of the keys, however many tokens name unknown ones")
}

func TestToken_Taken(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	org := s.orgID(s.Key)
	now := time.Now()
	for name, changes := range map[string]map[string]any{
		"plain":                  nil,
		"expired within leeway":  {"exp": now.Add(-10 * time.Second).Unix()},
		"not yet within leeway":  {"nbf": now.Add(20 * time.Second).Unix()},
		"one of its audiences":   {"aud": []string{"other", apitest.TokenAudience}},
		"a role of another kind": {"role": 7},
		"other roles":            {"role": []any{"viewer", 1, "ADMIN", "admin "}},
	} {
		t.Run(name, func(t *testing.T) {
			got := readMe(s.Bearer(s.issuer.Token(org, changes)))
			assert.Equal(t, org, got.Organization.ID)
			assert.Equal(t, []string{"member", "jwt", "user", "Ada"}, []string{got.Role, got.AuthMethod,
				got.Account.Kind, got.Account.Name})
			assert.Nil(t, got.APIKeyID)
		})
	}
	for name, role := range map[string]any{"one role": "admin", "several roles": []string{"viewer", "admin"}} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "admin", readMe(s.Bearer(s.issuer.Token(org, map[string]any{"role": role}))).Role)
		})
	}
	s.As("").Do("GET", "/account/me", nil, "Authorization", "bearer "+s.issuer.Token(org, nil)).Want(200)
	both := *s.Client
	both.Token = "nonsense"
	assert.Equal(t, "api_key", readMe(&both).AuthMethod, "a good key wins over a bad token")
}

func TestToken_Accounts(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	org, other := s.orgID(s.Key), s.orgID(s.other.Key)
	read := func(org string, changes map[string]any) me { return readMe(s.Bearer(s.issuer.Token(org, changes))) }
	ada := read(org, nil)
	assert.Equal(t, ada.Account.ID, read(org, map[string]any{"role": "admin"}).Account.ID, "the same subject")
	assert.NotEqual(t, ada.Account.ID, read(org, map[string]any{"sub": "user-2"}).Account.ID, "another subject")
	assert.NotEqual(t, ada.Account.ID, read(other, nil).Account.ID, "another organization")
	renamed := read(org, map[string]any{"name": "Ada L."})
	assert.Equal(t, []string{ada.Account.ID, "Ada L."}, []string{renamed.Account.ID, renamed.Account.Name})
	assert.Equal(t, "ada@x.test", read(org, map[string]any{"sub": "user-3", "name": " ",
		"email": "ada@x.test"}).Account.Name)
	assert.Equal(t, "user-4", read(org, map[string]any{"sub": "user-4", "name": nil}).Account.Name)
	long := read(org, map[string]any{"sub": "user-5", "name": strings.Repeat("é", 201)})
	assert.Len(t, []rune(long.Account.Name), 6, "a claim that is too long is none")

	// What an admin makes is its own, and stays in its organization.
	admin := s.Bearer(s.issuer.Token(org, map[string]any{"role": "admin"}))
	key := admin.Do("POST", "/account/api-keys", `{"name":"x"}`, "X-Request-Id", "by-ada").Want(201).JSON()
	assert.Equal(t, ada.Account.ID, key["created_by"])
	foreign := s.Bearer(s.issuer.Token(other, map[string]any{"role": "admin"}))
	foreign.Do("DELETE", "/account/api-keys/"+key["id"].(string), nil).Detail(404, "API key not found")
	var log auditLog
	admin.Do("GET", "/account/audit-log?account_id="+ada.Account.ID, nil).Want(200).Into(&log)
	require.Len(t, log.Items, 1)
	assert.Equal(t, []string{"createApiKey", "jwt", "", "by-ada"}, []string{log.Items[0].Action,
		log.Items[0].AuthMethod, log.Items[0].APIKeyID, log.Items[0].RequestID})
}

func TestToken_ExternalID(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	org, other := s.orgID(s.Key), s.orgID(s.other.Key)
	s.Bearer(s.issuer.Token("acme-corp", nil)).Do("GET", "/account/me", nil).Want(401)
	_, err := s.owner.Exec(t.Context(), `UPDATE flow.organization SET external_id = 'acme-corp' WHERE id = $1`, org)
	require.NoError(t, err)
	byName := readMe(s.Bearer(s.issuer.Token("acme-corp", nil)))
	assert.Equal(t, org, byName.Organization.ID)
	assert.Equal(t, byName.Account.ID, readMe(s.Bearer(s.issuer.Token(org, nil))).Account.ID)
	// What the provider calls an organization counts before what we call another.
	_, err = s.owner.Exec(t.Context(), `UPDATE flow.organization SET external_id = $2 WHERE id = $1`, org, other)
	require.NoError(t, err)
	assert.Equal(t, org, readMe(s.Bearer(s.issuer.Token(other, map[string]any{"sub": "user-2"}))).Organization.ID)
}

func TestToken_Member(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	member := s.Bearer(s.issuer.Token(s.orgID(s.Key), nil))
	id := readMe(member).Account.ID
	member.Do("GET", "/flows/definitions", nil).Want(200)
	for range 3 {
		member.Do("POST", "/account/api-keys", `{"name":"x"}`, "X-Request-Id", "knock").Detail(403,
			"Admin role required")
		member.Do("POST", "/data/record-sets/x/records", `{}`).Detail(403, "Admin role required")
		member.Do("GET", "/account/audit-log", nil).Detail(403, "Admin role required")
	}
	var log auditLog
	read := func() {
		s.Do("GET", "/account/audit-log?outcome=denied&account_id="+id, nil).Want(200).Into(&log)
	}
	read()
	assert.Equal(t, "listAuditLog appendRecords createApiKey", log.actions(), "one row a minute for each operation")
	got := log.Items[2]
	assert.Equal(t, []string{"denied", "jwt", "knock", "", "", ""}, []string{got.Outcome, got.AuthMethod, got.RequestID,
		got.ResourceID, got.ResourceType, got.APIKeyID})
	pgtest.MoveClock(t, s.owner, 61*time.Second)
	member.Do("POST", "/account/api-keys", `{"name":"x"}`).Detail(403, "Admin role required")
	read()
	assert.Equal(t, "createApiKey listAuditLog appendRecords createApiKey", log.actions())
}

// TestToken_NoKeys: while nobody can tell whether a token is good, it is not refused for good.
func TestToken_NoKeys(t *testing.T) {
	t.Parallel()
	provider := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(provider.Close)
	issuer := apitest.NewIssuer(t)
	kek, err := vault.LoadKEK("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "")
	require.NoError(t, err)
	dsn, _ := pgtest.NewDatabase(t)
	a, err := app.New(t.Context(), app.Config{DatabaseURL: dsn, Pooled: pgtest.Pooled(), KEK: kek,
		Log: slog.New(slog.DiscardHandler),
		Tokens: app.Tokens{Issuer: apitest.TokenIssuer, Audience: apitest.TokenAudience, KeysURL: provider.URL +
			"/keys"}})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	c := apitest.Serve(t, a.Handler(), "")
	res := c.Bearer(issuer.Token("x", nil)).Do("GET", "/account/me", nil).Detail(503,
		"The identity provider does not answer; try again later")
	assert.Equal(t, "10", res.Header.Get("Retry-After"))
	c.Bearer("x").Do("GET", "/account/me", nil).Want(401)
	c.Do("GET", "/account/me", nil).Want(401)
}

// TestToken_EveryOperation: wherever a key is taken, a token is, with the same role and after the key.
func TestToken_EveryOperation(t *testing.T) {
	t.Parallel()
	doc, err := violation.Document()
	require.NoError(t, err)
	root := fmt.Sprint(doc["security"])
	assert.Equal(t, "[map[ApiKeyAuth:[]] map[OrgJwt:[]]]", root)
	secured := 0
	for path, item := range doc["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			o, ok := operation.(map[string]any)
			if text := fmt.Sprint(o["security"]); ok && strings.Contains(text, "ApiKeyAuth") {
				secured++
				want := "[map[ApiKeyAuth:[admin]] map[OrgJwt:[admin]]]"
				if method == "get" && strings.HasPrefix(path, "/catalog/") && !strings.HasPrefix(path,
					"/catalog/imports") {
					want = "[map[] map[ApiKeyAuth:[]] map[OrgJwt:[]]]" // who says so sees the platforms of its own, too
				}
				assert.Equal(t, want, text, "%s %s", method, path)
			}
		}
	}
	assert.Positive(t, secured)
}
