package remote

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

// follow has a client follow what mayFollow allows, and return other redirections as they are.
func follow(r *http.Request, via []*http.Request) error {
	if len(via) > mostRedirects || !mayFollow(via[len(via)-1].URL, r.URL, r.Response) {
		return http.ErrUseLastResponse
	}
	return nil
}

// mayFollow tells whether the same request may be sent to where an answer leads, with the same key. 301, 302 and 303
// would make a GET of it, which creates nothing and looks like a success. Another host gets the key only where the
// server itself says, with the same path, that the organization has moved there; and nothing goes on in the clear that
// came encrypted.
func mayFollow(from, to *url.URL, res *http.Response) bool {
	status := res.StatusCode
	switch {
	case status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect,
		to.Scheme != "https" && to.Scheme != from.Scheme:
		return false
	case strings.EqualFold(from.Hostname(), to.Hostname()):
		return true
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(text)) // to be read again where it is not followed
	var said struct{ Code string }
	return err == nil && json.Unmarshal(text, &said) == nil && said.Code == "moved" &&
		status == http.StatusTemporaryRedirect && from.EscapedPath() == to.EscapedPath() && from.RawQuery == to.RawQuery
}

// redirected says of an answer that was not followed where it leads; without the query, which may hold a token.
func redirected(res *http.Response) string {
	to, err := res.Location()
	if err != nil {
		return notOurs
	}
	address := to.Scheme + "://" + to.Host + to.EscapedPath()
	if res.Request != nil {
		if _, path, found := strings.Cut(res.Request.URL.EscapedPath(), "/v1/"); found {
			address = strings.TrimSuffix(address, "/v1/"+path)
		}
	}
	return "it leads to " + address + ", which is not followed; if that is the server, set FLOWLANE_URL to it"
}
