package openapi_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
	"flowlane/internal/platform/provider"
	"flowlane/test/servers"
)

// prismDocuments are vendors' documents, with how many of their operations are tried, and some that are tried in any
// case.
var prismDocuments = []struct {
	name string
	most int
	also []string
}{
	{"box.json", 40, []string{"PUT /files/upload_sessions/{upload_session_id}", "POST /users/{user_id}/avatar"}},
	{"discord.json", 40, []string{"POST /guilds/{guild_id}/stickers"}},
	{"klaviyo-stable-2026-07-15.json", 40, []string{"POST /api/image-upload"}},
	{"sendgrid_mc_contacts_v3.json", 20, nil},
	{"stripe-spec3-2023-09-12.yaml", 45, []string{"GET /v1/charges"}},
	{"twilio_api_v2010.json", 40, nil},
}

// What Prism makes of forms with deep objects, beside what the document says.
const (
	missesFields = "Prism takes a deep object that was left out for an empty one, and misses its fields"
	knowsText    = "Prism reads every part of a multipart body as text, those of JSON too"
	noValue      = "the document has an enum of nothing, so there are no parameters"
	wantsJSON    = "Prism reads an array of objects in a form as JSON, whatever its style is"
)

// notByPrism are operations that cannot be held against their document by Prism, each with the reason.
var notByPrism = map[string]string{
	"PATCH /guilds/{guild_id}/requests/{request_id}":                        noValue,
	"POST /files/content":                                                   knowsText,
	"POST /files/{file_id}/content":                                         knowsText,
	"GET /v1/invoices/upcoming/lines":                                       missesFields,
	"GET /v1/treasury/received_credits":                                     missesFields,
	"POST /v1/invoiceitems":                                                 missesFields,
	"POST /v1/issuing/cardholders/{cardholder}":                             missesFields,
	"POST /v1/prices":                                                       missesFields,
	"POST /v1/customers/{customer}/subscriptions/{subscription_exposed_id}": wantsJSON,
	"POST /v1/plans":                                                        wantsJSON,
	"POST /v1/products":                                                     wantsJSON,
	"POST /v1/subscription_schedules/{schedule}":                            wantsJSON,
	"POST /v1/subscriptions/{subscription_exposed_id}":                      wantsJSON,
}

// TestImport_Prism: the calls of imported actions, with the parameters that are needed and with most that are not, are
// what Prism takes by the document that they were imported from.
func TestImport_Prism(t *testing.T) {
	t.Parallel()
	var seen tally
	t.Run("documents", func(t *testing.T) {
		for _, d := range prismDocuments {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				tryDocument(t, servers.Document(t, d.name), d.most, d.also, &seen)
			})
		}
	})
	t.Logf("%d operations: %v", seen.operations, seen.kinds)
	for _, kind := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "path", "query", "header", "body as json",
		"body as form", "body as multipart", "body as bytes"} {
		if seen.kinds[kind] == 0 && seen.operations > 0 {
			t.Errorf("nothing tried has %s", kind)
		}
	}
	if seen.operations < 200 && seen.operations > 0 {
		t.Errorf("only %d operations were tried", seen.operations)
	}
}

// tally counts what was tried.
type tally struct {
	mu         sync.Mutex
	operations int
	kinds      map[string]int
}

func (c *tally) add(a *catalog.Action, params []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string]int{}
	}
	c.operations++
	c.kinds[a.Call.Method]++
	var groups map[string]json.RawMessage
	_ = json.Unmarshal(params, &groups)
	for name := range groups {
		if name == "body" {
			name = "body as " + cmp.Or(a.Call.BodyForm, "json")
		}
		c.kinds[name]++
	}
}

var (
	braces     = regexp.MustCompile(`{[^}]*}`)
	expression = regexp.MustCompile(`{{.*?}}`)
	baseURL    = regexp.MustCompile(`(base_url: "?)https?://[^/"\s]+`)
)

