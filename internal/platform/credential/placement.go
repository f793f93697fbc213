package credential

import (
	"net/textproto"
	"slices"
	"strings"

	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
)

// reservedHeaders are set by the sender itself or belong to the connection; a key there would break the request.
var reservedHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Expect", "Host", "Http2-Settings", "Keep-Alive",
	"Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// checkPlacement returns what is wrong with where the key goes.
func checkPlacement(method string, p *Placement) []fault.Field {
	const at = "api_key_placement"
	switch {
	case method != APIKey && p == nil:
		return nil
	case method != APIKey:
		return []fault.Field{wrong("value_error", "Goes only with auth_method api_key", at)}
	case p == nil:
		return []fault.Field{wrong("missing",
			"Required with auth_method api_key: set header_name, query_param or cookie_name", at)}
	case !p.one():
		return []fault.Field{wrong("value_error", "Set exactly one of header_name, query_param and cookie_name", at)}
	}
	var bad []fault.Field
	if p.HeaderName != nil && !isToken(*p.HeaderName) {
		bad = append(bad, wrong("value_error", "Not a header name: use letters, digits and hyphens", at, "header_name"))
	}
	if p.HeaderName != nil && slices.Contains(reservedHeaders, textproto.CanonicalMIMEHeaderKey(*p.HeaderName)) {
		bad = append(bad, wrong("value_error", "This header belongs to the request itself; use another", at,
			"header_name"))
	}
	if p.QueryParam != nil && (*p.QueryParam == "" || strings.ContainsFunc(*p.QueryParam,
		func(r rune) bool { return r <= ' ' || r == 0x7f })) {
		bad = append(bad, wrong("value_error", "Must not contain spaces or control characters", at, "query_param"))
	}
	if p.CookieName != nil && !isToken(*p.CookieName) {
		bad = append(bad, wrong("value_error", "Not a name of a cookie: use letters, digits, hyphens and underscores",
			at, "cookie_name"))
	}
	if p.Scheme != nil && p.HeaderName == nil {
		bad = append(bad, wrong("value_error", "Goes only with header_name", at, "scheme"))
	}
	if p.Scheme != nil && !isPrefix(*p.Scheme) {
		bad = append(bad, wrong("value_error", "Must be printable ASCII without spaces around it, for example Bearer",
			at, "scheme"))
	}
	return bad
}

// one tells whether exactly one place is named.
func (p *Placement) one() bool {
	n := 0
	for _, name := range []*string{p.HeaderName, p.QueryParam, p.CookieName} {
		if name != nil {
			n++
		}
	}
	return n == 1
}

// placed is where the key goes: where the catalog says so, else where the caller does. Fault: Unprocessable for a
// caller that says something else than the catalog.
func placed(service *catalog.Service, in Input) (*Placement, error) {
	auth, _ := service.Auth(in.AuthMethod, textOf(in.GrantType))
	if !auth.Placed() {
		return in.Placement, nil
	}
	said := &Placement{HeaderName: given(auth.Header), Scheme: given(auth.Scheme), QueryParam: given(auth.Query),
		CookieName: given(auth.Cookie)}
	if in.Placement != nil && in.Placement.outgoing() != said.outgoing() {
		return nil, fault.Invalidated(wrong("value_error", "The catalog says where a key of platform "+in.PlatformID+
			" goes; leave it out", "api_key_placement"))
	}
	return said, nil
}

func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// isToken tells whether s is a token of RFC 9110.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// isPrefix tells whether s may stand before a header's value.
func isPrefix(s string) bool {
	return s != "" && s == strings.TrimSpace(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' ||
			r > '~'
	})
}
