package api_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider"
)

// TestOAuth_RotatedElsewhere: a process that holds a copy of what another has replaced asks no issuer with it; its call
// was not tried, and the next one has what counts.
func TestOAuth_RotatedElsewhere(t *testing.T) {
	t.Parallel()
	issuer := newRotatingIssuer(t)
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(issuer.URL)) })
	other := s.second()
	made := s.Do(http.MethodPost, "/credentials", issuer.body(needle+"-old")).Want(http.StatusCreated).JSON()
	org, id := uuid.MustParse(made["org_id"].(string)), uuid.MustParse(made["id"].(string))
	_, err := other.Credentials.Resolve(t.Context(), org, id)
	require.NoError(t, err)
	s.Do(http.MethodPut, "/credentials/"+made["id"].(string), issuer.body(needle+"-r0")).Want(http.StatusOK)
	ans := callWith(t.Context(), s.app, org, id, issuer.URL)
	require.Equal(t, http.StatusOK, ans.Status, ans.Err)

	ans = callWith(t.Context(), other, org, id, issuer.URL)
	assert.Equal(t, provider.NotSent, ans.Sent)
	require.ErrorIs(t, ans.Err, provider.ErrNotTried)
	ans = callWith(t.Context(), other, org, id, issuer.URL)
	require.Equal(t, http.StatusOK, ans.Status, ans.Err)
	assert.Equal(t, [2]int{1, 2}, issuer.counts())
	assert.Equal(t, "authorized", s.authorization("/credentials/" + made["id"].(string))["state"])
}
