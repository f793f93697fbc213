package provider

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestShownURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://u:p@a.example/x?b=1#f":                   "https://a.example/x?b=1",
		"https://a.example/?apiKey=1&page_token=2&q=a%20": "https://a.example/?apiKey=***&page_token=***&q=a%20",
		"https://a.example/?X-Amz-Signature=1&sig":        "https://a.example/?X-Amz-Signature=***&sig",
		"https://a.example/%":                             "",
		"https://a.example/" + strings.Repeat("é", 2000):  "https://a.example/" + strings.Repeat("%C3%A9", 2000),
	} {
		assert.Equal(t, want, shownURL(in))
	}
}

func TestShownHeaders(t *testing.T) {
	t.Parallel()
	in := http.Header{"Set-Cookie": {"a"}, "Authorization": {"b"}, "Retry-After": {"3"}, "Ratelimit-Remaining": {"1",
		"2"},
		"Zendesk-Ratelimit-Tickets-Index": {"total=1"}, "Sforce-Limit-Info": {"api-usage=1/2"},
		"X-Request-Id": {strings.Repeat("x", 300)}}
	assert.Equal(t, map[string]string{"retry-after": "3", "ratelimit-remaining": "1, 2",
		"zendesk-ratelimit-tickets-index": "total=1",
		"sforce-limit-info":               "api-usage=1/2", "x-request-id": strings.Repeat("x", maxHeader-1) + "…"},
		shownHeaders(in))
	for i := range 100 {
		in["X-Ratelimit-"+strings.Repeat("a", i)] = []string{"1"}
	}
	assert.Len(t, shownHeaders(in), maxHeaders)
}

// TestExchange_Secrets: no part of a secret of the call is left, wherever the cut is.
func TestExchange_Secrets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		const secret = "s3cr3t-0123456789-abcdefghij"
		before := rapid.IntRange(0, maxRequestHead+10).Draw(rt, "before")
		text := strings.Repeat(rapid.SampledFrom([]string{"x", "é", "𝄞", "\xff"}).Draw(rt, "filler"), before) + secret
		at := rapid.IntRange(0, len(text)).Draw(rt, "part")
		ans := Answer{Sent: Answered, Status: 200, Body: []byte(text), masks: []*mask{newMask(secret)}}
		for _, m := range ans.masks {
			m.answer(&ans)
		}
		got := ans.Exchange(&Request{Method: "POST", URL: "https://a.example/?q=" + strings.Repeat("x",
			rapid.IntRange(maxURL-60, maxURL).Draw(rt, "path")) + secret,
			Body: [][]byte{[]byte(text[:at]), []byte(text[at:])}})
		for _, shown := range []string{got.URL, got.Request.Text, got.Response.Body.Text} {
			assert.NotContains(rt, shown, "s3cr3t")
			assert.True(rt, utf8.ValidString(shown))
		}
		assert.LessOrEqual(rt, len(got.URL), maxURL)
		assert.EqualValues(rt, len(text), got.Request.Size)
		assert.LessOrEqual(rt, len(got.Request.Text), maxRequestHead*4/3+4)
	})
}
