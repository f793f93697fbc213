package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// accountShop is a shop whose keys are of accounts: `A-1` is a key of account A.
type accountShop struct {
	*stack

	api *limitedAPI
	// document is what describes it, with actions of two services.
	document string
}

func serveAccountShop(t *testing.T) *accountShop {
	t.Helper()
	s := &accountShop{api: &limitedAPI{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /me", func(w http.ResponseWriter, r *http.Request) {
		number, _, _ := strings.Cut(r.Header.Get("X-Shop-Key"), "-")
		if number == "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, `{"data":[{"id":%q}]}`, number)
	})
	mux.Handle("/", s.api)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	items := `,"/items":{"put":{"operationId":"put_item","tags":["Items"],"x-shop-ratelimit":{"burst":"1/d"},"responses":{"200":{"description":"ok"}}}}`
	s.document = strings.NewReplacer("HOST", host, "MORE", items).Replace(shop)
	s.stack = serveStack(t, true, func(c *app.Config) {
		c.AllowHosts, c.RequestLimit = append(c.AllowHosts, host),
			1000
	})
	return s
}

func (s *accountShop) load(c *apitest.Client, account any) apitest.Response {
	return c.Do(http.MethodPost, "/catalog/imports", object{"document": s.document, "account": account})
}

var shopAccount = object{"path": "/me", "account_number": "data.0.id"}

// key makes a credential, and returns its id and account.
func (s *accountShop) key(c *apitest.Client, secret string) (id string, account any) {
	s.t.Helper()
	made := c.Do(http.MethodPost, "/credentials", object{"name": secret, "platform_id": "shop",
		"auth_method": "api_key", "credentials": object{"api_key": secret}}).
		Want(http.StatusCreated).JSON()
	return made["id"].(string), made["tenancy_id"]
}

// orders is a flow that calls an operation of the shop.
func (s *accountShop) orders(action, key, params string) string {
	s.t.Helper()
	return s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":%q,"credential_id":%q,"params":%s}]}]`,
		action, key, params))
}

// TestCatalogImport_Account: credentials of an imported platform that are of one account are limited together, over its
// services, by what the organization sets for one of them; those of another account and of another organization are
// not.
func TestCatalogImport_Account(t *testing.T) {
	t.Parallel()
	s := serveAccountShop(t)
	made := s.load(s.Client, shopAccount).Want(http.StatusCreated).JSON()
	assert.Equal(t, shopAccount, made["options"].(map[string]any)["account"])
	assert.Contains(t, fmt.Sprint(made["report"]), "PUT /v1/credentials/{credential_id}/limits",
		"limits of the document are its owner's to set")
	s.load(s.other, shopAccount).Want(http.StatusCreated)

	one, account := s.key(s.Client, "A-1")
	two, same := s.key(s.Client, "A-2")
	else_, another := s.key(s.Client, "B-1")
	foreign, elsewhere := s.key(s.other, "A-3")
	require.NotNil(t, account)
	assert.Equal(t, account, same)
	assert.NotContains(t, []any{another, elsewhere}, account)

	const perSecond, atOnce = 5, 2
	limits := object{"windows": []any{object{"seconds": 1.0, "calls": float64(perSecond), "kind": "rolling"}},
		"max_in_flight": float64(atOnce)}
	s.Do(http.MethodPut, "/credentials/"+one+"/limits", limits).Want(http.StatusOK)
	assert.Equal(t, limits, s.get("/credentials/" + two)["limits"])
	assert.Nil(t, s.get("/credentials/" + else_)["limits"])
	assert.Nil(t, s.other.Do("GET", "/credentials/"+foreign, nil).Want(http.StatusOK).JSON()["limits"])

	rows := `{"records":[` + strings.TrimSuffix(strings.Repeat(`{"id":"a"},`, 7), ",") + `]}`
	batches := []string{
		s.trigger(s.orders("shop__orders__put_order", one, `{"body":{"id":"{{ input.id }}"}}`), rows),
		s.trigger(s.orders("shop__items__put_item", two, `{}`), rows),
	}
	for _, b := range batches {
		assert.Equal(t, map[string]int{"completed": 7}, counted(s.await(b)))
	}
	s.api.mu.Lock()
	calls := slices.Clone(s.api.arrived)
	assert.LessOrEqual(t, s.api.most, atOnce)
	s.api.mu.Unlock()
	require.Len(t, calls, 14)
	for i := perSecond; i < len(calls); i++ {
		assert.Greater(t, calls[i].Sub(calls[i-perSecond]), time.Second, "call %d", i)
	}
	listed := s.get("/flows/calls?tenancy_id=" + account.(string))
	assert.Len(t, listed["items"], 14, "the calls of the account are found by it")

	s.await(s.trigger(s.orders("shop__items__put_item", else_, `{}`), rows))
	assert.Zero(t, s.number(`SELECT count(*) FROM flow.budget WHERE limits IS NOT NULL AND domain <> $1`, account))
	gone := s.Do(http.MethodPut, "/credentials/"+two+"/limits", `{"windows":[]}`).Want(http.StatusOK).JSON()
	assert.Nil(t, gone["limits"])
	assert.Zero(t, s.number(`SELECT count(*) FROM flow.budget WHERE limits IS NOT NULL`))
}

