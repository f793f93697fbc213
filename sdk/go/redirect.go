package flowlane

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// mostRedirects is how many are followed before they count as a circle.
const mostRedirects = 5

// follower is a client that follows redirections where mayFollow says so, and returns the others as they are.
func follower(c *http.Client) *http.Client {
	if c == nil {
		c = http.DefaultClient
	}
	following, theirs := *c, c.CheckRedirect
	following.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		from := via[len(via)-1]
		if len(via) > mostRedirects || !mayFollow(from.URL, r.URL, r.Response) {
			return http.ErrUseLastResponse
		}
		if token := from.Header.Get("Authorization"); token != "" { // net/http takes it away for another host
			r.Header.Set("Authorization", token)
		}
		if theirs != nil {
			return theirs(r, via)
		}
		return nil
	}
	return &following
}

// mayFollow tells whether the same request may be sent to where an answer leads, with the same key. 301, 302 and 303
// would make a GET of it, which creates nothing and looks like a success. Another host gets the key only where the
// service itself says, with the same path, that the organization has moved there; and nothing goes on in the clear
// that came encrypted.
func mayFollow(from, to *url.URL, res *http.Response) bool {
	status := res.StatusCode
	switch {
	case status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect,
		to.Scheme != "https" && to.Scheme != from.Scheme:
		return false
	case strings.EqualFold(from.Hostname(), to.Hostname()):
		return true
	}
	text := body(res.Body)
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(text)) // to be read again where it is not followed
	var said struct{ Code string }
	return json.Unmarshal(text, &said) == nil && said.Code == "moved" && status == http.StatusTemporaryRedirect &&
		from.EscapedPath() == to.EscapedPath() && from.RawQuery == to.RawQuery
}

// redirected is the error of a redirection that was not followed. It names no query, which may hold a stream token.
func redirected(res *http.Response, path string) *APIError {
	e := newAPIError(res)
	to, err := res.Location()
	if err != nil {
		e.Detail = "the answer leads elsewhere, and does not say where: check the URL of the client"
		return e
	}
	address := strings.TrimSuffix(to.Scheme+"://"+to.Host+to.EscapedPath(), "/v1"+path)
	e.Detail = "the answer leads to " + address + ", which is not followed: if that is the service, set it as the URL " +
		"of the client"
	return e
}
