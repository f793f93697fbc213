package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// TestStream_Session: pages of this service open streams with the session of their browser, which no other page can.
func TestStream_Session(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.scheduled(1)
	cookie := signIn(t, s.Client)
	browser := s.As("")
	ofBatch, ofExecution := streamOf(batch, ""), "/flows/executions/"+batch+".0.1/stream"
	for _, site := range []string{"same-origin", "none"} {
		assert.Equal(t, "progress queued", s.told(batch, openStreamAt(t, browser, ofBatch, "Cookie", cookie, fromPage,
			site).one()))
		assert.Equal(t, "execution.snapshot", openStreamAt(t, browser, ofExecution, "Cookie", cookie, fromPage,
			site).one().name)
	}
	_, text, _ := strings.Cut(cookie, "=")
	refused := func(c *apitest.Client, query string, header ...string) {
		t.Helper()
		for _, path := range []string{ofBatch, ofExecution + "?"} {
			c.Do(http.MethodGet, path+query, nil, header...).Detail(http.StatusUnauthorized, "Authentication required")
		}
	}
	for _, site := range []string{"cross-site", "same-site", ""} {
		refused(browser, "", "Cookie", cookie, fromPage, site)
	}
	refused(browser, "", "Cookie", cookie+"x", fromPage, "same-origin")
	refused(browser, "token=session")
	refused(browser, "token="+text)
	refused(browser, "token="+text, "Cookie", cookie, fromPage, "same-origin")
	refused(s.Client, "", "Cookie", cookie, fromPage, "same-origin")
	bearer := s.As("")
	bearer.Token = text
	refused(bearer, "")

	// A token that stands beside it wins, and a session opens nothing of other organizations.
	for _, query := range []string{"token=" + streamToken(s.other, ""), "token=" + streamToken(s.Client, batch+
		".0.1")} {
		browser.Do(http.MethodGet, streamOf(batch, query), nil, "Cookie", cookie, fromPage, "same-origin").
			Detail(http.StatusNotFound, "Batch not found")
	}
	browser.Do(http.MethodGet, ofBatch, nil, "Cookie", signIn(t, s.other), fromPage, "same-origin").Detail(
		http.StatusNotFound, "Batch not found")
	limited := s.Do(http.MethodPost, "/account/api-keys", `{"name":"x","scopes":["executions:read"]}`).Want(
		http.StatusCreated).JSON()["key"].(string)
	browser.Do(http.MethodGet, ofBatch, nil, "Cookie", signIn(t, s.As(limited)), fromPage, "same-origin").
		Detail(http.StatusForbidden, "Scope batches:read required")
}

// TestStream_SessionEnds: a stream ends with the session that opened it, whichever process took the sign-out.
func TestStream_SessionEnds(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.scheduled(1)
	stays, created := signIn(t, s.Client), s.Do(http.MethodPost, "/account/api-keys",
		`{"name":"x"}`).Want(http.StatusCreated).JSON()
	browser, other := s.As(""), s.replica().As("")
	open := func(cookie string) []*eventSource {
		var streams []*eventSource
		for _, path := range []string{streamOf(batch, ""), "/flows/executions/" + batch + ".0.1/stream"} {
			stream := openStreamAt(t, browser, path, "Cookie", cookie, fromPage, "same-origin")
			stream.one()
			streams = append(streams, stream)
		}
		return streams
	}
	left, revoked := signIn(t, s.Client), signIn(t, s.As(created["key"].(string)))
	still, ended := open(stays), append(open(left), open(revoked)...)
	other.Do(http.MethodDelete, sessions, nil, "Cookie", left, fromPage, "same-origin", ofConsole,
		"1").Want(http.StatusNoContent)
	s.Do(http.MethodDelete, "/account/api-keys/"+created["id"].(string), nil).Want(http.StatusNoContent)
	for _, stream := range ended {
		assert.Empty(t, stream.all())
		require.NoError(t, stream.lines.Err())
	}
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	assert.Equal(t, "batch.closed cancelled", s.told(batch, still[0].one()))
	assert.Equal(t, "execution.closed", last(still[1].all()).name)
}

func last(events []serverEvent) serverEvent { return events[len(events)-1] }
