package api

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
)

const (
	// signIn is the operation that makes a session.
	signIn = "createSession"
	// sessionCookie keeps the text of a session. The browser takes a cookie of such a name from this very host alone.
	sessionCookie = "__Host-flowlane"
	// signInPath is the page of the console that follows a link, whose text stands behind it.
	signInPath = "/console/login#"
	// consoleHeader is what pages of other origins cannot send without being allowed to.
	consoleHeader = "X-Flowlane-Console"
)

func (h accountHandler) CreateSession(ctx context.Context) (*oas.SessionHeaders, error) {
	if !exchangeOf(ctx).private {
		return nil, fault.New(fault.Conflict,
			"Plain HTTP would carry the session where others can read it: open the console by https, "+
				"or on the machine of the service as http://localhost")
	}
	session, err := h.accounts.CreateSession(ctx)
	if err != nil {
		return nil, err
	}
	return &oas.SessionHeaders{
		SetCookie: cookie(session.Text, int(account.SessionLife.Seconds())),
		Response:  oas.Session{SessionID: session.ID, ExpiresAt: session.Expires},
	}, nil
}

func (h accountHandler) CreateSessionLink(ctx context.Context) (*oas.SessionLink, error) {
	link, err := h.accounts.CreateLink(ctx, account.FromContext(ctx))
	if err != nil {
		return nil, err
	}
	return &oas.SessionLink{SessionID: link.ID, URL: h.publicURL() + signInPath + link.Text, ExpiresAt: link.Expires},
		nil
}

func (h accountHandler) EndSession(ctx context.Context, params oas.EndSessionParams) (*oas.EndSessionNoContent, error) {
	if err := h.accounts.EndSession(ctx, params.Everywhere.Value); err != nil {
		return nil, err
	}
	return &oas.EndSessionNoContent{SetCookie: cookie("", -1)}, nil
}

// cookie is the header that gives a session to a browser, or takes it away where its age is negative.
func cookie(text string, maxAge int) string {
	c := http.Cookie{
		Name: sessionCookie, Value: text, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	}
	return c.String()
}

// showSession lets a request of a page of ours show the session of its browser as a token, unless it shows something
// itself. A cookie goes with whatever a browser sends here, so it counts only where the browser says that a page of
// this origin asks, and for a change only where that page has set a header of ours. It returns the text of the session,
// empty where none counts.
func showSession(r *http.Request) string {
	if r.Header.Get("X-API-Key") != "" || r.Header.Get("Authorization") != "" {
		return ""
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
	case "none": // somebody typed the address, as that of a download
		if !reads {
			return ""
		}
	default:
		return ""
	}
	if !reads && r.Header.Get(consoleHeader) == "" {
		return ""
	}
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	r.Header.Set("Authorization", "Bearer "+c.Value)
	return c.Value
}

// privateWay reports whether nobody on the way to the browser can read what it is sent: TLS here or, as publicURL says,
// at a proxy, or no way at all.
func privateWay(r *http.Request, publicURL string) bool {
	if r.TLS != nil || strings.HasPrefix(publicURL, "https://") {
		return true
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.IsLoopback()
}
