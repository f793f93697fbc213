package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"flowlane/internal/platform/catalog"
)

// issuer gives tokens t1, t2, ... to the client id "app:1" with the secret "p+w", and takes those that are not revoked.
type issuer struct {
	mu      sync.Mutex
	issued  int
	calls   int
	revoked map[string]bool
	expires int
	inBody  bool
	refuse  http.HandlerFunc
	form    map[string][]string
	release chan struct{}
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/token" {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.calls++
		if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !ok || i.revoked[bearer] ||
			!strings.HasPrefix(bearer, "t") {
			w.WriteHeader(http.StatusUnauthorized)
		}
		return
	}
	if i.release != nil {
		<-i.release
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issued++
	_ = r.ParseForm()
	i.form = r.PostForm
	user, password, _ := r.BasicAuth()
	if i.inBody {
		user, password = strings.ReplaceAll(r.PostForm.Get("client_id"), ":", "%3A"),
			strings.ReplaceAll(r.PostForm.Get("client_secret"), "+", "%2B")
	}
	switch {
	case i.refuse != nil:
		i.refuse(w, r)
	case user != "app%3A1" || password != "p%2Bw":
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprint(w, `{"error":"invalid_client","error_description":"p+w"}`)
	default:
		_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":%d}`, i.issued, i.expires)
	}
}

type tokenBundle struct {
	*issuer
	url    string
	sender *Sender
	clock  *movable
}

type movable struct {
	mu  sync.Mutex
	off time.Duration
}

func (m *movable) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.off)
}

func (m *movable) add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off += d
}

func withIssuer(t *testing.T) *tokenBundle {
	t.Helper()
	b := &tokenBundle{issuer: &issuer{revoked: map[string]bool{}, expires: 3600}, clock: &movable{}}
	server := httptest.NewServer(b.issuer)
	t.Cleanup(server.Close)
	b.url = server.URL
	b.sender = NewSender(Options{AllowHosts: []string{strings.TrimPrefix(server.URL, "http://")}, Now: b.clock.now})
	t.Cleanup(b.sender.Close)
	return b
}

func (b *tokenBundle) spec(version string) *Spec {
	return &Spec{
		Method: "oauth2", Fields: map[string]string{"client_id": "app:1", "client_secret": "p+w"}, TokenURL: b.url +
			"/token",
		Scopes: []string{"read", "write"}, Audience: "https://api", Version: version,
	}
}

func (b *tokenBundle) client(t *testing.T, version string) Secret {
	t.Helper()
	s, err := NewSecret(*b.spec(version))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call makes a call with a secret, and reads it as an action does that refuses a 401.
func (b *tokenBundle) call(t *testing.T, s Secret) Reading {
	t.Helper()
	svc := &catalog.Service{AuthMethod: "oauth2", BaseURL: b.url}
	r := Request{Method: http.MethodGet, URL: b.url + "/api", Header: http.Header{},
		SendBefore: b.clock.now().Add(time.Minute), AnswerBefore: time.Now().Add(time.Minute)}
	if err := s.apply(svc, &r); err != nil {
		t.Fatal(err)
	}
	act := &catalog.Action{Call: &catalog.Call{Answer: catalog.Answer{Success: []int{200}, Refused: []int{401}}}}
	return Read(act, b.sender.Send(t.Context(), r), 0)
}

func (b *tokenBundle) want(t *testing.T, got Reading, kind Kind, issued, calls int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got.Kind != kind || b.issued != issued || b.calls != calls {
		t.Errorf("reading %+v, %d tokens, %d calls; want %s, %d, %d", got, b.issued, b.calls, kind, issued, calls)
	}
}

func TestToken_FetchedOnce(t *testing.T) {
	t.Parallel()
	b := withIssuer(t)
	s := b.client(t, "1")
	b.release = make(chan struct{})
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if got := b.call(t, s); got.Kind != Success {
				t.Errorf("reading = %+v", got)
			}
		})
	}
	close(b.release)
	group.Wait()
	b.want(t, b.call(t, b.client(t, "1")), Success, 1, 51)
	if got := fmt.Sprint(b.form); got != "map[audience:[https://api] grant_type:[client_credentials] scope:[read "+
		"write]]" {
		t.Errorf("form = %s", got)
	}
	// A rotation has a token of its own, and so does an end.
	b.want(t, b.call(t, b.client(t, "2")), Success, 2, 52)
	b.clock.add(time.Hour - tokenEarly - time.Minute)
	b.want(t, b.call(t, s), Success, 2, 53)
	b.clock.add(time.Minute)
	b.want(t, b.call(t, s), Success, 3, 54)
	// A secret that is not stored leaves no token behind.
	b.want(t, b.call(t, b.client(t, "")), Success, 4, 55)
	b.want(t, b.call(t, b.client(t, "")), Success, 5, 56)
}

