package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

const streamTokens = "/account/auth/stream-token"

func TestStreamToken_Create(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`)
	member := s.As("")
	member.Token = s.issuer.Token(s.orgID(s.Key), nil)
	seen := map[string]bool{}
	for _, c := range []*apitest.Client{s.Client, member} {
		for _, body := range []any{nil, `{}`, `{"execution_id":null}`, fmt.Sprintf(`{"execution_id":"%s.0.1"}`,
			batch)} {
			before := time.Now().Truncate(time.Second)
			res := c.Do(http.MethodPost, streamTokens, body, idempotencyKey, "same").Want(http.StatusCreated)
			token := res.JSON()["token"].(string)
			assert.True(t, strings.HasPrefix(token, "stream_"))
			assert.False(t, seen[token], "a token came twice")
			seen[token] = true
			expires, err := time.Parse(time.RFC3339, res.JSON()["expires_at"].(string))
			require.NoError(t, err)
			assert.False(t, expires.Before(before.Add(300*time.Second)) ||
				expires.After(time.Now().Add(300*time.Second)), "asked for at %s, good until %s", before, expires)
			assert.Equal(t, "100", res.Header.Get("RateLimit-Limit"))
		}
	}
	s.Do(http.MethodPost, streamTokens, `{"execution_id":1,"x":2}`).Invalid("body.execution_id string_type",
		"body.x extra_forbidden")
	for _, id := range []string{batch + ".1.1", batch + ".0.2", batch + ".0", batch, "", "x",
		"0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.0.1"} {
		s.Do(http.MethodPost, streamTokens, fmt.Sprintf(`{"execution_id":%q}`, id)).Detail(http.StatusNotFound,
			"Execution not found")
	}
	s.other.Do(http.MethodPost, streamTokens, fmt.Sprintf(`{"execution_id":"%s.0.1"}`, batch)).Detail(
		http.StatusNotFound, "Execution not found")
	s.As("").Do(http.MethodPost, streamTokens, nil).Detail(http.StatusUnauthorized, "Authentication required")

	// It opens streams and nothing else.
	for token := range seen {
		s.As(token).Do(http.MethodGet, "/account/me", nil).Detail(http.StatusUnauthorized, "Authentication required")
		bearer := s.As("")
		bearer.Token = token
		bearer.Do(http.MethodGet, "/account/me", nil).Detail(http.StatusUnauthorized, "Authentication required")
		s.As("").Do(http.MethodGet, "/account/me?token="+token, nil).Detail(http.StatusUnauthorized,
			"Authentication required")
	}
	dump := ""
	require.NoError(t, s.owner.QueryRow(t.Context(), `SELECT string_agg(l::text, ' ') FROM flow.audit_log l`).Scan(
		&dump))
	assert.Contains(t, dump, batch+".0.1", "the audit log names the execution")
	assert.NotContains(t, dump, "stream_")
}
