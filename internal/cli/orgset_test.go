package cli_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// TestOrg_Set: what one cause may lead to is the operator's to say.
func TestOrg_Set(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	var org struct {
		ID          string
		StartBudget int `json:"start_budget"`
	}
	output(t, env, &org, "org", "create", "--name", "Acme")
	all := []struct {
		StartBudget int `json:"start_budget"`
	}{{}}
	if output(t, env, &all, "org", "list"); all[0].StartBudget != 1000 {
		t.Errorf("the first budget is %d", all[0].StartBudget)
	}
	if output(t, env, &org, "org", "set", "--org", org.ID, "--start-budget", "7"); org.StartBudget != 7 {
		t.Errorf("the budget is %d", org.StartBudget)
	}
	for _, budget := range []string{"0", "1000001"} {
		if code, text := fails(t, env, "org", "set", "--org", org.ID, "--start-budget", budget); code != 1 ||
			!strings.Contains(text, "--start-budget") {
			t.Errorf("%s: %d %s", budget, code, text)
		}
	}
}

// TestOrg_SetQuota: quotas that are not the default are shown, and taken back.
func TestOrg_SetQuota(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	list := func() map[string]int {
		var all []struct{ Quotas map[string]int }
		output(t, env, &all, "org", "list")
		return all[0].Quotas
	}
	var set struct{ Quotas map[string]int }
	output(t, env, &set, "org", "set", "--org", org.ID, "--quota", "webhooks=5", "--quota", "open_batches=0")
	want := map[string]int{"webhooks": 5, "open_batches": 0}
	if got := list(); !maps.Equal(got, want) || !maps.Equal(set.Quotas, want) {
		t.Errorf("the quotas are %v and %v", got, set.Quotas)
	}
	output(t, env, &set, "org", "set", "--org", org.ID, "--quota", "webhooks=default", "--quota", "open_batches=7",
		"--start-budget", "9")
	if got := list(); !maps.Equal(got, map[string]int{"open_batches": 7}) {
		t.Errorf("the quotas are %v", got)
	}
	for _, tt := range [][]string{{"--quota", "hooks=5"}, {"--quota", "webhooks=-1"}, {"--quota", "webhooks=many"},
		{"--quota", "webhooks=1000000000000001"}, {}} {
		if code, text := fails(t, env, append([]string{"org", "set", "--org", org.ID}, tt...)...); code != 1 ||
			!strings.Contains(text, "--quota") {
			t.Errorf("%v: %d %s", tt, code, text)
		}
	}
	nobody := "00000000-0000-0000-0000-000000000000"
	if code, text := fails(t, env, "org", "set", "--org", nobody, "--quota", "webhooks=5"); code != 1 ||
		!strings.Contains(text, "there is no organization") {
		t.Errorf("%d %s", code, text)
	}
}

// TestOrg_SetRequestLimit: so are the requests that it may make, by operation; what is not named stays.
func TestOrg_SetRequestLimit(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	type facts struct {
		ID            string
		StartBudget   int               `json:"start_budget"`
		RequestLimits map[string]string `json:"request_limits"`
	}
	var org facts
	output(t, env, &org, "org", "create", "--name", "Acme")
	id := org.ID
	for _, step := range []struct {
		flags []string
		want  map[string]string
	}{
		{[]string{"--request-limit", "getMe=70 per 1 minute", "--request-limit", "createTenant=5 per 60 minute"},
			map[string]string{"getMe": "70 per 1 minute", "createTenant": "5 per 60 minute"}},
		{[]string{"--start-budget", "7"}, map[string]string{"getMe": "70 per 1 minute",
			"createTenant": "5 per 60 minute"}},
		{[]string{"--request-limit", "getMe=default", "--request-limit", "createTenant=6 per 60 minute"},
			map[string]string{"createTenant": "6 per 60 minute"}},
	} {
		org = facts{}
		output(t, env, &org, append([]string{"org", "set", "--org", id}, step.flags...)...)
		if !maps.Equal(org.RequestLimits, step.want) {
			t.Errorf("%s: %+v", step.flags, org)
		}
	}
	var entries int
	err := pool.QueryRow(t.Context(), "SELECT count(*) FROM flow.audit_log WHERE org_id = $1 AND action = 'org set'",
		id).Scan(&entries)
	if err != nil || entries != 3 {
		t.Errorf("%d entries in the audit log, %v", entries, err)
	}
	var all []facts
	if output(t, env, &all, "org", "list"); len(all) != 1 || all[0].StartBudget != 7 ||
		all[0].RequestLimits["createTenant"] != "6 per 60 minute" {
		t.Errorf("org list: %+v", all)
	}
	for flag, want := range map[string]string{
		"": "nothing to set", "--request-limit=nothing=6 per 1 minute": "operationId",
		"--request-limit=listPlatforms=6 per 1 minute": "operationId",
		"--request-limit=getMe=6":                      `"6000 per 1 minute"`,
		"--request-limit=getMe=0 per 1 minute":         `"6000 per 1 minute"`,
	} {
		args := []string{"org", "set", "--org", id, flag}
		if flag == "" {
			args = args[:4]
		}
		if code, text := fails(t, env, args...); code != 1 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", flag, code, text)
		}
	}
}

