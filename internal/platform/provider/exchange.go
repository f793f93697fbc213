package provider

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// The stages of a round trip, in the order in which they come; a call that fails does so at one of them.
const (
	StageDNS     = "dns"
	StageConnect = "connect"
	StageTLS     = "tls"
	StageWrite   = "write"
	StageWait    = "wait"
	StageRead    = "read"
)

var stages = [...]string{"", StageDNS, StageConnect, StageTLS, StageWrite, StageWait, StageRead}

// stage is how far a round trip has come. Several goroutines may say so; it never goes back.
type stage struct{ at atomic.Int32 }

func (s *stage) enter(name string) {
	next := int32(slices.Index(stages[:], name))
	for {
		at := s.at.Load()
		if at >= next || s.at.CompareAndSwap(at, next) {
			return
		}
	}
}

func (s *stage) String() string { return stages[s.at.Load()] }

// Bounds of what is kept of an exchange: characters of the address and of one header, headers, and bytes of the bodies.
const (
	maxURL          = 2000
	maxHeader       = 200
	maxHeaders      = 32
	maxRequestHead  = 1 << 10
	maxResponseHead = 4 << 10
	// maskedHead is how much of a request is masked before it is cut, so that no part of a secret stays behind.
	maskedHead = 16 << 10
)

// Exchange is a request and what came back, for people to look at. Secrets that the request carried are masked, bodies
// are cut. Its JSON is what is stored.
type Exchange struct {
	Method  string `json:"method"`
	URL     string `json:"url"`
	Request Head   `json:"request"`
	// Response is nil where no answer came.
	Response *Response `json:"response,omitempty"`
	// FailedAt is the stage at which the round trip broke off; empty where it did not, or where nothing was tried.
	FailedAt string `json:"failed_at,omitempty"`
}

// Response is an answer of an Exchange.
type Response struct {
	Status int `json:"status"`
	// Headers are those that say who answered what and when to come back, by their names in lower case.
	Headers map[string]string `json:"headers,omitempty"`
	Body    Head              `json:"body"`
}

// Head is the beginning of a body: as text, or in base64 where it is none.
type Head struct {
	// Size is the length of the whole body in bytes, as far as it was read.
	Size   int64  `json:"size"`
	Text   string `json:"text,omitempty"`
	Base64 bool   `json:"base64,omitempty"`
}

func headOf(body []byte, size int64, most int) Head {
	cut := body[:min(len(body), most)]
	if len(cut) < len(body) { // not in the middle of a character
		for i := 1; i < utf8.UTFMax && i < len(cut) && !utf8.Valid(cut); i++ {
			cut = cut[:len(cut)-1]
		}
	}
	if utf8.Valid(cut) {
		return Head{Size: size, Text: string(cut)}
	}
	cut = body[:min(len(body), most)]
	return Head{Size: size, Text: base64.StdEncoding.EncodeToString(cut), Base64: true}
}

// Exchange is what went over the wire for a request and its answer: the last of a job.
func (a *Answer) Exchange(r *Request) Exchange {
	if a.step != nil {
		r = a.step.request
	}
	address := a.hide(shownURL(r.URL)) // as a whole: of a secret that is cut, nobody knows that it is one
	out := Exchange{Method: r.Method, URL: address[:min(len(address), maxURL)], FailedAt: a.FailedAt}
	var head []byte
	for _, part := range r.Body {
		if head = append(head, part[:min(len(part), maskedHead-len(head))]...); len(head) == maskedHead {
			break
		}
	}
	for _, m := range a.masks {
		m.overwrite(head)
	}
	out.Request = headOf(head, r.Size(), maxRequestHead)
	if a.Sent == Answered {
		out.Response = &Response{Status: a.Status, Headers: shownHeaders(a.Header),
			Body: headOf(a.Body, int64(len(a.Body)), maxResponseHead)}
	}
	return out
}

// hide masks secrets in a text.
func (a *Answer) hide(text string) string {
	if len(a.masks) == 0 {
		return text
	}
	out := []byte(text)
	for _, m := range a.masks {
		m.overwrite(out)
	}
	return string(out)
}

// secretWords are parts of the names of query parameters that hold secrets.
var secretWords = []string{"key", "token", "secret", "passw", "signature", "auth", "credential", "session"}

// shownURL is an address in ASCII without user, and without the values of parameters that are secret by their names.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.Fragment = nil, ""
	if u.RawQuery != "" {
		pairs := strings.Split(u.RawQuery, "&")
		for i, pair := range pairs {
			name, _, valued := strings.Cut(pair, "=")
			lower := strings.ToLower(name)
			if valued && slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(lower, w) }) {
				pairs[i] = name + "=***"
			}
		}
		u.RawQuery = strings.Join(pairs, "&")
	}
	return u.String()
}

// shownWords are parts of the names of headers that are kept, shownNames whole names.
var (
	shownWords = []string{"ratelimit", "rate-limit", "limit-info", "request-id", "requestid", "correlation", "trace-id"}
	shownNames = []string{"retry-after", "content-type", "date", "server", "location", "etag", "cf-ray", "x-amz-id-2",
		"www-authenticate", "idempotent-replayed"}
)

func shownHeaders(all http.Header) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		name := strings.ToLower(key)
		shown := slices.Contains(shownNames, name) ||
			slices.ContainsFunc(shownWords, func(w string) bool { return strings.Contains(name, w) })
		if shown && len(out) < maxHeaders {
			out[name] = clean(strings.Join(all[key], ", "), maxHeader)
		}
	}
	return out
}
