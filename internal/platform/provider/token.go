package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"
	"golang.org/x/sync/singleflight"
)

const (
	// tokenTimeout bounds one request for a token.
	tokenTimeout = 10 * time.Second
	// tokenEarly is how long before its end a token is no longer used.
	tokenEarly = 30 * time.Second
	// tokenLife is that of a token whose issuer does not say.
	tokenLife = 5 * time.Minute
	// failureLife is how long a failure is the answer to all who ask for the token.
	failureLife = time.Second
	// maxTokens bounds the tokens in memory.
	maxTokens = 10_000
)

// token is what calls carry for a while.
type token struct {
	key, value string
	// fields are the other texts of the answer that it came in.
	fields map[string]string
	until  time.Time
	mask   *mask
	// generation is that of Tokens.
	generation int64
	// proven: the platform has taken it.
	proven atomic.Bool
}

// tokens are those of this process, in memory only. A token is asked for once at a time, however many wait for it.
type tokens struct {
	now   func() time.Time
	group singleflight.Group

	mu     sync.Mutex
	held   map[string]*token
	failed map[string]failure
	// refused are the generations of the latest tokens that a platform has refused.
	refused map[string]int64
}

type failure struct {
	err   error
	until time.Time
}

func newTokens(now func() time.Time) *tokens {
	return &tokens{now: now, held: map[string]*token{}, failed: map[string]failure{}, refused: map[string]int64{}}
}