// TestOrg_Suspend: a suspended organization is refused, until that is taken back.
func TestOrg_Suspend(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID, Status string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test", "--expires-in", "1h")
	for _, tt := range []struct {
		flag   []string
		status string
		want   int
	}{{nil, "suspended", http.StatusUnauthorized}, {[]string{"--resume"}, "active", http.StatusOK}} {
		output(t, env, &org, append([]string{"org", "suspend", "--org", org.ID}, tt.flag...)...)
		var at urlFacts
		p := launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
		if status := get(t, at.URL+"/v1/account/me", key.Key, nil); status != tt.want || org.Status != tt.status {
			t.Errorf("%s: %d, want %d", org.Status, status, tt.want)
		}
		p.stop(t, syscall.SIGINT)
	}
	var all []struct {
		ID   string
		Keys int `json:"active_api_keys"`
	}
	if output(t, env, &all, "org", "list"); len(all) != 1 || all[0].ID != org.ID || all[0].Keys != 1 {
		t.Errorf("org list: %+v", all)
	}
}

// TestAPIKey_Create: a key has the role, the scopes and the end that it was made with.
func TestAPIKey_Create(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	create := []string{"apikey", "create", "--org", org.ID, "--name", "test"}
	for flag, want := range map[string]string{
		"--scope=jobs:all": "record-sets:write", "--scope=jobs:read,jobs": `--scope "jobs"`, "--role=owner": "admin",
		"--expires-in=-1h": "--expires-in",
	} {
		if _, said := fails(t, env, append(create, flag)...); !strings.Contains(said, want) {
			t.Errorf("%s: %s", flag, said)
		}
	}
	var whole, narrow struct{ Key string }
	output(t, env, &whole, create...)
	output(t, env, &narrow, append(create, "--role", "member", "--scope", "jobs:read,account:read", "--scope",
		"stores:write", "--expires-in", "1h")...)
	var at urlFacts
	launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	client := apitest.NewClient(t, at.URL, narrow.Key)
	items := client.Do("GET", "/account/api-keys", nil).Want(http.StatusOK).JSON()["items"].([]any)
	for i, want := range []string{"admin <nil> false", "member [account:read jobs:read stores:write] true"} {
		k := items[i].(map[string]any)
		if got := fmt.Sprint(k["role"], " ", k["scopes"], " ", k["expires_at"] != nil); got != want {
			t.Errorf("key %d: %s, want %s", i, got, want)
		}
	}
	client.Do("GET", "/data/stores", nil).Want(http.StatusOK)
	client.Do("GET", "/flows/batches", nil).Detail(http.StatusForbidden, "Scope batches:read required")
	client.Do("POST", "/data/stores", `{"name":"s","fields":[],"layers":["l"]}`).Detail(http.StatusForbidden,
		"Admin role required")
}

// TestOrg_Link: an organization is let in under the name that the identity provider gave it.
func TestOrg_Link(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	issuer := apitest.NewIssuer(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK, "FLOWLANE_JWT_ISSUER=" + apitest.TokenIssuer,
		"FLOWLANE_JWT_AUDIENCE=" + apitest.TokenAudience, "FLOWLANE_JWT_KEYS_URL=" + issuer.KeysURL,
		"FLOWLANE_JWT_ORG_CLAIM=tenant", "FLOWLANE_JWT_ROLE_CLAIM=roles", "FLOWLANE_JWT_ADMIN_ROLE=owner"}
	var acme, other struct {
		ID         string
		ExternalID string `json:"external_id"`
	}
	output(t, env, &acme, "org", "create", "--name", "Acme", "--external-id", "acme-corp")
	output(t, env, &other, "org", "create", "--name", "Other")
	if code, said := fails(t, env, "org", "link", "--org", other.ID, "--external-id", "acme-corp"); code != 1 ||
		!strings.Contains(said, "org list") {
		t.Errorf("a name of another: exit %d, %s", code, said)
	}
	if code, said := fails(t, env, "org", "link", "--org", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11", "--external-id",
		"x"); code != 1 || !strings.Contains(said, "no organization") {
		t.Errorf("an unknown organization: exit %d, %s", code, said)
	}
	if code, said := fails(t, env, "org", "create", "--name", "Third", "--external-id", "acme-corp"); code != 1 ||
		!strings.Contains(said, "org list") {
		t.Errorf("a name of another: exit %d, %s", code, said)
	}
	output(t, env, &other, "org", "link", "--org", other.ID, "--external-id", "other-corp")
	var at urlFacts
	launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	client := apitest.NewClient(t, at.URL, "")
	for name, want := range map[string]string{"acme-corp": acme.ID, "other-corp": other.ID, acme.ID: acme.ID} {
		token := issuer.Token("", map[string]any{"tenant": name, "roles": []string{"viewer", "owner"}})
		me := client.Bearer(token).Do("GET", "/account/me", nil).Want(http.StatusOK).JSON()
		if got := me["organization"].(map[string]any)["id"]; got != want || me["role"] != "admin" {
			t.Errorf("%s: %v, want %s", name, me, want)
		}
	}
	output(t, env, &other, "org", "link", "--org", other.ID, "--external-id", "")
	client.Bearer(issuer.Token("", map[string]any{"tenant": "other-corp", "sub": "user-2"})).Do("GET", "/account/me",
		nil).Want(http.StatusUnauthorized)
	var all []struct {
		ExternalID *string `json:"external_id"`
	}
	output(t, env, &all, "org", "list")
	if len(all) != 2 || all[0].ExternalID == nil || *all[0].ExternalID != "acme-corp" || all[1].ExternalID != nil {
		t.Errorf("org list: %+v", all)
	}
}
