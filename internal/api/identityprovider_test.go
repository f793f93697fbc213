package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// identityProvider starts the OpenID provider of testdata/idp, which nobody here wrote, and returns its address.
func identityProvider(t *testing.T) (issuer string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		servers.Missing(t, "install Node 20 or later: an OpenID provider needs npm")
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/idp")))
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	out, err := install.CombinedOutput()
	require.NoError(t, err, string(out))

	provider := exec.CommandContext(t.Context(), "node", "idp.js")
	provider.Dir = dir
	stdin, err := provider.StdinPipe()
	require.NoError(t, err)
	stdout, err := provider.StdoutPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	provider.Stderr = &stderr
	require.NoError(t, provider.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = provider.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err, &stderr)
	var said struct{ Issuer string }
	require.NoError(t, json.Unmarshal(line, &said))
	return said.Issuer
}

// issuedToken asks the provider for a token of one of its clients.
func issuedToken(t *testing.T, issuer, client, audience string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {audience}, "scope": {"api"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, issuer+"/token",
		strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(client, client+"-test-secret")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Token string `json:"access_token"`
		Type  string `json:"token_type"`
		Error string `json:"error_description"`
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
	require.Equal(t, http.StatusOK, res.StatusCode, answer.Error)
	require.Equal(t, "Bearer", answer.Type)
	return answer.Token
}

// TestToken_OfAnIdentityProvider takes tokens of an OpenID provider as it issues them.
func TestToken_OfAnIdentityProvider(t *testing.T) {
	t.Parallel()
	issuer := identityProvider(t)
	const audience = "https://api.flowlane.test"
	s := serveStack(t, false, func(c *app.Config) {
		c.Tokens = app.Tokens{Issuer: issuer, Audience: audience, KeysURL: issuer + "/jwks"}
	})
	org := s.orgID(s.Key)
	_, err := s.owner.Exec(t.Context(), `UPDATE flow.organization SET external_id = 'acme' WHERE id = $1`, org)
	require.NoError(t, err)

	admin := s.Bearer(issuedToken(t, issuer, "admin", audience))
	said := readMe(admin)
	assert.Equal(t, org, said.Organization.ID)
	assert.Equal(t, "jwt", said.AuthMethod)
	admin.Do("POST", "/flows/definitions", `{"name":"d","steps":`+transformSteps+`}`).Want(http.StatusCreated)

	member := s.Bearer(issuedToken(t, issuer, "member", audience))
	member.Do("GET", "/flows/definitions", nil).Want(http.StatusOK)
	member.Do("POST", "/flows/definitions", `{"name":"d","steps":`+transformSteps+`}`).Detail(http.StatusForbidden,
		"Admin role required")

	s.Bearer(issuedToken(t, issuer, "admin", "https://elsewhere.test")).Do("GET", "/account/me", nil).
		Detail(http.StatusUnauthorized, "Authentication required")
}
