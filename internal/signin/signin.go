// Package signin signs people in to the console at an OpenID provider: by its authorization code flow with PKCE (RFC
// 7636). Who comes back from there is sent on to the page of the console that follows a link of ours. It promises that
// nobody comes in who did not set out with the same browser, at most ten minutes ago, and that no token of the provider
// reaches a browser. It must not know who has an account: Config.Link does.
package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"

	"flowlane/internal/fault"
)

const (
	// Path is where a browser begins, CallbackPath where the provider sends it back to; the provider must know the
	// latter.
	Path         = "/console/sign-in"
	CallbackPath = Path + "/callback"

	// cookieName is the cookie that binds what comes back to the browser that set out. The provider's site leads to the
	// callback, so it is of SameSite=Lax.
	cookieName = "__Host-flowlane-sign-in"
	// cookieLife is how long somebody may take to sign in over there.
	cookieLife = 10 * time.Minute
	// loginPage shows why somebody was not signed in, by the word behind it.
	loginPage = "/console/login?failed="
	// linkPage follows the link whose text stands behind it.
	linkPage = "/console/login#"
	// maxText is the length of the longest code and state that are looked at.
	maxText = 4096
	// atOnce is how many may wait for the provider at once.
	atOnce = 16
)

// Why somebody was not signed in, as loginPage tells it.
const (
	failedCancelled   = "cancelled"   // the provider says that the person or it did not agree
	failedExpired     = "expired"     // this browser did not set out, or too long ago
	failedUnavailable = "unavailable" // the provider does not answer, or not as it should
	failedUnknown     = "unknown"     // the provider signed in whom nobody here knows
)

// Config says at which provider people sign in. All but ClientSecret and Scopes are required.
type Config struct {
	// ClientID and ClientSecret are those of the console at the provider; the secret is empty for a public client.
	ClientID, ClientSecret string
	// Scopes are asked for; empty for openid, profile and email.
	Scopes []string
	// HTTP reaches the provider. Its answers are bounded in size and time.
	HTTP *http.Client
	// Issuer is the provider's address, below which its configuration stands.
	Issuer string
	// Link checks an ID token, and returns the text of a link that signs in, once, whom it names. remote is the address
	// of the browser. Faults as account.LinkOfIDToken.
	Link func(ctx context.Context, token, nonce, remote string) (text string, err error)
	// PublicURL is where browsers reach this service.
	PublicURL func() string
	Log       *slog.Logger
}

// Handler signs in at one provider.
type Handler struct {
	cfg   Config
	slots chan struct{}
	known discovered
}

// New returns a handler of Path and CallbackPath.
func New(cfg Config) *Handler {
	if len(cfg.Scopes) == 0 {
		cfg.Scopes = []string{"openid", "profile", "email"}
	}
	return &Handler{cfg: cfg, slots: make(chan struct{}, atOnce)}
}

// Begin sends a browser to the provider. HEAD only tells that there is one: without a provider, a page of the console
// stands here.
func (h *Handler) Begin(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	leave, err := h.enter()
	if err != nil {
		h.fail(w, r, failedUnavailable, err)
		return
	}
	defer leave()
	client, err := h.client(r.Context())
	if err != nil {
		h.fail(w, r, failedUnavailable, err)
		return
	}
	secret := rand.Text()
	http.SetCookie(w, h.cookie(secret, cookieLife))
	t := tripOf(secret)
	address := client.AuthCodeURL(t.state, oauth2.S256ChallengeOption(t.verifier), oauth2.SetAuthURLParam("nonce",
		t.nonce))
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// Finish takes whom the provider sends back, and sends the browser on with a link that signs in.
func (h *Handler) Finish(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.SetCookie(w, h.cookie("", -time.Second))
	address, word, err := h.finish(r)
	if word != "" {
		h.fail(w, r, word, err)
		return
	}
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// enter bounds how many wait for a provider that is slow: nobody has signed in yet, so anybody can ask. leave must be
// called.
func (h *Handler) enter() (leave func(), err error) {
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	default:
		return nil, errors.New("too many people sign in at once")
	}
}

func (h *Handler) finish(r *http.Request) (address, word string, err error) {
	said := r.URL.Query()
	set, err := r.Cookie(cookieName)
	if err != nil {
		return "", failedExpired, nil //nolint:nilerr // no cookie is no error of ours
	}
	t := tripOf(set.Value)
	if state := said.Get("state"); len(state) > maxText || subtle.ConstantTimeCompare([]byte(state),
		[]byte(t.state)) != 1 {
		return "", failedExpired, nil
	}
	code := said.Get("code")
	if code == "" || len(code) > maxText {
		return "", failedCancelled, nil
	}
	leave, err := h.enter()
	if err != nil {
		return "", failedUnavailable, err
	}
	defer leave()
	token, err := h.exchange(r.Context(), code, t.verifier)
	if err != nil {
		return "", failedUnavailable, err
	}
	text, err := h.cfg.Link(r.Context(), token, t.nonce, r.RemoteAddr)
	var f *fault.Error
	switch {
	case errors.As(err, &f) && f.Code == fault.Unauthenticated:
		return "", failedUnknown, err
	case err != nil:
		return "", failedUnavailable, err
	}
	return linkPage + text, "", nil
}

// fail sends a browser back to where one signs in. The log says more than the person is told.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, word string, err error) {
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
	}
	h.cfg.Log.Log(r.Context(), level, "somebody was not signed in at the identity provider", "reason", word, "error",
		err)
	http.Redirect(w, r, loginPage+word, http.StatusSeeOther)
}

func (h *Handler) cookie(text string, life time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: text, Path: "/", MaxAge: int(life.Seconds()), Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	}
}

// trip is what belongs to one way to the provider and back: state comes back by the browser, nonce in the ID token, and
// verifier proves to the provider that who has the code set out for it.
type trip struct{ state, nonce, verifier string }

// tripOf derives a trip from the secret that the browser keeps meanwhile; any one of its parts tells nothing of the
// others.
func tripOf(secret string) trip {
	part := func(name string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(name))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return trip{state: part("state"), nonce: part("nonce"), verifier: part("verifier")}
}

// client is the console as the provider knows it.
func (h *Handler) client(ctx context.Context) (*oauth2.Config, error) {
	endpoint, err := h.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Config{
		ClientID: h.cfg.ClientID, ClientSecret: h.cfg.ClientSecret, Endpoint: endpoint, Scopes: h.cfg.Scopes,
		RedirectURL: h.cfg.PublicURL() + CallbackPath,
	}, nil
}

// Check refuses a configuration that cannot work. The error names flags of serve.
func Check(issuer, clientID, clientSecret string) error {
	if clientID == "" && clientSecret == "" {
		return nil
	}
	if clientID == "" {
		return errors.New("--oidc-client-secret needs --oidc-client-id")
	}
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--oidc-client-id needs --jwt-issuer to be the address of the provider, " +
			"as https://login.example.com")
	}
	return nil
}
