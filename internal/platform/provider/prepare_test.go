package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"flowlane/internal/platform/catalog"
)

func bodyOf(r Request) string { return string(bytes.Join(r.Body, nil)) }

func TestPrepare_Bulk(t *testing.T) {
	t.Parallel()
	svc, act := action(t, testCatalog(t), "dialer__api__upload")
	rows := []byte(`[{"id":1},{"id":2}]`)
	for params, want := range map[string]string{
		`{"list":"a b/c"}`:                `{"key_field":"id","rows":[{"id":1},{"id":2}]}`,
		`{"list":"demo","key_field":"n"}`: `{"key_field":"n","rows":[{"id":1},{"id":2}]}`,
	} {
		r, err := Prepare(svc, act, json.RawMessage(params), rows, basic(t), "")
		if err != nil {
			t.Fatal(err)
		}
		if bodyOf(r) != want || r.Size() != int64(len(want)) {
			t.Errorf("body is %s; want %s", bodyOf(r), want)
		}
		if &r.Body[1][0] != &rows[0] {
			t.Error("the rows were copied")
		}
		if r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("Authorization") != "Basic YW5uOnMzY3JldC13b3Jk" {
			t.Errorf("request is %+v", r)
		}
	}
	r, _ := Prepare(svc, act, json.RawMessage(`{"list":"a b/c?x"}`), rows, basic(t), "")
	if want := "https://api.dialer.example/lists/a%20b%2Fc%3Fx/upload"; r.URL != want {
		t.Errorf("URL is %s; want %s", r.URL, want)
	}
	if _, err := Prepare(svc, act, json.RawMessage(`{"list":"x"}`), nil, basic(t), ""); err == nil {
		t.Error("a bulk action without rows was prepared")
	}
}

func TestPrepare_Single(t *testing.T) {
	t.Parallel()
	svc, act := action(t, testCatalog(t), "parcels__api__send")
	params := json.RawMessage(`{"depot":12345678901234567890,"q":"a&b=c d","weight":1.50,"note":"hi"}`)
	r, err := Prepare(svc, act, params, nil, apiKey(t, Placement{HeaderName: "x-api-key", Scheme: "Key"}), "job-1")
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://parcels.example/v1/depots/12345678901234567890/parcels?q=a%26b%3Dc+d&v=2"; r.URL != want {
		t.Errorf("URL is %s; want %s", r.URL, want)
	}
	if want := `{"weight":1.50,"note":"say hi","zebra":1,"ant":2}`; bodyOf(r) != want {
		t.Errorf("body is %s; want %s", bodyOf(r), want)
	}
	for name, want := range map[string]string{"X-Api-Key": "Key k3y&=", "X-Note": "hi", "X-Static": "always",
		"Idempotency-Key": "job-1", "User-Agent": "flowlane"} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("header %s is %q; want %q", name, got, want)
		}
	}
	r, err = Prepare(svc, act, params, nil, apiKey(t, Placement{QueryParam: "key"}), "")
	if err != nil || !strings.HasSuffix(r.URL, "&v=2&key=k3y%26%3D") {
		t.Errorf("URL is %s, error %v", r.URL, err)
	}
}

func TestPrepare_HTTPRequest(t *testing.T) {
	t.Parallel()
	svc, act := action(t, testCatalog(t), "core__http__request")
	for name, tc := range map[string]struct{ params, method, url, body, key string }{
		"get": {`{"url":"http://a.example/x?y=1#z"}`, "GET", "http://a.example/x?y=1", "", ""},
		"post": {`{"url":"https://a.example","method":"POST","body":[1, 2.0]}`, "POST", "https://a.example",
			"[1, 2.0]", ""},
		"string body": {`{"url":"https://a.example","method":"PUT","body":"x"}`, "PUT", "https://a.example", `"x"`, ""},
		"keyed": {`{"url":"https://a.example","method":"POST","idempotency_header":"Idempotency-Key"}`, "POST",
			"https://a.example", "", "k"},
	} {
		r, err := Prepare(svc, act, json.RawMessage(tc.params), nil, Secret{}, "k")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r.Method != tc.method || r.URL != tc.url || bodyOf(r) != tc.body ||
			r.Header.Get("Idempotency-Key") != tc.key {
			t.Errorf("%s: request is %+v, body %s", name, r, bodyOf(r))
		}
		if (r.Header.Get("Content-Type") != "") != (tc.body != "") {
			t.Errorf("%s: content type is %q", name, r.Header.Get("Content-Type"))
		}
	}
	r, err := Prepare(svc, act, json.RawMessage(
		`{"url":"https://a.example","headers":{"x-a":"b","n":7,"z":null,"Authorization":"Bearer t"}}`), nil, Secret{},
		"")
	if err != nil || r.Header.Get("X-A") != "b" || r.Header.Get("N") != "7" ||
		r.Header.Get("Authorization") != "Bearer t" || len(r.Header["Z"]) > 0 {
		t.Errorf("headers are %v, error %v", r.Header, err)
	}
}

