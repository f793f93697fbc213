package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// shop describes an API with a key in a header. MORE are further paths.
const shop = `{"openapi":"3.1.0","info":{"title":"Shop"},"servers":[{"url":"http://HOST"}],
	"security":[{"key":[]}],"components":{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"X-Shop-Key"}}},
	"paths":{"/orders":{"put":{"operationId":"put_order","tags":["Orders"],
		"parameters":[{"name":"dry","in":"query","schema":{"type":"boolean"}}],
		"requestBody":{"required":true,"content":{"application/json":{"schema":{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}}}},
		"responses":{"200":{"description":"ok","content":{"application/json":{"schema":{"type":"object"}}}}}}}MORE}}`

// importing is a stack beside a shop, which notes what it is asked.
type importing struct {
	*stack

	host string
	mu   sync.Mutex
	seen []string
}

func serveImports(t *testing.T) *importing {
	t.Helper()
	s := &importing{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, r.Method+" "+r.URL.String()+" "+r.Header.Get("X-Shop-Key"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"ok":true}`)
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	s.stack = serveStack(t, true, func(c *app.Config) {
		c.AllowHosts, c.RequestLimit = append(c.AllowHosts, s.host),
			1000
	})
	return s
}

func (s *importing) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.seen...)
}

// load imports the shop with more paths, as the client's organization.
func (s *importing) load(c *apitest.Client, document string, options map[string]any) apitest.Response {
	s.t.Helper()
	body := map[string]any{"document": strings.ReplaceAll(document, "HOST", s.host)}
	for name, value := range options {
		body[name] = value
	}
	return c.Do(http.MethodPost, "/catalog/imports", body)
}

const cancelPath = `,"/orders/{id}":{"delete":{"operationId":"cancel","tags":["Orders"],"parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}],"responses":{"204":{"description":"gone"}}}}`

var (
	shopPlain  = strings.ReplaceAll(shop, "MORE", "")
	shopCancel = strings.ReplaceAll(shop, "MORE", cancelPath)
)

// slug is an id that nothing else has.
func (s *stack) slug() string { return strings.ReplaceAll(s.unique(), "-", "_") }

// importBody asks for a platform of this id.
func (s *stack) importBody(id string) string {
	s.t.Helper()
	body, err := json.Marshal(map[string]string{"document": strings.ReplaceAll(shopPlain, "HOST", "shop.example"),
		"platform_id": id})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}

// imported is a platform of the organization.
func (s *stack) imported() (id string) {
	s.t.Helper()
	id = s.slug()
	s.Do(http.MethodPost, "/catalog/imports", s.importBody(id)).Want(http.StatusCreated)
	return id
}

// TestCatalogImport: an imported platform is seen and called by its organization alone, in its newest version.
func TestCatalogImport(t *testing.T) {
	t.Parallel()
	s := serveImports(t)
	try := s.load(s.Client, shopCancel, map[string]any{"dry_run": true}).Want(http.StatusCreated).JSON()
	assert.Equal(t, []any{false, 2.0, 1.0}, []any{try["stored"], try["actions"], try["version"]})
	s.Do("GET", "/catalog/imports/shop", nil).Want(http.StatusNotFound)

	made := s.load(s.Client, shopCancel, map[string]any{"only": []string{"put_order"}}).Want(http.StatusCreated).JSON()
	assert.Equal(t, []any{"shop", 1.0, 1.0, 1.0, true}, []any{made["platform_id"], made["version"], made["actions"],
		made["operations_skipped"], made["stored"]})

	// Only its organization sees it.
	nobody, stranger := s.As(""), s.As("flow_unknown_key")
	for _, path := range []string{"/catalog/platforms/shop", "/catalog/services/shop__orders",
		"/catalog/services/shop__orders/actions", "/catalog/actions/shop__orders__put_order"} {
		s.Do("GET", path, nil).Want(http.StatusOK)
		for who, c := range map[string]*apitest.Client{"nobody": nobody, "a bad key": stranger,
			"another organization": s.other} {
			assert.Equal(t, http.StatusNotFound, c.Do("GET", path, nil).Status, "%s: %s", who, path)
		}
	}
	for _, path := range []string{"/catalog/platforms", "/catalog/services", "/catalog/actions?limit=200",
		"/catalog/platforms/shop/services"} {
		own, others := s.Do("GET", path, nil).Want(http.StatusOK), s.other.Do("GET", path, nil).Want(http.StatusOK)
		shop := regexp.MustCompile(`"id":"shop("|__)`)
		assert.Regexp(t, shop, string(own.Body), path)
		assert.NotRegexp(t, shop, string(others.Body)+string(nobody.Do("GET", path, nil).Want(http.StatusOK).Body),
			path)
		assert.NotEqual(t, own.Header.Get("ETag"), others.Header.Get("ETag"), path)
		assert.Equal(t, []string{"private, no-cache", "public, no-cache"}, []string{own.Header.Get("Cache-Control"),
			others.Header.Get("Cache-Control")}, path)
		s.Do("GET", path, nil, "If-None-Match", own.Header.Get("ETag")).Want(http.StatusNotModified)
		s.Do("GET", path, nil, "If-None-Match", others.Header.Get("ETag")).Want(http.StatusOK)
	}
	assert.Empty(t, s.other.Do("GET", "/catalog/imports", nil).Want(http.StatusOK).JSON()["items"])
	s.other.Do("GET", "/catalog/imports/shop", nil).Want(http.StatusNotFound)
	s.other.Do("DELETE", "/catalog/imports/shop", nil).Want(http.StatusNotFound)
	const credential = `{"name":"shop","platform_id":"shop","auth_method":"api_key","credentials":{"api_key":"k-1"}}`
	s.other.Do("POST", "/credentials", credential).Detail(http.StatusNotFound, "Platform not found")
	key := s.Do("POST", "/credentials", credential).Want(http.StatusCreated).JSON()
	assert.Equal(t, []any{"http://" + s.host}, key["allowed_origins"])
	steps := fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"shop__orders__put_order","credential_id":%q,"params":{"body":{"id":"{{ input.id }}"}}}]}]`, key["id"])
	foreign := `{"name":"x","steps":` + strings.Replace(steps, key["id"].(string), s.credential, 1) + `}`
	s.other.Do("POST", "/flows/definitions", foreign).Want(http.StatusUnprocessableEntity)
	assert.Equal(t, http.StatusUnprocessableEntity, s.other.Do("POST", "/flows/definitions/validate", foreign).Status)
	// so that it has a catalog of its own, too
	s.load(s.other, shopPlain, map[string]any{"platform_id": "own"}).Want(http.StatusCreated)
	assert.Equal(t, http.StatusUnprocessableEntity, s.other.Do("POST", "/flows/definitions/validate", foreign).Status)
	assert.NotContains(t, string(s.other.Do("GET", "/catalog/actions?limit=500", nil).Want(http.StatusOK).Body),
		"shop__")

	// It is called.
	flow := s.define(steps)
	assert.Equal(t, map[string]int{"completed": 2},
		counted(s.await(s.trigger(flow, `{"records":[{"id":"a"},{"id":"b"}]}`))))
	assert.Equal(t, []string{"PUT /orders k-1", "PUT /orders k-1"}, s.calls())
	dry := s.Do("POST", "/flows/definitions/"+flow+"/dry-run", `{"input_data":{"id":"a"}}`).Want(http.StatusOK)
	assert.Contains(t, string(dry.Body), "http://"+s.host+"/orders")

	// The next version counts for what is there already, and for runs that are under way.
	twice := strings.Replace(steps, `}]}]`, `}]},{"id":"w","tasks":[{"id":"w","action_id":"core__flow__delay",`+
		`"params":{"seconds":3}}]},`+strings.NewReplacer(`"id":"s"`, `"id":"again"`, `"id":"t"`, `"id":"u"`).Replace(steps[1:]), 1)
	long := s.define(twice)
	underWay := s.trigger(long, `{"records":[{"id":"w"}]}`)
	s.eventually(func() bool { return len(s.calls()) == 3 })
	changed := strings.ReplaceAll(shopCancel, `"/orders"`, `"/v2/orders"`)
	next := s.load(s.Client, changed, nil).Want(http.StatusCreated).JSON()
	assert.EqualValues(t, 2, next["version"])
	var effects []string
	for _, c := range next["changes"].([]any) {
		effects = append(effects, c.(map[string]any)["effect"].(string)+" "+c.(map[string]any)["id"].(string))
	}
	assert.Equal(t, []string{"changed shop__orders__put_order", "added shop__orders__cancel"}, effects)
	assert.Equal(t, map[string]int{"completed": 1}, counted(s.await(underWay)))
	assert.Equal(t, map[string]int{"completed": 1}, counted(s.await(s.trigger(flow, `{"records":[{"id":"c"}]}`))))
	assert.Equal(t, []string{"PUT /orders k-1", "PUT /v2/orders k-1", "PUT /v2/orders k-1"}, s.calls()[2:])
	assert.Len(t, s.get("/catalog/imports/shop")["versions"], 2)

	// What is used cannot go, and a secret goes nowhere else.
	only := map[string]any{"only": []string{"cancel"}}
	assert.Contains(t, string(s.load(s.Client, changed, only).Want(http.StatusConflict).Body),
		"Action shop__orders__put_order would be gone, which definition "+flow+" uses")
	s.Do("DELETE", "/catalog/imports/shop", nil).Want(http.StatusConflict)
	elsewhere := strings.ReplaceAll(shopCancel, "http://HOST", "https://evil.example")
	assert.Contains(t, string(s.load(s.Client, elsewhere, nil).Want(http.StatusConflict).Body), "https://evil.example")
	for _, id := range []string{flow, long} {
		s.Do("PATCH", "/flows/definitions/"+id, `{"status":"archived"}`).Want(http.StatusOK)
	}
	s.load(s.Client, changed, only).Want(http.StatusCreated)
	assert.Contains(t, string(s.Do("DELETE", "/catalog/imports/shop", nil).Want(http.StatusConflict).Body),
		"credential")
	s.Do("DELETE", "/credentials/"+key["id"].(string), nil).Want(http.StatusNoContent)
	s.Do("DELETE", "/catalog/imports/shop", nil).Want(http.StatusNoContent)
	s.Do("GET", "/catalog/platforms/shop", nil).Want(http.StatusNotFound)
	s.load(s.Client, elsewhere, nil).Want(http.StatusCreated)
}

// TestCatalogImport_Same: two organizations have platforms of one id, and each calls its own.
func TestCatalogImport_Same(t *testing.T) {
	t.Parallel()
	s := serveImports(t)
	s.load(s.Client, shopPlain, nil).Want(http.StatusCreated)
	s.load(s.other, strings.ReplaceAll(shopPlain, `"/orders"`, `"/other/orders"`), nil).Want(http.StatusCreated)
	for _, c := range []struct {
		client *apitest.Client
		key    string
	}{{s.Client, "mine"}, {s.other, "theirs"}} {
		own := *s.stack
		own.Client = c.client
		id := c.client.Do("POST", "/credentials",
			fmt.Sprintf(`{"name":"shop","platform_id":"shop","auth_method":"api_key","credentials":{"api_key":%q}}`,
				c.key)).
			Want(http.StatusCreated).JSON()["id"]
		flow := own.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"shop__orders__put_order","credential_id":%q,"params":{"body":{"id":"a"}}}]}]`, id))
		assert.Equal(t, map[string]int{"completed": 1}, counted(own.await(own.trigger(flow, `{"input_data":{}}`))))
	}
	assert.Equal(t, []string{"PUT /orders mine", "PUT /other/orders theirs"}, s.calls())
}

