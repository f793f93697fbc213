package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// madeKey makes a key with these fields as somebody, and returns its id and a client that comes with it.
func madeKey(c *apitest.Client, fields string) (id string, key *apitest.Client) {
	made := c.Do("POST", "/account/api-keys", `{"name":"x"`+fields+`}`).Want(http.StatusCreated).JSON()
	return made["id"].(string), c.As(made["key"].(string))
}

func TestAPIKeys_Grant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	maker := b.Do("GET", "/account/me", nil).Want(200).JSON()["api_key_id"]
	for fields, want := range map[string][]any{
		``:                         {"admin", nil},
		`,"scopes":null`:           {"admin", nil},
		`,"role":"member"`:         {"member", nil},
		`,"scopes":["jobs:write"]`: {"admin", []any{"jobs:write"}},
		`,"role":"member","scopes":["stores:read","jobs:read","stores:read"]`: {"member",
			[]any{"jobs:read", "stores:read"}},
	} {
		made := b.Do("POST", "/account/api-keys", `{"name":"x"`+fields+`}`).Want(201).JSON()
		me := b.As(made["key"].(string)).Do("GET", "/account/me", nil).Want(200).JSON()
		assert.Equal(t, want, []any{made["role"], made["scopes"]}, "a key with %s", fields)
		assert.Equal(t, want, []any{me["role"], me["scopes"]}, "a caller with %s", fields)
		assert.Equal(t, []any{maker, nil}, []any{made["created_by_key_id"], made["last_used_address"]})
	}
}

// TestAPIKeys_LastUse: the address is that of the connection, whatever headers say.
func TestAPIKeys_LastUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, key := madeKey(b.Client, "")
	key.Do("GET", "/account/me", nil, "X-Forwarded-For", "203.0.113.7", "X-Real-IP", "203.0.113.7", "Forwarded",
		"for=203.0.113.7").Want(200)
	var list struct {
		Items []struct {
			At      *time.Time `json:"last_used_at"`
			Address string     `json:"last_used_address"`
		}
	}
	b.Do("GET", "/account/api-keys", nil).Want(200).Into(&list)
	require.Len(t, list.Items, 2)
	for _, k := range list.Items {
		assert.NotNil(t, k.At)
		assert.Equal(t, "127.0.0.1", k.Address)
	}
}

// TestAPIKeys_NoMoreThanTheirMaker: a key gives another one no more than it has, and says what is too much.
func TestAPIKeys_NoMoreThanTheirMaker(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	at := func(d time.Duration) string { return fmt.Sprintf(`"expires_at":%q`, end.Add(d).Format(time.RFC3339)) }
	_, narrow := madeKey(s.Client, `,"scopes":["account:write","stores:write","jobs:read"]`)
	_, brief := madeKey(s.Client, ","+at(0))
	_, both := madeKey(s.Client, `,"scopes":["account:write"],`+at(0))
	_, member := madeKey(s.Client, `,"role":"member"`)
	person := s.Bearer(s.issuer.Token(s.orgID(s.Key), map[string]any{"role": "admin"}))
	const scopes, ends = "body.scopes value_error", "body.expires_at value_error"
	for _, tt := range []struct {
		maker   *apitest.Client
		fields  string
		refused []string
	}{
		{narrow, `,"scopes":["stores:write","jobs:read"]`, nil},
		{narrow, `,"scopes":["stores:read"],"role":"member",` + at(1000*time.Hour), nil},
		{narrow, ``, []string{scopes}},
		{narrow, `,"scopes":null`, []string{scopes}},
		{narrow, `,"scopes":["stores:read","jobs:write","usage:read"]`, []string{"body.scopes.1 value_error",
			"body.scopes.2 value_error"}},
		{brief, `,` + at(0), nil},
		{brief, `,"scopes":["usage:read"],` + at(-time.Minute), nil},
		{brief, ``, []string{ends}},
		{brief, `,"expires_at":null`, []string{ends}},
		{brief, `,` + at(time.Second), []string{ends}},
		{both, `,"scopes":["jobs:read"],` + at(time.Second), []string{"body.scopes.0 value_error", ends}},
		{both, ``, []string{scopes, ends}},
		{s.Client, `,` + at(1000*time.Hour), nil},
		{person, ``, nil},
		{person, `,"scopes":["jobs:read"],` + at(time.Hour), nil},
	} {
		got := tt.maker.Do("POST", "/account/api-keys", `{"name":"x"`+tt.fields+`}`)
		if tt.refused == nil {
			got.Want(http.StatusCreated)
			continue
		}
		got.Invalid(tt.refused...)
	}
	member.Do("POST", "/account/api-keys", `{"name":"x"}`).Detail(http.StatusForbidden, "Admin role required")
	made := person.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(http.StatusCreated).JSON()
	assert.Nil(t, made["created_by_key_id"], "a person made it")
	text := string(both.Do("POST", "/account/api-keys", `{"name":"x","scopes":["usage:read"]}`).Body)
	assert.Contains(t, text, "does not have usage:read itself")
	assert.Contains(t, text, end.Format(time.RFC3339))
}