func TestPrepare_Refuses(t *testing.T) {
	t.Parallel()
	c := testCatalog(t)
	for name, tc := range map[string]struct {
		action, params, want string
		secret               Secret
	}{
		"host header": {"core__http__request", `{"url":"http://a.example","headers":{"host":"b"}}`, "host",
			Secret{}},
		"length header": {"core__http__request", `{"url":"http://a.example","headers":{"CONTENT-LENGTH":"1"}}`,
			"CONTENT-LENGTH", Secret{}},
		"hop header": {"core__http__request",
			`{"url":"http://a.example","headers":{"Transfer-Encoding":"chunked"}}`, "Transfer-Encoding", Secret{}},
		"line break": {"core__http__request", `{"url":"http://a.example","headers":{"A":"b\r\nHost: c"}}`,
			"line break", Secret{}},
		"name": {"core__http__request", `{"url":"http://a.example","headers":{"A b":"c"}}`, "no name",
			Secret{}},
		"object header": {"core__http__request", `{"url":"http://a.example","headers":{"A":{}}}`, "must be a string",
			Secret{}},
		"list headers": {"core__http__request", `{"url":"http://a.example","headers":[]}`, "must be an object",
			Secret{}},
		"auth header": {"core__http__request", `{"url":"http://a.example","headers":{"authorization":"x"}}`,
			"set by the credential", basic(t)},
		"auth parameter": {"core__http__request", `{"url":"http://a.example?key=1"}`, "set by the credential",
			apiKey(t, Placement{QueryParam: "key"})},
		"key header": {"core__http__request", `{"url":"http://a.example","idempotency_header":"Host"}`, "Host",
			Secret{}},
		"method":          {"core__http__request", `{"url":"http://a.example","method":"CONNECT"}`, "method", Secret{}},
		"scheme":          {"core__http__request", `{"url":"file:///etc/passwd"}`, "http or https", Secret{}},
		"relative":        {"core__http__request", `{"url":"/x"}`, "http or https", Secret{}},
		"user in url":     {"core__http__request", `{"url":"http://u:p@a.example"}`, "use a credential", Secret{}},
		"url object":      {"core__http__request", `{"url":{}}`, "must be a string", Secret{}},
		"no url":          {"core__http__request", `{}`, "http or https", Secret{}},
		"dots":            {"dialer__api__get_record", `{"list":"..","key":"1"}`, "must not be empty", basic(t)},
		"empty segment":   {"dialer__api__get_record", `{"list":"","key":"1"}`, "must not be empty", basic(t)},
		"missing segment": {"dialer__api__get_record", `{"key":"1"}`, "must not be empty", basic(t)},
		"object segment":  {"dialer__api__get_record", `{"list":{},"key":"1"}`, "must be a string", basic(t)},
	} {
		svc, act := action(t, c, tc.action)
		_, err := Prepare(svc, act, json.RawMessage(tc.params), nil, tc.secret, "k")
		if !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v; want %q", name, err, tc.want)
		}
	}
	svc, act := action(t, c, "dialer__api__get_record")
	if _, err := Prepare(svc, act, json.RawMessage(`{"list":"a","key":"1"}`), nil, Secret{}, ""); !errors.Is(err,
		ErrSecretShape) {
		t.Errorf("without a credential the error is %v", err)
	}
}

