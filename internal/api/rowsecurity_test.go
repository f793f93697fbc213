package api_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

const (
	ofAccount     = "an account may be that of several organizations, and what it has left is read for all of them"
	nothingStored = "the organization has stored nothing of it"
)

// beyond are reads whose answers row-level security does not narrow, and why.
var beyond = map[string]string{
	"getAttribution": ofAccount, "getDomain": ofAccount, "getHeadroom": ofAccount, "getMargins": ofAccount,
	"getQueue":    ofAccount,
	"listDomains": ofAccount, "listUsageHistory": ofAccount,
	"getRetention": nothingStored, "listEventKinds": nothingStored,
}

var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)

// found is the status of a read and what it found, but for moments.
func (s *stack) found(path string) (status int, body any) {
	s.t.Helper()
	got := s.Do(http.MethodGet, path, nil)
	text := moments.ReplaceAll(got.Body, nil)
	if json.Unmarshal(text, &body) != nil {
		body = string(text)
	}
	return got.Status, body
}

// TestRowSecurity: what operations read they read in the role of requests, to whom a policy shows the rows of their
// organization: once there is none they find nothing.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false, func(c *app.Config) { c.RequestLimit = 1_000_000 })
	p := newParty(s, "acme")
	paths, before := map[string]string{}, map[string]any{}
	for _, op := range documented(t) {
		if op.method == http.MethodGet && (op.access == members || op.access == admins) {
			paths[op.id] = p.call(t, op).path
		}
	}
	for id, path := range paths {
		var status int
		status, before[id] = p.found(path)
		require.Equal(t, http.StatusOK, status, id)
	}
	_, err := s.owner.Exec(t.Context(), `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT polrelid::regclass FROM pg_policy WHERE polname = 'request' LOOP EXECUTE 'DROP POLICY request ON ' || name; END LOOP; END $$`)
	require.NoError(t, err)
	for id, path := range paths {
		_, after := p.found(path)
		if why, is := beyond[id]; is {
			assert.Equal(t, before[id], after, "%s, though %s", id, why)
		} else {
			assert.NotEqual(t, before[id], after, id)
		}
	}
}
