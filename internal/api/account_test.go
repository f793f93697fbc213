package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

func TestAuthentication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	operations := []struct{ method, path, body string }{
		{"GET", "/account/me", ""},
		{"GET", "/account/api-keys", ""},
		{"POST", "/account/api-keys", `{"name":"x"}`},
		{"POST", "/account/api-keys", `not even JSON`},
		{"DELETE", "/account/api-keys/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11", ""},
		{"POST", "/data/record-sets/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11/records", `not even JSON`},
	}
	keys := map[string][]string{
		"None":                  {"X-API-Key", ""},
		"Nonsense":              {"X-API-Key", "nonsense"},
		"Made up":               {"X-API-Key", b.acme.Key[:len(b.acme.Key)-1] + "!"},
		"Only a bearer":         {"X-API-Key", "", "Authorization", "Bearer " + b.acme.Key},
		"Wrong beside a bearer": {"X-API-Key", "nonsense", "Authorization", "Bearer " + b.acme.Key},
	}
	for _, o := range operations {
		var body any
		if o.body != "" {
			body = o.body
		}
		for name, header := range keys {
			t.Run(fmt.Sprintf("%s %s/%s", o.method, o.path, name), func(t *testing.T) {
				b.Do(o.method, o.path, body, header...).Detail(http.StatusUnauthorized, "Authentication required")
			})
		}
	}
	b.Do("GET", "/account/me", nil, "Authorization", "Bearer nonsense").Want(http.StatusOK)
	b.Do("GET", "/catalog/platforms", nil, "X-API-Key", "nonsense").Want(http.StatusOK)
}

func TestMe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var me struct {
		Account      struct{ ID, Name, Kind string }
		Organization struct{ ID, Name string }
		Role         string
		AuthMethod   string `json:"auth_method"`
		APIKeyID     string `json:"api_key_id"`
	}
	b.Do("GET", "/account/me", nil).Want(200).Into(&me)
	if me.Account.ID != b.acme.AccountID.String() || me.Account.Kind != "service" ||
		me.Organization.ID != b.acme.ID.String() ||
		me.Organization.Name != "Acme" || me.Role != "admin" || me.AuthMethod != "api_key" || me.APIKeyID == "" {
		t.Errorf("me %+v", me)
	}
	if header := b.Do("GET", "/account/me", nil).Header; header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", header)
	}
}

type apiKey struct {
	ID, Name, Prefix, Status, Key string
	LastFour                      string     `json:"last_four"`
	CreatedBy                     string     `json:"created_by"`
	LastUsedAt                    *time.Time `json:"last_used_at"`
	ExpiresAt                     *time.Time `json:"expires_at"`
	RevokedAt                     *time.Time `json:"revoked_at"`
}

type apiKeyList struct {
	Items      []apiKey
	Total      int
	Limit      int
	Skip       int
	NextCursor *string `json:"next_cursor"`
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var created apiKey
	b.Do("POST", "/account/api-keys", `{"name":"nightly","expires_at":null}`).Want(201).Into(&created)
	if created.Key == "" || created.Prefix != "flow_" || created.Status != "active" ||
		created.CreatedBy != b.acme.AccountID.String() ||
		created.LastFour != created.Key[len(created.Key)-4:] || created.LastUsedAt != nil {
		t.Errorf("created %+v", created)
	}
	b.As(created.Key).Do("GET", "/account/me", nil).Want(200)

	var list apiKeyList
	b.Do("GET", "/account/api-keys", nil).Want(200).Into(&list)
	if list.Total != 2 || list.Limit != 50 || len(list.Items) != 2 || list.Items[1].ID != created.ID ||
		list.Items[1].Key != "" ||
		list.Items[1].LastUsedAt == nil {
		t.Errorf("list %+v", list)
	}

	b.As(b.other.Key).Do("DELETE", "/account/api-keys/"+created.ID, nil).Detail(404, "API key not found")
	b.As(created.Key).Do("GET", "/account/me", nil).Want(200)
	b.Do("DELETE", "/account/api-keys/nonsense", nil).Detail(404, "API key not found")
	b.Do("DELETE", "/account/api-keys/"+strings.ToUpper(created.ID), nil).Detail(404, "API key not found")
	b.Do("DELETE", "/account/api-keys/"+created.ID, nil).Want(204)
	b.As(created.Key).Do("GET", "/account/me", nil).Want(401)
	b.Do("DELETE", "/account/api-keys/"+created.ID, nil).Want(204)

	b.Do("GET", "/account/api-keys?status=revoked", nil).Want(200).Into(&list)
	if list.Total != 1 || list.Items[0].ID != created.ID || list.Items[0].RevokedAt == nil ||
		list.Items[0].Status != "revoked" {
		t.Errorf("revoked %+v", list)
	}
	b.As(b.other.Key).Do("GET", "/account/api-keys", nil).Want(200).Into(&list)
	if list.Total != 1 {
		t.Errorf("the other organization sees %+v", list)
	}
}

func TestAPIKeys_RevokedStopsWithinASecond(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var created apiKey
	b.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(201).Into(&created)
	b.As(created.Key).Do("GET", "/account/me", nil).Want(200)
	// As another replica would: behind the back of this one, which remembers the key.
	if _, err := b.pool.Exec(t.Context(), `UPDATE flow.api_key SET revoked_at = flow.clock() WHERE id = $1`,
		created.ID); err != nil {
		t.Fatal(err)
	}
	refusedWithinASecond(t, b.As(created.Key))
}

