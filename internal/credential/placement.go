package credential

import (
	"net/textproto"
	"slices"
	"strings"

	"flowlane/internal/fault"
)

// reservedHeaders are set by the sender itself or belong to the connection; a key there would break the request.
var reservedHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate",
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
		return []fault.Field{wrong("missing", "Required with auth_method api_key: set header_name or query_param", at)}
	case (p.HeaderName == nil) == (p.QueryParam == nil):
		return []fault.Field{wrong("value_error", "Set exactly one of header_name and query_param", at)}
	}
	var bad []fault.Field
	if p.HeaderName != nil && !isToken(*p.HeaderName) {
		bad = append(bad, wrong("value_error", "Not a header name: use letters, digits and hyphens", at, "header_name"))
	}
	if p.HeaderName != nil && slices.Contains(reservedHeaders, textproto.CanonicalMIMEHeaderKey(*p.HeaderName)) {
		bad = append(bad, wrong("value_error", "This header belongs to the request itself; use another", at, "header_name"))
	}
	if p.QueryParam != nil && (*p.QueryParam == "" || strings.ContainsFunc(*p.QueryParam, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
		bad = append(bad, wrong("value_error", "Must not contain spaces or control characters", at, "query_param"))
	}
	if p.Scheme != nil && p.HeaderName == nil {
		bad = append(bad, wrong("value_error", "Goes only with header_name", at, "scheme"))
	}
	if p.Scheme != nil && !isPrefix(*p.Scheme) {
		bad = append(bad, wrong("value_error", "Must be printable ASCII without spaces around it, for example Bearer", at, "scheme"))
	}
	return bad
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
	return s != "" && s == strings.TrimSpace(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