func TestToken_Refused(t *testing.T) {
	t.Parallel()
	b := withIssuer(t)
	s := b.client(t, "1")
	b.want(t, b.call(t, s), Success, 1, 1)
	b.revoked["t1"] = true
	// All calls that carried the token come back, and the next ones share one new token.
	var group sync.WaitGroup
	held, err := b.sender.tokens.lookup(b.spec("1").key())
	if err != nil || held == nil {
		t.Fatalf("token %v, %v", held, err)
	}
	first := b.call(t, s)
	b.want(t, first, RetryLater, 1, 2)
	if !b.sender.tokens.answered(held, &Answer{Sent: Answered, Status: 401}) {
		t.Error("a second call with the old token is not told that it is stale")
	}
	for range 20 {
		group.Go(func() { b.call(t, s) })
	}
	group.Wait()
	b.want(t, b.call(t, s), Success, 2, 23)
	if b.sender.tokens.answered(held, &Answer{Sent: Answered, Status: 401}); b.call(t, s).Kind != Success ||
		b.issued != 2 {
		t.Error("a late refusal of the old token dropped the new one")
	}
	// A token that never worked does not come back for ever.
	b.revoked["t3"] = true
	b.want(t, b.call(t, b.client(t, "2")), Refused, 3, 25)
}

func TestToken_IssuerFails(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = fmt.Fprint(w, body)
		}
	}
	for name, tc := range map[string]struct {
		refuse http.HandlerFunc
		class  string
	}{
		"unknown client": {status(401, `{"error":"invalid_client"}`), AuthFailed},
		"401 alone":      {status(401, ``), AuthFailed},
		"bad grant":      {status(400, `{"error":"unauthorized_client"}`), AuthFailed},
		"bad scope":      {status(400, `{"error":"invalid_scope"}`), PermissionDenied},
		"limit":          {status(429, ``), RateLimitedClass},
		"down":           {status(503, ``), UnknownClass},
		"no JSON":        {status(200, `<html>`), UnknownClass},
		"no token":       {status(200, `{"access_token":""}`), UnknownClass},
		"other kind":     {status(200, `{"access_token":"t1","token_type":"mac"}`), UnknownClass},
		"deep":           {status(200, strings.Repeat("[", 8<<20)), UnknownClass},
		"large":          {status(200, `{"access_token":"`+strings.Repeat("x", maxToken+1)+`"}`), UnknownClass},
		"large refresh": {status(200, `{"access_token":"t1","refresh_token":"`+strings.Repeat("x", maxToken+1)+`"}`),
			UnknownClass},
		"line break": {status(200, `{"access_token":"t1\r\nX: y"}`), UnknownClass},
		"cut":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Network},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withIssuer(t)
			b.refuse = tc.refuse
			got := b.call(t, b.client(t, "1"))
			if got.Kind != NotArrived || got.Reason != ReasonNoToken || got.Code != tc.class || got.Message == "" ||
				strings.Contains(got.Message, "p+w") || b.calls != 0 {
				t.Errorf("reading = %+v after %d calls", got, b.calls)
			}
			// Whoever asks at once again gets the same answer, and the issuer is left in peace.
			asked := b.issued
			if b.call(t, b.client(t, "1")).Code != tc.class || b.issued != asked {
				t.Errorf("%d requests after %d", b.issued, asked)
			}
			b.refuse = nil
			b.clock.add(failureLife)
			if got := b.call(t, b.client(t, "1")); got.Kind != Success {
				t.Errorf("later: %+v", got)
			}
			_, err := b.sender.Whoami(t.Context(), &catalog.Platform{}, &catalog.Service{AuthMethod: "oauth2"},
				b.client(t, "1"))
			if err != nil {
				t.Errorf("test: %v", err)
			}
			b.refuse = tc.refuse
			_, err = b.sender.Whoami(t.Context(), &catalog.Platform{}, &catalog.Service{AuthMethod: "oauth2"},
				b.client(t, "1"))
			if class, _ := Explain(err); class != tc.class {
				t.Errorf("test with a token in memory: %v, want %s", err, tc.class)
			}
		})
	}
}