// revocation is the answer to the revocation of a key that made others.
type revocation struct {
	Made []struct {
		ID, Status string
		By         string `json:"created_by_key_id"`
	}
	Total int
}

func (r revocation) statuses() (all []string) {
	for _, k := range r.Made {
		all = append(all, k.Status)
	}
	return all
}

func TestAPIKeys_Cascade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stolen, thief := madeKey(b.Client, "")
	first, second := madeKey(thief, "")
	child, third := madeKey(second, `,"role":"member"`)
	other, fourth := madeKey(thief, `,"scopes":["account:write"]`)
	_, bystander := madeKey(b.Client, "")
	b.Do("DELETE", "/account/api-keys/"+other, nil).Want(http.StatusNoContent)
	revokedAt := func() (at time.Time) {
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT revoked_at FROM flow.api_key WHERE id = $1`,
			other).Scan(&at))
		return at
	}
	before := revokedAt()
	revoke := func(query string) (out revocation) {
		b.Do("DELETE", "/account/api-keys/"+stolen+query, nil).Want(http.StatusOK).Into(&out)
		require.Len(t, out.Made, 3)
		assert.Equal(t, 3, out.Total)
		for i, k := range []struct{ id, by string }{{first, stolen}, {child, first}, {other, stolen}} {
			assert.Equal(t, []string{k.id, k.by}, []string{out.Made[i].ID, out.Made[i].By}, "oldest first")
		}
		return out
	}
	answered := func() (statuses []int) {
		for _, c := range []*apitest.Client{thief, second, third, fourth, bystander} {
			statuses = append(statuses, c.Do("GET", "/account/me", nil).Status)
		}
		return statuses
	}
	assert.Equal(t, []int{200, 200, 200, 401, 200}, answered())

	said := revoke("")
	assert.Equal(t, []string{"active", "active", "revoked"}, said.statuses())
	assert.Equal(t, []int{401, 200, 200, 401, 200}, answered())

	said = revoke("?cascade=true")
	assert.Equal(t, []string{"revoked", "revoked", "revoked"}, said.statuses())
	assert.Equal(t, []int{401, 401, 401, 401, 200}, answered(), "what was remembered of them, too")
	assert.Equal(t, before, revokedAt(), "who was revoked before stays so")
	var log auditLog
	b.Do("GET", "/account/audit-log?action=revokeApiKey", nil).Want(200).Into(&log)
	var audited []string
	for _, e := range log.Items {
		audited = append(audited, e.ResourceID)
	}
	assert.ElementsMatch(t, []string{other, stolen, stolen, first, child}, audited,
		"an entry for each that was revoked")

	b.As(b.other.Key).Do("DELETE", "/account/api-keys/"+stolen+"?cascade=true", nil).Detail(404, "API key not found")
	b.Do("DELETE", "/account/api-keys/"+child+"?cascade=true", nil).Want(http.StatusNoContent)
	b.Do("DELETE", "/account/api-keys/"+child+"?cascade=maybe", nil).Want(http.StatusUnprocessableEntity)
}

// TestAuditLog_Key: an entry names the key that acted, though it is revoked.
func TestAuditLog_Key(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.Do("POST", "/account/api-keys", `{"name":"nightly upload","scopes":["record-sets:write"]}`).Want(
		201).JSON()
	key := b.As(made["key"].(string))
	key.Do("POST", "/data/record-sets", nil).Want(201)
	key.Do("GET", "/account/api-keys", nil).Detail(http.StatusForbidden, "Scope account:read required")
	b.Do("DELETE", "/account/api-keys/"+made["id"].(string), nil).Want(204)
	_, another := madeKey(b.Client, `,"scopes":["jobs:read"]`)
	another.Do("POST", "/data/record-sets", nil).Want(http.StatusForbidden)
	_, third := madeKey(b.Client, `,"scopes":["jobs:read"]`)
	for range 2 {
		third.Do("POST", "/data/record-sets", nil).Want(http.StatusForbidden)
	}
	denied := b.Do("GET", "/account/audit-log?action=createRecordSet&outcome=denied", nil).Want(200).JSON()
	assert.EqualValues(t, 2, denied["total"], "one a minute for each key, though all act as one account")
	for _, query := range []string{"action=createRecordSet&outcome=succeeded", "action=listApiKeys&outcome=denied"} {
		items := b.Do("GET", "/account/audit-log?"+query, nil).Want(200).JSON()["items"].([]any)
		require.Len(t, items, 1, query)
		e := items[0].(map[string]any)
		assert.Equal(t, []any{made["id"], "nightly upload", "flow_", made["last_four"]},
			[]any{e["api_key_id"], e["api_key_name"], e["api_key_prefix"], e["api_key_last_four"]})
	}
}