// key names the token of a spec without telling it. It is empty for one that is not kept.
func (spec *Spec) key() string {
	if spec.Version == "" {
		return ""
	}
	text, err := json.Marshal([]any{spec.Version, spec.Method, spec.Grant, spec.Fields, spec.TokenURL, spec.Scopes,
		spec.Audience})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// get returns the token of a key, fetched where there is none or a new one is asked for. Errors are those of fetch and
// of ctx.
func (t *tokens) get(ctx context.Context, key string, renew bool,
	fetch func(context.Context) (*token, error)) (*token, error) {
	if key == "" {
		return fetch(ctx)
	}
	if !renew {
		if held, err := t.lookup(key); held != nil || err != nil {
			return held, err
		}
	}
	flight := key
	if renew {
		flight += " new"
	}
	done := t.group.DoChan(flight, func() (any, error) {
		if !renew { // it may have come since
			if held, err := t.lookup(key); held != nil || err != nil {
				return held, err
			}
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
		defer cancel()
		fresh, err := fetch(ctx)
		t.put(key, fresh, err)
		return fresh, err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*token), nil
	}
}

func (t *tokens) lookup(key string) (*token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if held, ok := t.held[key]; ok && now.Before(held.until) {
		return held, nil
	}
	if f, ok := t.failed[key]; ok && now.Before(f.until) {
		return nil, f.err
	}
	return nil, nil
}

func (t *tokens) put(key string, fresh *token, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if len(t.held) >= maxTokens || len(t.failed) >= maxTokens {
		clear(t.held) // each is fetched once more; a list by age is not worth its upkeep
		clear(t.failed)
		clear(t.refused)
	}
	if err != nil {
		t.failed[key] = failure{err, now.Add(failureLife)}
		return
	}
	delete(t.failed, key)
	fresh.key = key
	t.held[key] = fresh
}

// answered takes note of the answer to a call with a token, which is nil where it had none. stale: the platform refused
// one that it had taken before; it is dropped, once for all calls that had it. One that never worked is no reason to
// repeat.
func (t *tokens) answered(used *token, ans *Answer) (stale bool) {
	if used == nil || ans.Sent != Answered {
		return false
	}
	if ans.Status != http.StatusUnauthorized {
		used.proven.Store(true)
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[used.key] == used {
		delete(t.held, used.key)
		t.refused[used.key] = used.generation
	}
	return used.proven.Load()
}

// refusedOf is the generation of the latest token of a key that a platform has refused; 0 for none.
func (t *tokens) refusedOf(key string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused[key]
}

// bearer signs requests with the token of a key.
func bearer(key string, fetch func(ctx context.Context, s *Sender, renew bool) (*token, error)) secret {
	return secret{signed: []string{"Authorization"}, sign: func(ctx context.Context, s *Sender,
		r *Request) (err error) {
		r.token, err = s.tokens.get(ctx, key, r.newToken, func(ctx context.Context) (*token, error) {
			return fetch(ctx,
				s, r.newToken)
		})
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+r.token.value)
		r.masks = append(r.masks, r.token.mask)
		return nil
	}}
}

func (g *grant) request(form url.Values) Request {
	return Request{
		Method: http.MethodPost, URL: g.address, tls: g.tls, Body: [][]byte{[]byte(form.Encode())},
		Header: http.Header{"User-Agent": {userAgent}, "Accept": {"application/json"},
			"Content-Type": {"application/x-www-form-urlencoded"}},
	}
}

// request sends a request that changes nothing, within tokenTimeout.
func (s *Sender) request(ctx context.Context, r Request) Answer {
	deadline := s.now().Add(tokenTimeout)
	r.SendBefore, r.AnswerBefore = deadline, deadline
	return s.Send(ctx, r)
}

// oauthError is the code of an issuer's refusal; empty where the answer has none.
func oauthError(ans *Answer) string {
	if !validJSON(ans.Body) {
		return ""
	}
	return named(gjson.ParseBytes(ans.Body), "error")
}

// readTokens reads an issuer's answer. Errors are *ProbeError.
func readTokens(ans *Answer) (Tokens, error) {
	if ans.Sent != Answered || ans.Status != http.StatusOK || ans.Err != nil {
		return Tokens{}, tokenError(ans)
	}
	unreadable := probeError(UnknownClass, nil, "The token endpoint's answer holds no bearer token.")
	if !validJSON(ans.Body) {
		return Tokens{}, unreadable
	}
	doc := gjson.ParseBytes(ans.Body)
	value, kind := doc.Get("access_token"), doc.Get("token_type").String()
	if value.Type != gjson.String || value.Str == "" || !httpguts.ValidHeaderFieldValue(value.Str) || kind != "" &&
		!strings.EqualFold(kind, "bearer") {
		return Tokens{}, unreadable
	}
	if len(value.Str) > maxToken || len(doc.Get("refresh_token").String()) > maxToken {
		return Tokens{}, probeError(UnknownClass, nil, "The token endpoint's answer holds a token of more than %d bytes.",
			maxToken)
	}
	life, given := tokenLife, doc.Get("expires_in")
	said := given.Type != gjson.Null
	if said {
		life = time.Duration(min(max(given.Int(), 0), 86400)) * time.Second
	}
	life -= min(tokenEarly, life/10)
	return Tokens{Access: value.Str, Refresh: doc.Get("refresh_token").String(), Fields: textsOf(doc), Life: life,
		Unlimited: !said}, nil
}

// maxToken bounds a token, of which each process keeps several forms by which it masks it, and maxTokenText another
// text of an issuer's answer that is kept.
const (
	maxToken     = 16 << 10
	maxTokenText = 2000
)

// textsOf are the texts of an issuer's answer that are no tokens.
func textsOf(doc gjson.Result) map[string]string {
	texts := map[string]string{}
	doc.ForEach(func(name, value gjson.Result) bool {
		if value.Type == gjson.String && len(value.Str) <= maxTokenText && !strings.Contains(name.Str, "token") {
			texts[name.Str] = value.Str
		}
		return len(texts) < 20
	})
	return texts
}

func tokenError(ans *Answer) error {
	if ans.Sent == NotSent && errors.Is(ans.Err, ErrAddressRefused) {
		return probeError(Network, ans.Err, "The token endpoint's address is not allowed: %s.", causeOf(ans.Err))
	}
	var refused *ProbeError
	if ans.Sent == NotSent && errors.As(ans.Err, &refused) { // the connection was not taken
		return refused
	}
	class, used := CredentialUse(ans)
	code := oauthError(ans)
	switch {
	case !used, class == Timeout:
		return probeError(Timeout, ans.Err, "The token endpoint did not answer in time.")
	case ans.Sent != Answered:
		return probeError(Network, ans.Err, "The token endpoint could not be reached.")
	case slices.Contains([]string{"invalid_client", "invalid_grant", "unauthorized_client", "access_denied"}, code),
		class == AuthFailed:
		return probeError(AuthFailed, nil, "The token endpoint refused the client (%s). %s", statusAnd(ans, code),
			adviceOn[code])
	case code == "invalid_scope", class == PermissionDenied:
		return probeError(PermissionDenied, nil,
			"The token endpoint denies these scopes (%s): ask for those that the app may have.", statusAnd(ans, code))
	case class == RateLimitedClass:
		return probeError(class, nil, "The token endpoint asks to come back later (status 429).")
	case class == Network:
		return probeError(class, ans.Err, "The token endpoint's answer broke off or is too large.")
	}
	return probeError(UnknownClass, nil, "The token endpoint answered with %s.", statusAnd(ans, code))
}

// adviceOn says what whoever owns a credential can do about an issuer's refusal, by its code.
var adviceOn = map[string]string{
	"":                    "Check what the credential holds, and rotate it.",
	"invalid_client":      "Check client_id and client_secret, and rotate the credential.",
	"unauthorized_client": "Have the issuer allow this grant_type to the app.",
	"access_denied":       "Have the issuer allow the app what its scopes ask for.",
	"invalid_grant":       "Check user, key or token of the credential, and rotate it.",
}

func statusAnd(ans *Answer, code string) string {
	if code == "" {
		return fmt.Sprintf("status %d", ans.Status)
	}
	return fmt.Sprintf("status %d %s", ans.Status, code)
}
