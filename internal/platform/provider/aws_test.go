package provider

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"flowlane/internal/platform/catalog"
)

const (
	exampleKey    = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

func awsSecret(t *testing.T, change func(*Spec)) Secret {
	t.Helper()
	spec := Spec{Method: "aws_access_key", PlatformID: "aws", Fields: map[string]string{"access_key_id": exampleKey,
		"secret_access_key": exampleSecret}}
	if change != nil {
		change(&spec)
	}
	s, err := NewSecret(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAWS_PublishedExample signs a request of Amazon's documentation of Signature Version 4 for S3.
func TestAWS_PublishedExample(t *testing.T) {
	t.Parallel()
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	sender := NewSender(Options{Now: func() time.Time { return at }})
	t.Cleanup(sender.Close)
	for _, tc := range []struct{ url, rangeOf, want string }{
		{"https://examplebucket.s3.amazonaws.com/test.txt", "bytes=0-9",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"https://examplebucket.s3.amazonaws.com/?lifecycle=", "",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r := Request{Method: http.MethodGet, URL: tc.url, Header: http.Header{"User-Agent": {userAgent},
			"Accept": {"application/json"}}}
		if tc.rangeOf != "" {
			r.Header.Set("Range", tc.rangeOf)
		}
		if err := awsSecret(t, nil).open().place(&r); err != nil {
			t.Fatal(err)
		}
		if err := awsSecret(t, nil).open().sign(t.Context(), sender, &r); err != nil {
			t.Fatal(err)
		}
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+tc.want) || !strings.Contains(got,
			"Credential="+exampleKey+"/20130524/us-east-1/s3/aws4_request") {
			t.Errorf("%s: %s", tc.url, got)
		}
	}
}

// signature computes Signature Version 4 of a received request by the letter of its description.
func signature(r *http.Request, body []byte, secret, region string) string {
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	var names string
	for _, part := range strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), awsAlgorithm+" "), ", ") {
		if list, ok := strings.CutPrefix(part, "SignedHeaders="); ok {
			names = list
		}
	}
	headers := ""
	for _, name := range strings.Split(names, ";") {
		value := strings.TrimSpace(r.Header.Get(name))
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers += name + ":" + value + "\n"
	}
	query := strings.Split(r.URL.RawQuery, "&")
	slices.Sort(query)
	digest := sha256.Sum256(body)
	canonical := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), strings.ReplaceAll(strings.Join(query, "&"), "+", "%20"), headers, names,
		hex.EncodeToString(digest[:]),
	}, "\n")
	day, sum := r.Header.Get("X-Amz-Date")[:8], sha256.Sum256([]byte(canonical))
	scope := day + "/" + region + "/s3/aws4_request"
	text := strings.Join([]string{awsAlgorithm, r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(sum[:])}, "\n")
	key := mac(mac(mac(mac([]byte("AWS4"+secret), day), region), "s3"), "aws4_request")
	return hex.EncodeToString(mac(key, text))
}

// TestAWS_Calls makes every call of the catalog to a store that verifies signatures.
func TestAWS_Calls(t *testing.T) {
	t.Parallel()
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.HasSuffix(r.Header.Get("Authorization"), "Signature="+signature(r, body, exampleSecret,
			"eu-central-1")) || r.Header.Get("X-Amz-Security-Token") != "session" {
			w.WriteHeader(http.StatusForbidden)
		}
		seen = append(seen, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		_, _ = io.WriteString(w, `<ok/>`)
	}))
	t.Cleanup(server.Close)
	c, err := catalog.Load(catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sender := NewSender(Options{AllowHosts: []string{strings.TrimPrefix(server.URL, "http://")}})
	t.Cleanup(sender.Close)
	secret := awsSecret(t, func(s *Spec) {
		s.Region, s.Endpoint, s.Bucket, s.Fields["session_token"] = "eu-central-1", server.URL, "stock", "session"
	})
	for _, tc := range []struct{ action, params, want string }{
		{"get", `{"key":"a b/ü.json"}`, "GET /stock/a%20b/%C3%BC.json "},
		{"put", `{"bucket":"other","key":"x","body":{"n":1.50}}`, `PUT /other/x {"n":1.50}`},
		{"delete", `{"bucket":null,"key":"x+y"}`, "DELETE /stock/x+y "},
		{"list", `{"prefix":"a b/","start_after":"a&b"}`, "GET /stock?list-type=2&prefix=a+b%2F&start-after=a%26b "},
	} {
		id := "aws__s3__" + tc.action + "_object"
		if tc.action == "list" {
			id += "s"
		}
		svc, act := action(t, c, id)
		r, err := Prepare(svc, act, json.RawMessage(tc.params), nil, secret, "")
		if err != nil {
			t.Errorf("%s: %v", tc.action, err)
			continue
		}
		seen = nil
		r.SendBefore, r.AnswerBefore = time.Now().Add(time.Minute), time.Now().Add(time.Minute)
		if got := Read(act, sender.Send(t.Context(), r), 0); got.Kind != Success ||
			!slices.Equal(seen, []string{tc.want}) {
			t.Errorf("%s: %+v; the store saw %q", tc.action, got, seen)
		}
	}
	platform, _ := c.Platform("aws")
	if _, err := sender.Whoami(t.Context(), platform, platform.Services[0], secret); err != nil {
		t.Errorf("test: %v", err)
	}
	_, err = sender.Whoami(t.Context(), platform, platform.Services[0],
		awsSecret(t, func(s *Spec) { s.Endpoint = server.URL }))
	if class, _ := Explain(err); class != PermissionDenied {
		t.Errorf("test with another region's signature: %v", err)
	}
}