// refusedWithinASecond goes on until a request is refused. On a slow machine a request may take its time: those count
// that begin more than a second from now.
func refusedWithinASecond(t *testing.T, c *apitest.Client) {
	t.Helper()
	for from := time.Now(); ; {
		late := time.Since(from) > time.Second
		if c.Do("GET", "/account/me", nil).Status == http.StatusUnauthorized {
			return
		}
		if late {
			t.Fatal("a request that began more than a second later was still answered")
		}
	}
}

func TestAPIKeys_Expiry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	soon := time.Now().Add(time.Hour)
	var created apiKey
	b.Do("POST", "/account/api-keys", map[string]any{"name": "x", "expires_at": soon}).Want(201).Into(&created)
	if created.ExpiresAt == nil || !created.ExpiresAt.Equal(soon.Truncate(time.Second)) &&
		created.ExpiresAt.Sub(soon).Abs() > time.Second {
		t.Errorf("expires at %v, want %v", created.ExpiresAt, soon)
	}
	pgtest.MoveClock(t, b.pool, 2*time.Hour)
	b.As(created.Key).Do("GET", "/account/me", nil).Want(401)
	var list apiKeyList
	b.Do("GET", "/account/api-keys?status=expired", nil).Want(200).Into(&list)
	if list.Total != 1 {
		t.Errorf("expired %+v", list)
	}
	b.Do("POST", "/account/api-keys", map[string]any{"name": "x", "expires_at": soon}).Invalid(
		"body.expires_at value_error")
}

func TestAPIKeys_BadBodies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Do("POST", "/account/api-keys", `{"name":"","expires_at":7,"role":"owner","scopes":[],"status":"active"}`).
		Invalid("body.expires_at string_type", "body.name string_too_short", "body.role enum", "body.scopes too_short",
			"body.status extra_forbidden")
	b.Do("POST", "/account/api-keys", `{"name":"x","role":null,"scopes":["jobs:read","jobs:all"]}`).
		Invalid("body.role null_not_allowed", "body.scopes.1 enum")
	b.Do("POST", "/account/api-keys", `{}`).Invalid("body.name missing")
	b.Do("POST", "/account/api-keys", nil).Invalid("body missing")
	b.Do("POST", "/account/api-keys", ``).Invalid("body missing")
	b.Do("POST", "/account/api-keys", `{"name":null}`).Invalid("body.name null_not_allowed")
	b.Do("POST", "/account/api-keys", `{"name":"a\u0000b"}`).Invalid("body.name value_error")
	var list apiKeyList
	b.Do("GET", "/account/api-keys", nil).Want(200).Into(&list)
	if list.Total != 1 {
		t.Errorf("a refused request made a key: %+v", list)
	}
}

func TestAPIKeys_Paging(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 6 {
		b.Do("POST", "/account/api-keys", map[string]any{"name": fmt.Sprint("key ", i)}).Want(201)
	}
	read := func(query string) (list apiKeyList) {
		b.Do("GET", "/account/api-keys?"+query, nil).Want(200).Into(&list)
		return list
	}
	var names []string
	pages := 0
	for cursor := ""; ; pages++ {
		list := read("limit=3" + cursor)
		if list.Total != 7 || list.Limit != 3 {
			t.Errorf("page %+v", list)
		}
		for _, k := range list.Items {
			names = append(names, k.Name)
		}
		if list.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *list.NextCursor
	}
	want := []string{"test", "key 0", "key 1", "key 2", "key 3", "key 4", "key 5"}
	if !slices.Equal(names, want) || pages != 2 {
		t.Errorf("names %q on %d pages", names, pages+1)
	}
	if list := read("limit=2&skip=5"); len(list.Items) != 2 || list.Items[0].Name != "key 4" || list.Skip != 5 ||
		list.NextCursor != nil {
		t.Errorf("skipped %+v", list)
	}
	if list := read("skip=99999999999"); len(list.Items) != 0 || list.Total != 7 {
		t.Errorf("far %+v", list)
	}

	cursor := *read("limit=3").NextCursor
	b.Do("GET", "/account/api-keys?skip=1&cursor="+cursor, nil).Invalid("query.skip value_error")
	for name, query := range map[string]string{
		"damaged": "cursor=" + cursor[:len(cursor)-2] + "AA", "cut": "cursor=" + cursor[:4], "nonsense": "cursor=%21",
		"empty":          "cursor=",
		"another filter": "status=active&cursor=" + cursor,
	} {
		if got := b.Do("GET", "/account/api-keys?"+query, nil); got.Status != 400 {
			t.Errorf("%s cursor: %d %s", name, got.Status, got.Body)
		}
	}
	b.As(b.other.Key).Do("GET", "/account/api-keys?cursor="+cursor, nil).Detail(400, "Invalid cursor")
	b.Do("GET", "/account/api-keys?limit=0&skip=-1&status=gone", nil).
		Invalid("query.limit greater_than_equal", "query.skip greater_than_equal", "query.status enum")
	b.Do("GET", "/account/api-keys?cursor=%00", nil).Invalid("query.cursor value_error")
}
