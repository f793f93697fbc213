package api_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// caller is one column of the matrix: somebody who comes with certain credentials.
type caller struct {
	name   string
	client *apitest.Client
	// answered says what becomes of its calls of operations that are not public.
	answered outcome
}

type outcome int

const (
	unauthenticated outcome = iota // 401
	asMember                       // 403 where the operation is for admins
	asAdmin
	asForeigner     // an admin of another organization: 404 for what it names
	asForeignMember // 403 where the operation is for admins, else 404
	lacksScope      // 403 but where no scope is needed
)

// callers are the columns: victim has what the calls name, other is another organization.
func callers(t *testing.T, victim, other *party) []caller {
	t.Helper()
	org, issuer := victim.orgID(victim.Key), victim.issuer
	admin := func(changes map[string]any) jwt.MapClaims {
		c := apitest.Claims(org, map[string]any{"role": "admin"})
		for k, v := range changes {
			c[k] = v
		}
		return c
	}
	bearer := func(claims jwt.Claims) *apitest.Client {
		return victim.Bearer(apitest.Sign(jwt.SigningMethodRS256, apitest.GoodKey, issuer.Private, claims))
	}
	signed := func(method jwt.SigningMethod, key any) *apitest.Client {
		return victim.Bearer(apitest.Sign(method, apitest.GoodKey, key, admin(nil)))
	}
	public, err := x509.MarshalPKIXPublicKey(&issuer.Private.PublicKey)
	require.NoError(t, err)
	good := issuer.Token(org, map[string]any{"role": "admin"})
	both := func(key, token string) *apitest.Client {
		c := *victim.Client
		c.Key, c.Token = key, token
		return &c
	}
	bad := victim.Key[:len(victim.Key)-1] + "~"
	suspendedKey, suspendedToken := suspended(t, victim)
	foreign := victim.orgID(other.Key)
	return []caller{
		{"no credentials", victim.As(""), unauthenticated},
		{"a bad key", victim.As(bad), unauthenticated},
		{"a key of another installation", victim.As(strange(t, victim)), unauthenticated},
		{"a revoked key", victim.As(revoked(t, victim)), unauthenticated},
		{"an expired key", victim.As(expired(t, victim)), unauthenticated},
		{"an expired token", bearer(admin(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
			unauthenticated},
		{"a token for another audience", bearer(admin(map[string]any{"aud": "another"})), unauthenticated},
		{"HS256 with the public key", signed(jwt.SigningMethodHS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY",
			Bytes: public})), unauthenticated},
		{"alg none", signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), unauthenticated},
		{"a bad key beside a good token", both(bad, good), unauthenticated},
		{"a key of a suspended organization", victim.As(suspendedKey), unauthenticated},
		{"a token of a suspended organization", victim.Bearer(suspendedToken), unauthenticated},
		{"a member", victim.Bearer(issuer.Token(org, nil)), asMember},
		{"a member's key", victim.As(victim.newKey(`"role":"member"`)), asMember},
		{"an admin of another organization", victim.Bearer(issuer.Token(foreign, map[string]any{"role": "admin"})),
			asForeigner},
		{"a key of another organization", other.Client, asForeigner},
		{"a member of another organization", victim.Bearer(issuer.Token(foreign, nil)), asForeignMember},
		{"an admin", victim.Bearer(good), asAdmin},
		{"a good key", victim.Client, asAdmin},
		{"a good key beside a bad token", both(victim.Key, good[:len(good)-8]), asAdmin},
	}
}

// narrowed are keys with scopes: of an admin and of a member of the victim, and of another organization, by their one
// scope.
type narrowed struct {
	admin, member, foreign map[string]*apitest.Client
}

func narrow(t *testing.T, victim, other *party) narrowed {
	t.Helper()
	keys := narrowed{map[string]*apitest.Client{}, map[string]*apitest.Client{}, map[string]*apitest.Client{}}
	for _, scope := range documentedScopes(t) {
		narrow := fmt.Sprintf(`"scopes":[%q]`, scope)
		keys.admin[scope] = victim.As(victim.newKey(narrow))
		keys.member[scope] = victim.As(victim.newKey(narrow + `,"role":"member"`))
		keys.foreign[scope] = other.As(other.newKey(narrow))
	}
	return keys
}

// newKey makes a key with these fields, and returns its text.
func (p *party) newKey(fields string) string {
	p.t.Helper()
	return p.Do("POST", "/account/api-keys", `{"name":"x",`+fields+`}`).Want(http.StatusCreated).JSON()["key"].(string)
}