func TestToken_ClientInBody(t *testing.T) {
	t.Parallel()
	b := withIssuer(t)
	b.inBody = true
	b.want(t, b.call(t, b.client(t, "1")), Success, 2, 1)
	b.want(t, b.call(t, b.client(t, "1")), Success, 2, 2)
}

func TestToken_IssuerIsGuarded(t *testing.T) {
	t.Parallel()
	b := withIssuer(t)
	b.sender = NewSender(Options{})
	t.Cleanup(b.sender.Close)
	got := b.call(t, b.client(t, "1"))
	if got.Kind != NotArrived || got.Code != Network || b.issued != 0 {
		t.Errorf("reading = %+v after %d requests", got, b.issued)
	}
}

func pemOf(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func TestAssertion(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	shared := strings.Repeat("k", minSharedKey)
	for algorithm, keys := range map[string][2]any{
		"RS256": {pemOf(t, rsaKey), &rsaKey.PublicKey}, "ES256": {pemOf(t, ecKey), &ecKey.PublicKey},
		"HS256": {shared, []byte(shared)},
	} {
		var seen []string
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = append(seen, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		}))
		t.Cleanup(server.Close)
		b := withIssuer(t)
		b.sender = NewSender(Options{AllowHosts: []string{strings.TrimPrefix(server.URL, "http://")}, Now: b.clock.now})
		t.Cleanup(b.sender.Close)
		b.url = server.URL
		s, err := NewSecret(Spec{Method: "jwt", Version: "1", Audience: "https://api", Fields: map[string]string{
			"algorithm": algorithm, "key": keys[0].(string), "issuer": "me", "subject": "robot", "key_id": "k1",
		}})
		if err != nil {
			t.Fatal(err)
		}
		b.call(t, s)
		b.call(t, s)
		b.clock.add(assertionLife - tokenEarly)
		b.call(t, s)
		if len(seen) != 3 || seen[0] != seen[1] || seen[1] == seen[2] {
			t.Errorf("%s: the platform saw %q", algorithm, seen)
		}
		parsed, err := jwt.Parse(seen[0], func(*jwt.Token) (any, error) { return keys[1], nil },
			jwt.WithValidMethods([]string{algorithm}),
			jwt.WithIssuer("me"), jwt.WithAudience("https://api"), jwt.WithSubject("robot"),
			jwt.WithExpirationRequired(), jwt.WithIssuedAt())
		if err != nil || parsed.Header["kid"] != "k1" {
			t.Errorf("%s: %v, %v", algorithm, parsed, err)
		}
		if _, err := jwt.Parse(seen[0], func(*jwt.Token) (any, error) { return keys[1], nil },
			jwt.WithTimeFunc(func() time.Time { return time.Now().Add(assertionLife + time.Minute) })); err == nil {
			t.Errorf("%s: the assertion does not end", algorithm)
		}
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for name, fields := range map[string]map[string]string{
		"no key": {"algorithm": "RS256", "issuer": "me"}, "no issuer": {"algorithm": "HS256", "key": shared},
		"none":  {"algorithm": "none", "key": shared, "issuer": "me"},
		"short": {"algorithm": "HS256", "key": "hush", "issuer": "me"}, "other kind": {"algorithm": "ES256",
			"key": pemOf(t, rsaKey), "issuer": "me"},
		"no PEM": {"algorithm": "RS256", "key": "hush", "issuer": "me"}, "weak": {"algorithm": "RS256",
			"key": pemOf(t, small), "issuer": "me"},
	} {
		if _, err := NewSecret(Spec{Method: "jwt", Fields: fields}); err == nil || strings.Contains(err.Error(),
			"hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