// TestCatalogImport_AccountRefused: nothing is called or limited for an account that is not known, and how accounts are
// told stays as it is while there is a credential.
func TestCatalogImport_AccountRefused(t *testing.T) {
	t.Parallel()
	s := serveAccountShop(t)
	for _, bad := range []object{{"path": "me", "account_number": "id"}, {"path": "/{id}", "account_number": "id"},
		{"path": "/me", "account_number": "a..b"}, {"path": "/me"}} {
		assert.Equal(t, http.StatusUnprocessableEntity, s.load(s.Client, bad).Status, bad)
	}
	s.load(s.Client, shopAccount).Want(http.StatusCreated)
	id, account := s.key(s.Client, "-nobody")
	assert.Nil(t, account)
	s.Do(http.MethodPut, "/credentials/"+id+"/limits", `{"windows":[],"max_in_flight":1}`).Detail(http.StatusConflict,
		"Credential has no provider account")
	flow := s.orders("shop__items__put_item", id, `{}`)
	s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", `{"records":[{}]}`).Detail(http.StatusConflict,
		"Credential has no provider account")

	for _, changed := range []any{nil, object{"path": "/me", "account_number": "data.0.name"}} {
		assert.Contains(t, string(s.load(s.Client, changed).Want(http.StatusConflict).Body), "another account", changed)
	}
	s.load(s.Client, shopAccount).Want(http.StatusCreated)
	s.load(s.other, nil).Want(http.StatusCreated)
	s.load(s.other, shopAccount).Want(http.StatusCreated)
}

// TestCatalogImport_Domains: each operation on Domains works for the accounts of an imported platform, and for its
// organization alone, also where another imported a platform of the same id.
func TestCatalogImport_Domains(t *testing.T) {
	t.Parallel()
	s := serveAccountShop(t)
	s.other.Do(http.MethodGet, "/platforms/shop/domains", nil).Detail(http.StatusNotFound, "Platform not found")
	s.load(s.Client, shopAccount).Want(http.StatusCreated)
	s.other.Do(http.MethodGet, "/platforms/shop/domains", nil).Detail(http.StatusNotFound, "Platform not found")
	key, account := s.key(s.Client, "A-1")
	s.load(s.other, shopAccount).Want(http.StatusCreated)
	_, elsewhere := s.key(s.other, "A-1")

	listed := s.pages("/platforms/shop/domains", 2)
	require.Len(t, listed, 1)
	assert.Equal(t, account, field[string](t, listed[0], "tenancy_id"))
	domain := "/platforms/shop/domains/" + account.(string)
	hold := s.openPause(domain, `{"duration_seconds":600}`)["id"].(string)
	s.trigger(s.orders("shop__items__put_item", key, `{}`), `{"records":[{},{},{}]}`)
	queue := s.get(domain + "/queue")
	assert.Equal(t, []any{3.0, 3.0}, []any{queue["totals"].(object)["queued_records"],
		queue["totals"].(object)["paused_records"]})

	s.Do(http.MethodPut, domain+"/margins/shop", `{"margin_percent":50}`).Detail(http.StatusNotFound,
		"Bucket not found")
	s.Do(http.MethodPost, domain+"/estimate", `{"action_id":"shop__items__put_item","record_count":3}`).Invalid(
		"body.action_id value_error") // nothing is limited
	s.Do(http.MethodPut, "/credentials/"+key+"/limits",
		`{"windows":[{"seconds":3600,"calls":100,"kind":"aligned"}]}`).Want(http.StatusOK)
	assert.Equal(t, []any{"shop"}, s.get(domain)["buckets"])
	assert.Equal(t, 3.0, s.get(domain + "/queue")["buckets"].(object)["shop"].(object)["queued_records"])
	for _, op := range []struct {
		method, path string
		body         any
		status       int
	}{
		{"GET", "", nil, http.StatusOK},
		{"GET", "/headroom", nil, http.StatusOK},
		{"GET", "/queue", nil, http.StatusOK},
		{"GET", "/attribution", nil, http.StatusOK},
		{"GET", "/usage-history", nil, http.StatusOK},
		{"GET", "/margins", nil, http.StatusOK},
		{"PUT", "/margins/shop", `{"margin_percent":50}`, http.StatusOK},
		{"GET", "/lanes", nil, http.StatusOK},
		{"PUT", "/lanes/bulk", `{"weight":3}`, http.StatusOK},
		{"POST", "/estimate", `{"action_id":"shop__items__put_item","record_count":3}`, http.StatusOK},
		{"POST", "/refresh-limits", nil, http.StatusOK},
		{"GET", "/pauses", nil, http.StatusOK},
		{"PATCH", "/pauses/" + hold, `{"duration_seconds":900}`, http.StatusOK},
		{"POST", "/pause", `{"lane":"bulk"}`, http.StatusCreated},
		{"POST", "/resume", nil, http.StatusOK},
	} {
		s.other.Do(op.method, domain+op.path, op.body).Detail(http.StatusNotFound, "Domain not found")
		s.Do(op.method, "/platforms/shop/domains/"+elsewhere.(string)+op.path, op.body).Detail(http.StatusNotFound,
			"Domain not found")
		assert.Equal(t, op.status, s.Do(op.method, domain+op.path, op.body).Status, op.path)
	}
	shown := s.get(domain + "/headroom")["buckets"].(object)["shop"].(object)
	assert.Equal(t, 50.0, shown["windows"].(object)["3600"].(object)["cap"], "half of what the owner set")
	assert.NotEmpty(t, shown["label"])
}