// columns are the callers of one operation whose keys have scopes: those of its group, and of another one.
func (n narrowed) columns(op operation) (all []caller) {
	if op.access == anybody || op.access == streamers {
		return []caller{{"a key for another group", n.admin["usage:read"], lacksScope}}
	}
	group, _, _ := strings.Cut(op.scope, ":")
	other := "usage:read"
	if group == "usage" {
		other = "jobs:write"
	}
	can := func(o outcome, held ...string) outcome {
		if op.scope == "none" || slices.Contains(held, op.scope) {
			return o
		}
		return lacksScope
	}
	read, write := group+":read", group+":write"
	for _, c := range []caller{
		{"a key that reads " + group, n.admin[read], can(asAdmin, read)},
		{"a key that writes " + group, n.admin[write], can(asAdmin, read, write)},
		{"a member's key that writes " + group, n.member[write], can(asMember, read, write)},
		{"a key of another organization that writes " + group, n.foreign[write], can(asForeigner, read, write)},
		{"a key for another group", n.admin[other], can(asAdmin, other)},
		{"a key of another organization for another group", n.foreign[other], can(asForeigner, other)},
	} {
		if c.client != nil { // a group that is only read has no more
			all = append(all, c)
		}
	}
	return all
}

// strange is a well-formed key that is not known here.
func strange(t *testing.T, p *party) string {
	t.Helper()
	tx, err := p.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	org, err := account.CreateOrg(t.Context(), tx, "never")
	require.NoError(t, err)
	key, _, err := p.app.Accounts.CreateKey(t.Context(), tx, account.NewKey{OrgID: org.ID, Name: "never"})
	require.NoError(t, err)
	return key
}

func revoked(t *testing.T, p *party) string {
	t.Helper()
	made := p.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(http.StatusCreated).JSON()
	p.Do("DELETE", "/account/api-keys/"+made["id"].(string), nil).Want(http.StatusNoContent)
	return made["key"].(string)
}

func expired(t *testing.T, p *party) string {
	t.Helper()
	made := p.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(http.StatusCreated).JSON()
	_, err := p.owner.Exec(t.Context(),
		`UPDATE flow.api_key SET created_at = '2020-01-01', expires_at = '2020-01-02' WHERE id = $1`, made["id"])
	require.NoError(t, err)
	return made["key"].(string)
}

func suspended(t *testing.T, p *party) (key, token string) {
	t.Helper()
	key = p.tenant("Suspended")
	org := p.orgID(key)
	token = p.issuer.Token(org, map[string]any{"role": "admin"})
	_, err := p.owner.Exec(t.Context(), `UPDATE flow.organization SET status = 'suspended' WHERE id = $1`, org)
	require.NoError(t, err)
	refusedWithinASecond(t, p.As(key))
	return key, token
}

const (
	notAuthenticated = `{"detail":"Authentication required"}`
	notAdmin         = `{"detail":"Admin role required"}`
)

// TestIsolation_EveryOperation: every operation of the document, called by everybody who might try.
func TestIsolation_EveryOperation(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false, func(c *app.Config) { c.RequestLimit = 1_000_000 })
	victim, other := newParty(s, "acme"), newParty(s, "beta")
	common, narrowed := callers(t, victim, other), narrow(t, victim, other)
	operations := documented(t)
	for _, op := range operations {
		t.Run(op.id, func(t *testing.T) {
			columns := slices.Concat(common, narrowed.columns(op))
			assert.Equal(t, op.expected(), op.access,
				"the document opens it to others than the contract does: see memberChanges and the like")
			assert.Equal(t, op.expectedScope(), op.scope,
				"which keys with scopes may call it? Add its x-scope; "+
					"groupsOfTheirOwn names those that are not of their tag")
			m := matrix{t: t, op: op, victim: victim.in(t), other: other.in(t)}
			if op.access == streamers {
				for _, c := range columns {
					m.equal(c, auditedCall{method: op.method, path: m.victim.fill(t, op)}, http.StatusUnauthorized,
						notAuthenticated)
				}
				return
			}
			m.refused(columns)
			for _, c := range columns {
				if m.passes(c.answered) {
					m.served(c)
				}
			}
			m.lists()
		})
	}
	known := func(id string) bool {
		return slices.ContainsFunc(operations, func(op operation) bool { return op.id == id })
	}
	for id := range auditedCalls {
		assert.True(t, known(id), "auditedCalls has a row for %s, which the document does not know", id)
	}
	for id := range unauditedCalls {
		assert.True(t, known(id), "unauditedCalls has a row for %s, which the document does not know", id)
	}
}