// TestCatalogImport_Refused: what cannot be imported says why, whatever the document holds.
func TestCatalogImport_Refused(t *testing.T) {
	t.Parallel()
	s := serveImports(t)
	deep := `{"openapi":"3.1.0","info":{"title":"Deep"},"paths":` + strings.Repeat(`{"a":`, 100_000) + `1` +
		strings.Repeat(`}`, 100_000) + `}`
	bomb := "openapi: 3.1.0\ninfo: {title: Bomb}\nx0: &x0 [a, a]\n"
	for i := 1; i < 40; i++ {
		bomb += fmt.Sprintf("x%d: &x%d [*x%d, *x%d]\n", i, i, i-1, i-1)
	}
	bomb += "paths: {/a: {get: {parameters: *x39, responses: *x39}}}\n"
	for name, c := range map[string]struct {
		document string
		options  map[string]any
		status   int
		says     string
	}{
		"a platform of ours": {shopPlain, map[string]any{"platform_id": "dialer"}, 409,
			"Platform dialer comes with the service"},
		"no slug":           {shopPlain, map[string]any{"platform_id": "A b"}, 422, "must be a slug"},
		"an unknown scheme": {shopPlain, map[string]any{"auth": []string{"basic"}}, 422, "it has: key"},
		"an unknown operation": {shopPlain, map[string]any{"only": []string{"nope"}}, 422,
			"o operation of the document matches"},
		"nothing to import": {`{"openapi":"3.1.0","info":{"title":"Empty"},"paths":{}}`, nil, 422,
			"No operation can be carried over"},
		"Swagger":       {`{"swagger":"2.0"}`, nil, 422, "convert it to OpenAPI 3"},
		"no document":   {"%", nil, 422, ""},
		"deep":          {deep, nil, 422, ""},
		"an alias bomb": {bomb, map[string]any{"base_url": "https://a.example"}, 0, ""},
		"another document": {`{"openapi":"3.1.0","info":{"title":"Far"},"paths":{"/a":{"$ref":"http://HOST/x#/y"}}}`,
			nil, 422, "No operation"},
	} {
		got := s.load(s.Client, c.document, c.options)
		if c.status == 0 {
			assert.Less(t, got.Status, 500, name)
			continue
		}
		assert.Equal(t, c.status, got.Status, "%s: %.300s", name, got.Body)
		assert.Contains(t, string(got.Body), c.says, name)
	}
	assert.Empty(t, s.calls(), "nothing is fetched")
	large := strings.Replace(shopPlain, `"title":"Shop"`, `"title":"Shop","description":"`+strings.Repeat("x", 6<<20)+
		`"`, 1)
	assert.Equal(t, http.StatusRequestEntityTooLarge, s.load(s.Client, large, nil).Status)
}

// TestCatalogImport_Room: an organization may have twenty platforms, and what others have takes nothing of that.
func TestCatalogImport_Room(t *testing.T) {
	t.Parallel()
	s := serveImports(t)
	ids := make([]string, 20)
	for i := range ids {
		ids[i] = s.imported()
	}
	refused := s.load(s.Client, shopPlain, map[string]any{"platform_id": s.slug()}).Want(http.StatusUnprocessableEntity)
	assert.Contains(t, string(refused.Body), "has 20 imported platforms")
	s.load(s.Client, shopCancel, map[string]any{"platform_id": ids[0]}).Want(http.StatusCreated)
	s.load(s.other, shopPlain, nil).Want(http.StatusCreated)
	s.Do(http.MethodDelete, "/catalog/imports/"+ids[1], nil).Want(http.StatusNoContent)
	s.load(s.Client, shopPlain, map[string]any{"platform_id": s.slug()}).Want(http.StatusCreated)
}
