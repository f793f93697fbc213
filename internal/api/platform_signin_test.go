package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlatform_SignIn: an app signs in to Salesforce with its secret, or with an assertion for a user; nobody names the
// addresses.
func TestPlatform_SignIn(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	key, _ := keyPair(t)
	for grant, fields := range map[string]map[string]string{
		"client_credentials": {"my_domain": "acme", "client_id": "app", "client_secret": "s"},
		"jwt_bearer": {"my_domain": "acme--uat.sandbox", "issuer": "app", "subject": "ada@example.com",
			"algorithm": "RS256", "key": key},
	} {
		body := map[string]any{"name": grant, "platform_id": "salesforce", "auth_method": "oauth2", "grant_type": grant,
			"credentials": fields}
		if grant == "jwt_bearer" {
			body["audience"] = "https://test.salesforce.com"
		}
		made := p.Do(http.MethodPost, "/credentials", body).Want(http.StatusCreated).JSON()
		tested := p.Do(http.MethodPost, "/credentials/"+made["id"].(string)+"/test", nil).Want(http.StatusOK).JSON()
		require.Equal(t, true, tested["success"], "%s: %v", grant, tested)
		assert.Contains(t, tested["details"], "Simulated", grant)
	}
	wrong := map[string]any{"name": "w", "platform_id": "salesforce", "auth_method": "oauth2",
		"credentials": map[string]string{"my_domain": "acme", "client_id": "app", "client_secret": "bad-secret"}}
	p.Do(http.MethodPost, "/credentials", wrong).Want(http.StatusUnprocessableEntity)
}