// expected is whom the operation should serve by the contract.
func (op operation) expected() access {
	public := slices.ContainsFunc(publicReads, func(prefix string) bool {
		return strings.HasPrefix(op.path,
			prefix)
	}) || slices.Contains(signedCalls, op.id)
	switch {
	case public:
		return anybody
	case slices.Contains(streamReads, op.id):
		return streamers
	case op.method == http.MethodGet && !slices.Contains(adminReads, op.id), slices.Contains(memberChanges, op.id):
		return members
	}
	return admins
}

// expectedScope is the scope that the operation should ask for: of its tag, to read for what changes nothing.
func (op operation) expectedScope() string {
	group, own := groupsOfTheirOwn[op.id]
	switch {
	case op.access == anybody:
		return ""
	case !own:
		group = strings.ReplaceAll(strings.ToLower(op.tag), " ", "-")
	case group == "":
		return "none"
	}
	if op.method == http.MethodGet || slices.Contains(readsByPost, op.id) {
		return group + ":read"
	}
	return group + ":write"
}

// TestScopes: the keys' scopes are those that operations ask for.
func TestScopes(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	for _, op := range documented(t) {
		if op.scope != "" && op.scope != "none" {
			asked[op.scope] = true
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(asked)), documentedScopes(t))
}

// matrix is the row of one operation.
type matrix struct {
	t             *testing.T
	op            operation
	victim, other *party
}

func (m matrix) passes(o outcome) bool {
	return m.op.access == anybody || o == asAdmin || o == asMember && m.op.access == members
}

// refused makes one call as everybody who may not, and then as an admin, who finds everything as it was.
func (m matrix) refused(columns []caller) {
	call := m.victim.call(m.t, m.op)
	unknown := m.unknown(call)
	for _, c := range columns {
		switch {
		case m.passes(c.answered):
		case c.answered == unauthenticated:
			m.equal(c, call, http.StatusUnauthorized, notAuthenticated)
		case c.answered == lacksScope:
			m.equal(c, call, http.StatusForbidden, `{"detail":"Scope `+m.op.scope+` required"}`)
		case m.op.access == admins && c.answered != asForeigner:
			m.equal(c, call, http.StatusForbidden, notAdmin)
		case slices.ContainsFunc(m.op.inPath, func(name string) bool { return !nobodys[name] }):
			got := m.equal(c, call, http.StatusNotFound, apitest.Detail(string(unknown.Body)))
			assert.Equal(m.t, unknown.Alike(), got.Alike(), "%s", c.name)
			assert.Equal(m.t, told(unknown.Header), told(got.Header), "%s", c.name)
		}
	}
	m.victim.Do(call.method, call.path, call.body).Want(call.status)
}

func (m matrix) equal(c caller, call auditedCall, status int, body string) apitest.Response {
	m.t.Helper()
	got := c.client.Do(call.method, call.path, call.body)
	assert.Equal(m.t, status, got.Status, "%s", c.name)
	assert.Equal(m.t, body, apitest.Detail(string(got.Body)), "%s", c.name)
	return got
}

// unknown calls with ids that name nothing, one after the other, and returns the answer to the first.
func (m matrix) unknown(call auditedCall) (answer apitest.Response) {
	for _, name := range m.op.inPath {
		detail, ok := missing[name]
		if strings.HasPrefix(m.op.path, "/tenants/") { // what dispatch calls a Domain
			detail = "Tenant not found"
		}
		if name == "platform" && slices.Contains(m.op.inPath, "tenancy_id") { // as of any Domain that is none of it
			detail = missing["tenancy_id"]
		}
		require.True(m.t, ok, "what does an unknown {%s} answer? Add it to the table missing", name)
		id := m.op.named(call.path, name)
		for _, v := range []string{altered(id), strings.ToUpper(id), "x", "%00", id + "%20"} {
			if v == id {
				continue
			}
			got := m.victim.Do(call.method, m.op.naming(call.path, name, v), call.body)
			if m.op.id == "listPlatformServices" { // a filter by another name
				assert.Empty(m.t, got.Want(http.StatusOK).JSON()["items"])
				continue
			}
			if m.op.id == "putStoreLayer" && name == "key" && v != "%00" { // makes the record that is not there
				got.Want(http.StatusOK)
				continue
			}
			assert.Equal(m.t, http.StatusNotFound, got.Status, "%s", v)
			assert.Equal(m.t, `{"detail":"`+detail+`"}`, apitest.Detail(string(got.Body)), "%s", v)
			if answer.Body == nil {
				answer = got
			}
		}
	}
	return answer
}

// told is what the headers of an answer tell of what was asked for.
func told(header http.Header) http.Header {
	out := header.Clone()
	for name := range out {
		if name == "Date" || name == "X-Request-Id" || strings.HasPrefix(name, "Ratelimit-") {
			out.Del(name)
		}
	}
	return out
}

