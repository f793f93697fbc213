package catalog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func load(t *testing.T, o Options) *Catalog {
	t.Helper()
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLoad_Embedded(t *testing.T) {
	t.Parallel()
	c := load(t, Options{})
	up, ok := c.Action("dialer__api__upload")
	if !ok {
		t.Fatal("the dialer's upload is missing")
	}
	if up.ServiceID != "dialer__api" || up.PlatformID != "dialer" || !up.Bulk || up.MaxRecordsPerRequest != 50000 {
		t.Errorf("upload is %+v", up)
	}
	b := c.Bucket(up, "upload")
	if b.MaxRecordsPerRequest != 50000 || len(b.MemberActionIDs) != 1 || b.Windows[3600] != 400 {
		t.Errorf("bucket upload is %+v", b)
	}
	if q := c.Bucket(up, "query"); len(q.MemberActionIDs) != 3 || q.MaxRecordsPerRequest != 1 {
		t.Errorf("bucket query is %+v", q)
	}
	async, _ := c.Action("dialer__api__upload_async")
	if len(async.Call.Answer.Success) != 0 || async.Call.Answer.Pending[0] != 202 ||
		async.Call.Answer.Reference != "import_id" {
		t.Errorf("merge keys were not applied: %+v", async.Call.Answer)
	}
	if !json.Valid(async.ParamsSchema) || !strings.HasPrefix(string(async.ParamsSchema),
		`{"type":"object","additionalProperties":false,"required":["list","row"]`) {
		t.Errorf("params_schema lost its order: %s", async.ParamsSchema)
	}
	if got := len(c.Actions("dialer__api")); got != 7 {
		t.Errorf("the dialer has %d actions", got)
	}
	if c.Services("nobody") != nil || c.Actions("nobody") != nil {
		t.Error("an unknown id has services or actions")
	}
}

func TestLoad_BaseURLs(t *testing.T) {
	t.Parallel()
	c := load(t, Options{BaseURLs: map[string]string{"dialer": "http://127.0.0.1:9000/"}})
	s, _ := c.Service("dialer__api")
	if s.BaseURL != "http://127.0.0.1:9000" {
		t.Errorf("base URL is %q", s.BaseURL)
	}
	if a, _ := c.Action("dialer__api__upload"); a.Service() != s {
		t.Errorf("the action is of a service at %q", a.Service().BaseURL)
	}
	other, _ := load(t, Options{}).Service("dialer__api")
	if other.BaseURL == s.BaseURL || slices.Equal(other.Actions, s.Actions) {
		t.Errorf("another catalog has the base URL %q too", other.BaseURL)
	}
	_, err := Load(Options{BaseURLs: map[string]string{"dialler": "http://a", "dialer": "ftp://a"}})
	for _, want := range []string{`no platform "dialler"`, "whole http or https address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

const good = `id: shop
name: Shop
description: Sells things.
status: active
services:
  - id: shop__api
    name: API
    description: Orders.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://api.shop.example/v2/
    requires_connection: true
    status: active
    credential_fields:
      - {name: api_key, label: Key, type: password, required: true, secret: true}
    actions:
      - id: shop__api__order
        name: Order
        description: Orders one thing.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema:
          type: object
          required: [sku]
          properties: {sku: {type: string}}
        call:
          method: POST
          path: /orders
          body: {sku: "{{ params.sku }}"}
          answer:
            success: [201]
`

// folder writes files into a new folder and returns its path.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoad_Folder(t *testing.T) {
	t.Parallel()
	c := load(t, Options{Dir: folder(t, map[string]string{"shop.yaml": good, "notes.txt": "not a platform"})})
	s, ok := c.Service("shop__api")
	if !ok || s.BaseURL != "https://api.shop.example/v2" {
		t.Fatalf("service is %+v", s)
	}
	a, _ := c.Action("shop__api__order")
	if a.Call.TimeoutSeconds != 30 || a.Call.MaxInFlight != 32 {
		t.Errorf("defaults are missing: %+v", a.Call)
	}
	if string(a.OutputSchema) != "{}" {
		t.Errorf("output_schema is %s", a.OutputSchema)
	}
	ids := []string{}
	for _, p := range c.Platforms() {
		ids = append(ids, p.ID)
	}
	if own := len(ids) - 1; ids[own] != "shop" || !slices.IsSorted(ids[:own]) || !slices.Contains(ids[:own], "dialer") {
		t.Errorf("platforms are %v", ids)
	}
}

func TestLoad_Mistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ old, new, want string }{
		"unknown key": {"status: active\nservices", "statuss: active\nstatus: active\nservices",
			":4: unknown key statuss"},
		"unknown deep key": {"            success: [201]", "            success: [201]\n            succes: [200]",
			":34: unknown key succes"},
		"wrong type":        {"max_records_per_request: 1", "max_records_per_request: many", ":22: cannot unmarshal"},
		"syntax":            {"id: shop\n", "id: [shop\n", "shop.yaml"},
		"empty":             {good, "", "the file is empty"},
		"two documents":     {good, good + "---\nid: x\n", "one file holds one platform"},
		"platform id":       {"id: shop\n", "id: Shop\n", ":1: id is \"Shop\""},
		"taken platform id": {"id: shop\n", "id: dialer\n", `:1: platform "dialer" is already described`},
		"service id": {"id: shop__api\n", "id: other__api\n",
			":6: id is \"other__api\"; it must have the form <platform>__<service>"},
		"action id": {"id: shop__api__order", "id: shop__apiorder", ":18: id is \"shop__apiorder\""},
		"no name":   {"name: Order\n", "name: ' '\n", ":19: name must not be empty"},
		"lane":      {"default_lane: interactive", "default_lane: fast", ":21: default_lane is \"fast\""},
		"bucket": {"default_lane: interactive", "default_lane: interactive\n        buckets: [orders]",
			`:22: service shop__api has no rate bucket "orders"`},
		"outcome check": {"outcome_check: none", "outcome_check: maybe", ":23: outcome_check is \"maybe\""},
		"lookup": {"outcome_check: none", "outcome_check: lookup",
			":28: outcome_check lookup needs a lookup block"},
		"lookup pages": {"          answer:",
			"          lookup: {action: dialer__api__list_imports, digest: d, reference: r, horizon_seconds: 60}\n" +
				"          answer:",
			`a lookup must say how its answer goes on (page), or that it never does (whole: true)`},
		"lookup whole pages": {"          answer:",
			"          lookup: {action: dialer__api__list_imports, digest: d, reference: r, horizon_seconds: 60, " +
				"whole: true, page: {link_header: true}}\n          answer:",
			`a lookup must say how its answer goes on`},
		"lookup no place": {"          answer:",
			"          lookup: {action: dialer__api__list_imports, digest: d, reference: r, horizon_seconds: 60, " +
				"page: {max_pages: 3}}\n          answer:", `a page needs one of cursor, link and link_header`},
		"lookup page twice": {"          answer:",
			"          lookup: {action: dialer__api__list_imports, digest: d, reference: r, horizon_seconds: 60, " +
				"page: {cursor: c, link: l}}\n          answer:", `a page needs one of cursor, link and link_header`},
		"lookup cursor": {"          answer:",
			"          lookup: {action: dialer__api__list_imports, digest: d, reference: r, horizon_seconds: 60, " +
				"page: {cursor: c}}\n          answer:", `must pass the cursor on`},
		"lookup page field": {"          answer:",
			"          lookup: {action: dialer__api__list_imports, digest: d, reference: r, horizon_seconds: 60, " +
				"page: {link: 'a b'}}\n          answer:", `link is "a b"; it must name a field`},
		"lookup page count": {"          answer:",
			"          lookup: {action: dialer__api__list_imports, digest: d, reference: r, horizon_seconds: 60, " +
				"page: {link: l, max_pages: 101}}\n          answer:", `max_pages is 101; it must be from 2 to 100`},
		"keyed": {"outcome_check: none", "outcome_check: keyed",
			":28: outcome_check keyed needs an idempotency_header"},
		"keyed in bulk": {"outcome_check: none", "bulk: true\n        outcome_check: keyed",
			"keyed is for actions of one record: a call with many has no idempotency key; say safe"},
		"key in bulk": {"          method: POST\n",
			"          method: POST\n          idempotency: {body: key}\n          body_form: text\n",
			"only a body with fields"},
		"schema": {"{sku: {type: string}}", "{sku: {type: text}}", ":24: params_schema is no JSON Schema"},
		"remote schema": {"{sku: {type: string}}", "{sku: {$ref: 'http://169.254.169.254/x'}}",
			"reference to another document"},
		"array schema": {"type: object\n", "type: array\n", "params_schema must describe an object"},
		"no schema":    {"params_schema:", "output_schema:", "needs a params_schema"},
		"records":      {"max_records_per_request: 1", "max_records_per_request: 10", ":22: only a bulk action"},
		"bulk": {"max_records_per_request: 1",
			"max_records_per_request: 10\n        bulk: true\n        max_bytes_per_request: 1000",
			"needs a records block"},
		"case": {"success: [201]",
			"success: [201]\n            cases: [{when: '{{ answer.stats == 1 }}', is: maybe}]", `:34: is is "maybe"`},
		"case field of it": {"success: [201]",
			"success: [201]\n            cases: [{when: '{{ answer.stats == 1 }}', is: refused}]",
			`an answer has no "stats"; did you mean "status"?; it has status, headers, body, fault (at character 8)`},
		"case condition": {"success: [201]",
			"success: [201]\n            cases: [{when: '{{ input.ok }}', is: refused}]",
			`:34: template: {{ input.ok }}: "input" is not available here; use answer`},
		"case without when": {"success: [201]", "success: [201]\n            cases: [{is: refused}]",
			":34: when must not be empty"},
		"case waits": {"success: [201]",
			"success: [201]\n            cases: [{when: '{{ true }}', is: refused, wait_seconds: 3}]",
			":34: only retry_later has"},
		"case does not wait": {"success: [201]",
			"success: [201]\n            cases: [{when: '{{ true }}', is: retry_later}]", ":34: wait_seconds"},
		"case field": {"success: [201]",
			"success: [201]\n            cases: [{when: '{{ true }}', is: refused, code: 'a b'}]",
			`:34: code is "a b"`},
		"no success":        {"success: [201]", "refused: [201]", "needs at least one status that proves acceptance"},
		"redirect succeeds": {"success: [201]", "success: [201, 302]", ":33: only a 2xx status proves acceptance"},
		"status twice": {"success: [201]", "success: [201]\n            refused: [201]",
			"status 201 stands in success and in refused"},
		"pending": {"success: [201]", "pending: [202]", "needs a result block"},
		"path":    {"path: /orders", "path: orders", ":30: path must start with /"},
		"path and url": {"path: /orders", "path: /orders\n          url: https://a.example",
			"either a path or a url"},
		"base url": {"https://api.shop.example/v2/", "https://me:pw@api.shop.example",
			":12: base_url: it must not hold credentials"},
		"no base url":      {"https://api.shop.example/v2/", `""`, "needs the base_url"},
		"credential field": {"name: api_key", "name: token", "needs the required credential field \"api_key\""},
		"two places": {"    actions:", "    sign_in: {header: X-Key, query: key}\n    actions:",
			"a key goes into one of header, query and cookie"},
		"scheme alone": {"    actions:", "    sign_in: {scheme: Key}\n    actions:", "a scheme only with header"},
		"place of another": {"auth_method: api_key", "sign_in: {header: X-Key}\n    auth_method: jwt",
			"are for auth_method api_key"},
		"no such field": {"    actions:",
			"    other_auth: [{auth_method: basic_auth, username: '{mail}', password: x}]\n    actions:",
			"there is no credential field for {mail}"},
		"oauth of another": {"    actions:", "    sign_in: {token_url: 'https://a.example/t'}\n    actions:",
			"are for auth_method oauth2"},
		"grant": {"    actions:",
			"    other_auth: [{auth_method: oauth2, grant_type: implicit}]\n    actions:", `grant_type is "implicit"`},
		"grant fields": {"    actions:",
			"    other_auth: [{auth_method: oauth2, grant_type: refresh_token}]\n    actions:",
			`needs the required credential field "refresh_token"`},
		"client in": {"    actions:",
			"    other_auth: [{auth_method: oauth2, client_in: query}]\n    actions:", `client_in is "query"`},
		"half of a consent": {"    actions:",
			"    other_auth: [{auth_method: oauth2, grant_type: authorization_code, token_url: " +
				"'https://a.example/t'}]\n    actions:", "has both token_url and authorize_url"},
		"consent of another": {"    actions:",
			"    other_auth: [{auth_method: oauth2, grant_type: password, authorize_url: 'https://a.example/t'}]\n" +
				"    actions:", "authorize_url is for grant_type authorization_code"},
		"token host": {"    actions:",
			"    other_auth: [{auth_method: oauth2, token_url: 'https://{shop}/t'}]\n    actions:",
			`token_url: the platform has no label "shop"`},
		"scope": {"    actions:", "    other_auth: [{auth_method: oauth2, scopes: ['a b']}]\n    actions:",
			`"a b" is no scope`},
		"grant twice": {"    actions:",
			"    other_auth: [{auth_method: oauth2}, {auth_method: oauth2, grant_type: password}]\n    actions:",
			"auth_method oauth2 stands twice"},
		"header label": {"    actions:", "    headers: {x-region: '{region}'}\n    actions:",
			`headers: the platform has no label "region"`},
		"method twice": {"    actions:", "    other_auth: [{auth_method: api_key}]\n    actions:",
			"auth_method api_key stands twice"},
		"other none": {"    actions:", "    other_auth: [{auth_method: none}]\n    actions:",
			`auth_method is "none"`},
		"fixed header": {"    actions:", "    headers: {'a b': c}\n    actions:", `"a b" is no header`},
		"oauth2": {"auth_method: api_key", "auth_method: oauth2",
			"needs the required credential field \"client_id\""},
		"buckets no account": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, windows: {61: 0}}}\n    actions:",
			"needs an account block"},
		"window": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, windows: {61: 0}}}\n    actions:",
			":17: window 61: 0"},
		"further length": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, further_windows: [{seconds: 7000, calls: 1, " +
				"kind: aligned}]}}\n    actions:", "must fit into a day a whole number of times"},
		"further kind": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, further_windows: [{seconds: 10, calls: 1, " +
				"kind: sliding}]}}\n    actions:", "kind is \"sliding\""},
		"held until what": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, max_in_flight: 1, held_until: answer}}\n" +
				"    actions:", `held_until is "answer"; it must be result, beside max_in_flight`},
		"further twice": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, windows: {60: 1}, further_windows: " +
				"[{seconds: 60, calls: 1, kind: rolling}]}}\n    actions:", "a window of 60 seconds stands twice"},
		"per of nothing": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, per: shop, further_windows: [{seconds: 1, " +
				"calls: 1, kind: rolling}]}}\n    actions:",
			`per is "shop"; it must be credential, user, or a template`},
		"per with spacing": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, per: user, max_in_flight: 1, " +
				"min_spacing_ms: 5}}\n    actions:", "max_in_flight, and nothing else"},
		"per by the clock": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, per: credential, windows: {60: 1}}}\n" +
				"    actions:", "further_windows that roll"},
		"no limit": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, min_spacing_ms: 5}}\n    actions:",
			"needs at least one window, or max_in_flight"},
		"reported limits, window": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, windows: {60: 1}, reported_limits: [{window_seconds: " +
				"61, limit: L}]}}\n    actions:", "the bucket has no window of this length"},
		"reported limits, header": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, windows: {60: 1}, reported_limits: [{window_seconds: " +
				"60, limit: 'a b'}]}}\n    actions:", "is no name of a header"},
		"reported limits, nothing": {"    actions:",
			"    rate_buckets: {orders: {label: O, default_lane: bulk, windows: {60: 1}, reported_limits: " +
				"[{window_seconds: 60}]}}\n    actions:", "it needs the name of a header"},
		"template":      {"{{ params.sku }}", "{{ params.sku + }}", ":31: template: {{ params.sku + }}"},
		"template root": {"{{ params.sku }}", "{{ input.sku }}", ":31: template: {{ input.sku }}"},
		"template parameter": {"{{ params.sku }}", "{{ params.sky }}",
			`:31: template: the action has no parameter "sky"`},
		"path template": {"path: /orders", "path: '/orders/{{ params.sku'", `:30: path: "}}" is missing`},
		"condition": {"          answer:",
			"          outcome_cases: [{when: 'params.sku', check: safe}]\n          answer:",
			":32: template: a condition must be"},
		"utility and call": {"        call:", "        utility: transform\n        call:",
			"needs either a call or a utility"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(good, tc.old) {
				t.Fatalf("the good file lacks %q", tc.old)
			}
			dir := folder(t, map[string]string{"shop.yaml": strings.Replace(good, tc.old, tc.new, 1)})
			_, err := Load(Options{Dir: dir})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "shop.yaml") {
				t.Errorf("error is %v; want %q", err, tc.want)
			}
		})
	}
}

func TestLoad_NamesEveryMistake(t *testing.T) {
	t.Parallel()
	bad := strings.NewReplacer("name: Order\n", "name: ''\n", "default_lane: interactive", "default_lane: fast",
		"path: /orders", "path: orders").Replace(good)
	_, err := Load(Options{Dir: folder(t, map[string]string{"shop.yaml": bad, "other.yml": "id: other\nnme: x\n"})})
	for _, want := range []string{"shop.yaml:19:", "shop.yaml:21:", "shop.yaml:30:", "other.yml:2: unknown key nme"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}