func TestOutcomeCheck(t *testing.T) {
	t.Parallel()
	c := testCatalog(t)
	for _, tc := range []struct {
		action, params string
		want           catalog.OutcomeCheck
	}{
		{"core__http__request", `{"url":"x"}`, catalog.CheckSafe},
		{"core__http__request", `{"url":"x","method":"DELETE"}`, catalog.CheckSafe},
		{"core__http__request", `{"url":"x","method":"POST"}`, catalog.CheckNone},
		{"core__http__request", `{"url":"x","method":"POST","idempotency_header":"Idempotency-Key"}`,
			catalog.CheckKeyed},
		{"dialer__api__upload", `{}`, catalog.CheckLookup},
		{"core__flow__fail", `{}`, catalog.CheckSafe},
	} {
		_, act := action(t, c, tc.action)
		if got := act.Outcome(json.RawMessage(tc.params)); got != tc.want {
			t.Errorf("%s %s: check is %s; want %s", tc.action, tc.params, got, tc.want)
		}
	}
	_, act := action(t, c, "dialer__api__upload")
	if got, err := ExclusiveOver(act, json.RawMessage(`{"list":"demo"}`)); got != "demo" || err != nil {
		t.Errorf("exclusive over %q, error %v", got, err)
	}
}

func TestNewSecret_Shape(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method string
		fields map[string]string
		p      Placement
	}{
		"no password":  {"basic_auth", map[string]string{"username": "hush"}, Placement{}},
		"colon":        {"basic_auth", map[string]string{"username": "hush:x", "password": "hush"}, Placement{}},
		"no key":       {"api_key", map[string]string{"key": "hush"}, Placement{HeaderName: "X-Key"}},
		"no placement": {"api_key", map[string]string{"api_key": "hush"}, Placement{}},
		"two placed": {"api_key", map[string]string{"api_key": "hush"}, Placement{HeaderName: "X-Key",
			QueryParam: "key"}},
		"host":       {"api_key", map[string]string{"api_key": "hush"}, Placement{HeaderName: "host"}},
		"line break": {"api_key", map[string]string{"api_key": "hush\r\nX: y"}, Placement{HeaderName: "X-Key"}},
		"scheme break": {"api_key", map[string]string{"api_key": "hush"}, Placement{HeaderName: "X-Key",
			Scheme: "a\nb"}},
		"other methods": {"oauth2", map[string]string{"api_key": "hush"}, Placement{}},
	} {
		_, err := NewSecret(Spec{Method: tc.method, Fields: tc.fields, Placement: tc.p})
		if !errors.Is(err, ErrSecretShape) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// A secret must not show in any form, nor in what a failed call leaves behind.
func TestSecret_NeverShows(t *testing.T) {
	t.Parallel()
	svc, act := action(t, testCatalog(t), "parcels__api__peek")
	key := apiKey(t, Placement{QueryParam: "key"})
	for _, text := range printed(key) {
		if strings.Contains(text, "k3y") {
			t.Errorf("the secret shows in %q", text)
		}
	}
	if _, err := json.Marshal(map[string]any{"s": key}); err == nil {
		t.Error("a secret was encoded")
	}
	r, err := Prepare(svc, act, json.RawMessage(`{"id":1}`), nil, key, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{r.URL, strings.Replace(r.URL, "https", "ftp", 1), strings.Replace(r.URL,
		"parcels.example", "127.0.0.1:1", 1), strings.Replace(r.URL, "parcels.example", "%zz", 1),
		strings.Replace(r.URL, "parcels.example", "parcels.invalid", 1)} {
		r.URL, r.SendBefore, r.AnswerBefore = url, time.Now().Add(time.Second), time.Now().Add(time.Second)
		if ans := newTestSender(t).Send(t.Context(), r); ans.Err == nil || strings.Contains(ans.Err.Error(), "k3y") {
			t.Errorf("error is %v", ans.Err)
		}
	}
	if _, err := Prepare(svc, act, json.RawMessage(`{"id":1}`), nil, Secret{}, ""); err == nil ||
		strings.Contains(err.Error(), "k3y") {
		t.Errorf("error is %v", err)
	}
}

func TestSetHeader_Reserved(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"te", "TRAILER", "Upgrade", "keep-alive", "Proxy-Authorization", "expect",
		"accept-encoding", "Connection"} {
		if err := setHeader(http.Header{}, name, "x"); !errors.Is(err, ErrParams) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
