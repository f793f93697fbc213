package provider

import (
	"errors"
	"strings"
)

// maxSaid bounds in characters what is quoted of a refusal.
const maxSaid = 200

// Said is what a platform, or an issuer of tokens, said when it refused a probe, at most maxSaid characters of it,
// without the secret; empty where it did not refuse it, or said nothing that can be quoted.
func Said(err error) string {
	var known *ProbeError
	if !errors.As(err, &known) {
		return ""
	}
	return known.said
}

// excerpt is the beginning of an answer, whose secrets are masked; empty for markup that only browsers read.
func excerpt(ans *Answer) string {
	if ans.Sent != Answered || ans.Err != nil || strings.Contains(ans.Header.Get("Content-Type"), "html") {
		return ""
	}
	return clean(string(ans.Body), maxSaid)
}