func TestAWS_Addresses(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	svc, act := action(t, c, "aws__s3__get_object")
	for _, tc := range []struct{ region, key, want string }{
		{"", "k", "https://s3.us-east-1.amazonaws.com/stock/k"},
		{"eu-central-1", "a/b", "https://s3.eu-central-1.amazonaws.com/stock/a/b"},
		{"", "a/../../b", ""},
		{"", "..", ""},
	} {
		params := json.RawMessage(fmt.Sprintf(`{"bucket":"stock","key":%q}`, tc.key))
		r, err := Prepare(svc, act, params, nil, awsSecret(t, func(s *Spec) { s.Region = tc.region }), "")
		if r.URL != tc.want || (tc.want == "") != errors.Is(err, ErrParams) {
			t.Errorf("%+v: %q, %v", tc, r.URL, err)
		}
	}
	if _, err := Prepare(svc, act, json.RawMessage(`{"key":"k"}`), nil, awsSecret(t, nil), ""); !errors.Is(err,
		ErrParams) {
		t.Errorf("a call without bucket: %v", err)
	}
	if _, err := NewSecret(Spec{Method: "aws_access_key", Region: "evil.example/",
		Fields: map[string]string{"access_key_id": "a", "secret_access_key": "b"}}); !errors.Is(err, ErrSecretShape) {
		t.Errorf("a region that is another host: %v", err)
	}
}

// TestSecret_StaysWithItsPlatform: whoever writes a flow chooses addresses, but not who gets a platform's secret.
func TestSecret_StaysWithItsPlatform(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	svc, act := action(t, c, "core__http__request")
	for _, method := range []string{"basic_auth", "api_key"} {
		for _, tc := range []struct {
			platform, url string
			ok            bool
		}{
			{"dialer", "https://api.dialer.example/x", true},
			{"dialer", "https://API.dialer.example:443/x", true},
			{"dialer", "http://api.dialer.example/x", false},
			{"dialer", "https://api.dialer.example:8443/x", false},
			{"dialer", "https://api.dialer.example.evil.example/x", false},
			{"dialer", "https://evil.example/?api.dialer.example", false},
			{"core", "https://anything.example/x", true},
			{"core", "https://another.example/x", false},
		} {
			spec := Spec{
				Method: method, PlatformID: tc.platform, Placement: Placement{HeaderName: "X-Key"},
				Fields: map[string]string{"username": "u", "password": "hush", "api_key": "hush"},
			}
			spec.Origins = map[string][]string{"dialer": {"https://api.dialer.example"},
				"core": {"https://anything.example"}}[tc.platform]
			whole, err := NewSecret(spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []Secret{whole, Placeholder(spec)} {
				_, err := Prepare(svc, act, json.RawMessage(fmt.Sprintf(`{"url":%q}`, tc.url)), nil, s, "")
				if tc.ok != (err == nil) || err != nil && !errors.Is(err, ErrParams) {
					t.Errorf("%+v: %v", tc, err)
				}
			}
		}
	}
	other, upload := action(t, c, "dialer__api__get_record")
	core, err := NewSecret(Spec{Method: "basic_auth", PlatformID: "core", Fields: map[string]string{"username": "u",
		"password": "p"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(other, upload, json.RawMessage(`{"list":"l","key":"k"}`), nil, core, ""); !errors.Is(err,
		ErrParams) {
		t.Errorf("a secret of core went to another platform: %v", err)
	}
}