// tryDocument imports a document, chooses among its actions, and calls them.
func tryDocument(t *testing.T, file string, most int, also []string, seen *tally) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	only := choose(t, text, most, also)
	r, err := openapi.Import(text, openapi.Options{PlatformID: "vendor", BaseURL: "https://api.vendor.example",
		Only: only})
	if err != nil {
		t.Fatal(err)
	}
	if r.Actions != len(only) {
		t.Errorf("of %d operations %d are imported: %+v", len(only), r.Actions, r.Report)
	}
	var chosen []*catalog.Action
	var operations []string
	for _, s := range load(t, r).Services("vendor") {
		for _, a := range s.Actions {
			chosen, operations = append(chosen, a), append(operations, operationOf(t, a))
		}
	}
	host := servers.Prism(t, []string{file}, "", operations...)
	r.YAML = baseURL.ReplaceAll(r.YAML, []byte("${1}http://"+host))
	c := load(t, r)
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token": "t", "token_type": "Bearer", "expires_in": 3600}`)
	}))
	t.Cleanup(tokens.Close)
	sender := provider.NewSender(provider.Options{AllowHosts: []string{host, strings.TrimPrefix(tokens.URL,
		"http://")}})
	t.Cleanup(sender.Close)
	var next atomic.Int64
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(chosen); i = int(next.Add(1)) - 1 {
				a := action(t, c, chosen[i].ID)
				excuse, refused := excuseOf(a), false
				for _, whole := range []bool{false, true} {
					params := paramsOf(t, a, whole)
					if params == nil {
						continue
					}
					if whole && excuse == "" {
						seen.add(a, params)
					}
					svc, _ := c.Service(a.ServiceID)
					request, err := provider.Prepare(svc, a, params, nil, secretOf(t, svc, host, tokens.URL), "key-1")
					if err != nil {
						t.Errorf("%s %s: %v", a.ID, params, err)
						continue
					}
					answer := sender.Send(t.Context(), request)
					bad := answer.Status < 200 || answer.Status > 399
					refused = refused || bad
					if bad && excuse == "" {
						t.Errorf("%s %s %s\n%s\n%.900s\n%d %v\n%.900s %.900s", operations[i], a.ID, request.URL, params,
							bytes.Join(request.Body, nil),
							answer.Status, answer.Err, answer.Body, answer.Header.Get("Sl-Violations"))
					}
				}
				if excuse != "" && !refused {
					t.Errorf("%s needs no excuse any more: %s", operations[i], excuse)
				}
			}
		})
	}
	done.Wait()
}

// excuseOf is why Prism finds fault with an action; empty where it must not.
func excuseOf(a *catalog.Action) string {
	for operation, why := range notByPrism {
		if braces.ReplaceAllString(operation, "{}") == a.Call.Method+" "+expression.ReplaceAllString(a.Call.Path,
			"{}") {
			return why
		}
	}
	return ""
}

// choose takes operations from all over the document, the same each time, and those of notByPrism, to see whether they
// still belong there.
func choose(t *testing.T, text []byte, most int, also []string) []string {
	t.Helper()
	var document struct {
		Paths map[string]map[string]any `json:"paths" yaml:"paths"`
	}
	if json.Unmarshal(text, &document) != nil {
		if err := yaml.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
	}
	var all, listed []string
	for path, item := range document.Paths {
		for method := range item {
			operation := strings.ToUpper(method) + " " + path
			if slices.Contains([]string{"get", "put", "post", "delete", "patch"}, method) && !slices.Contains(also,
				operation) {
				switch notByPrism[operation] {
				case "":
					all = append(all, operation)
				case noValue:
				default:
					listed = append(listed, operation)
				}
			}
		}
	}
	order := func(operation string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(operation))
		return h.Sum64()
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(order(a), order(b)) })
	return slices.Concat(all[:min(most, len(all))], also, listed)
}

// operationOf is what an action calls, as Prism finds it in a document.
func operationOf(t *testing.T, a *catalog.Action) string {
	t.Helper()
	u, err := url.Parse(a.Service().BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	path, _, _ := strings.Cut(expression.ReplaceAllString(a.Call.Path, "{}"), "?")
	return a.Call.Method + " " + strings.TrimSuffix(u.Path, "/") + path
}

func secretOf(t *testing.T, svc *catalog.Service, host, tokens string) provider.Secret {
	t.Helper()
	if svc.AuthMethod == "none" {
		return provider.Secret{}
	}
	fields := map[string]string{}
	for _, f := range svc.CredentialFields {
		fields[f.Name] = "word"
	}
	spec := provider.Spec{Method: svc.AuthMethod, PlatformID: svc.PlatformID, Fields: fields,
		Origins: []string{"http://" + host}, SignIn: svc.SignIn, TokenURL: tokens}
	if spec.Placement = (provider.Placement{HeaderName: svc.SignIn.Header,
		Scheme: svc.SignIn.Scheme}); !svc.SignIn.Placed() {
		spec.Placement.HeaderName = "Authorization"
	}
	s, err := provider.NewSecret(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
