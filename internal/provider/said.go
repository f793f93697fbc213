package provider

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// maxSaid bounds in characters what is quoted of a refusal.
const maxSaid = 200

// Said is what a platform, or an issuer of tokens, said when it refused a probe, at most maxSaid characters of it, without the
// secret; empty where it did not refuse it, or said nothing that can be quoted.
func Said(err error) string {
	var known *ProbeError
	if !errors.As(err, &known) {
		return ""
	}
	return known.said
}

// excerpt is the beginning of an answer without the secrets that it may hold; empty for markup that only browsers read.
func excerpt(ans *Answer, secrets []string) string {
	if len(secrets) == 0 || ans.Sent != Answered || ans.Err != nil || strings.Contains(ans.Header.Get("Content-Type"), "html") {
		return ""
	}
	return clean(mask(string(ans.Body), secrets), maxSaid)
}

// mask takes secrets out of a text, in all forms in which a request carries them.
func mask(text string, secrets []string) string {
	for _, s := range secrets {
		quoted, _ := json.Marshal(s) // a string always has a JSON form
		for _, form := range []string{
			s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`),
			base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
		} {
			if form != "" {
				text = strings.ReplaceAll(text, form, redacted)
			}
		}
	}
	return text
}

// basicToken is what a client sends that authenticates by name and password in the header.
func basicToken(header http.Header) string {
	return strings.TrimPrefix(header.Get("Authorization"), "Basic ")
}