// served makes a call of its own as somebody who may.
func (m matrix) served(c caller) {
	m.t.Helper()
	call := m.victim.call(m.t, m.op)
	got := c.client.Do(call.method, call.path, call.body)
	assert.Equal(m.t, call.status, got.Status, "%s: %s", c.name, got.Body)
	assert.Equal(m.t, m.op.access != anybody, got.Header.Get("RateLimit-Remaining") != "", "%s: is it counted?", c.name)
}

var marks = regexp.MustCompile(`\b[0-9a-f]{32}\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|dialer-[0-9a-f]{16}`)

// lists reads what takes no id as both organizations: neither sees anything of the other, by whatever filter.
func (m matrix) lists() {
	if m.op.method != http.MethodGet || m.op.access == anybody || len(m.op.inPath) > 0 {
		return
	}
	call := m.victim.call(m.t, m.op)
	mine := m.victim.Do(call.method, call.path, nil).Want(call.status)
	theirs := m.other.Do(call.method, call.path, nil).Want(call.status)
	for _, r := range []apitest.Response{mine, theirs} {
		if items, ok := r.JSON()["items"]; ok {
			assert.NotEmpty(m.t, items, "each party must have something to list: add it to newParty")
		}
	}
	seen := marks.FindAllString(string(theirs.Body), -1)
	for _, id := range marks.FindAllString(string(mine.Body), -1) {
		assert.NotContains(m.t, seen, id, "an organization sees what another has")
	}
	for _, name := range m.op.inQuery {
		id, ok := m.victim.ids[name]
		require.True(m.t, ok, "something that %s names: add it to newParty", name)
		get := func(p *party, id string) string {
			return string(p.Do(http.MethodGet, call.path+"?"+name+"="+url.QueryEscape(id), nil).Want(call.status).Body)
		}
		if !nobodys[name] {
			assert.Equal(m.t, get(m.other, altered(id)), get(m.other, id), "%s of another organization", name)
		}
		var page struct{ Items []json.RawMessage }
		require.NoError(m.t, json.Unmarshal([]byte(get(m.victim, id)), &page))
		assert.NotEmpty(m.t, page.Items, "%s finds nothing of the own organization", name)
	}
}

// TestIsolation_Bodies: what a body names must belong to the caller's organization.
func TestIsolation_Bodies(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	victim, other := newParty(s, "acme"), newParty(s, "beta")
	fields := map[string]bool{}
	for _, op := range documented(t) {
		for _, field := range op.inBody {
			name := op.id + " " + field
			fields[name] = true
			if nobodys[name] || nobodys[field[strings.LastIndex(field, ".")+1:]] {
				continue
			}
			ref, ok := references[name]
			if !assert.True(t, ok, "%q names something, and no test says what becomes of an id of another "+
				"organization: add it to references", name) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				victim, other := victim.in(t), other.in(t)
				send := func(id string) apitest.Response {
					call := ref.call(other, id)
					return other.Do(call.method, call.path, call.body)
				}
				theirs := ref.make(victim)
				unknown := send(altered(theirs)).Want(http.StatusNotFound)
				foreign := send(theirs).Want(http.StatusNotFound)
				assert.Equal(t, strings.ReplaceAll(unknown.Alike(), altered(theirs), "ID"),
					strings.ReplaceAll(foreign.Alike(), theirs, "ID"))
				own := ref.make(other)
				send(own).Want(ref.call(other, own).status)
			})
		}
	}
	for name := range references {
		assert.True(t, fields[name], "references has a row for %q, which the document does not know", name)
	}
}

// fill puts the party's ids into the path of an operation.
func (p *party) fill(t *testing.T, op operation) string {
	t.Helper()
	path := op.path
	for _, name := range op.inPath {
		id, ok := p.ids[name]
		require.True(t, ok, "something that {%s} names: add it to newParty", name)
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(id), 1)
	}
	return path
}

// named is what the path of a call says where the document says {name}.
func (op operation) named(path, name string) string {
	return strings.Split(path, "/")[op.position(name)]
}

// naming is the path with another value there.
func (op operation) naming(path, name, value string) string {
	parts := strings.Split(path, "/")
	parts[op.position(name)] = value
	return strings.Join(parts, "/")
}

func (op operation) position(name string) int {
	return slices.Index(strings.Split(op.path, "/"), "{"+name+"}")
}

// altered is an id of the same form that names nothing.
func altered(id string) string {
	if strings.HasPrefix(id, "f") {
		return "e" + id[1:]
	}
	return "f" + id[1:]
}
