package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTokens_Check(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tokens Tokens
		says   string
	}{
		"none":             {Tokens{OrgClaim: "org_id"}, ""},
		"whole":            {Tokens{Issuer: "i", Audience: "a", KeysURL: "https://login.example.com/keys"}, ""},
		"this machine":     {Tokens{Issuer: "i", Audience: "a", KeysURL: "http://127.0.0.1:8080/keys"}, ""},
		"this machine, v6": {Tokens{Issuer: "i", Audience: "a", KeysURL: "http://[::1]:8080/keys"}, ""},
		"localhost":        {Tokens{Issuer: "i", Audience: "a", KeysURL: "http://localhost/keys"}, ""},
		"no audience":      {Tokens{Issuer: "i", KeysURL: "https://login.example.com/keys"}, "--jwt-audience"},
		"no issuer":        {Tokens{Audience: "a", KeysURL: "https://login.example.com/keys"}, "--jwt-issuer"},
		"no keys":          {Tokens{Issuer: "i", Audience: "a"}, "--jwt-keys-url"},
		"not encrypted":    {Tokens{Issuer: "i", Audience: "a", KeysURL: "http://login.example.com/keys"}, "https://"},
		"a file":           {Tokens{Issuer: "i", Audience: "a", KeysURL: "file:///etc/keys"}, "no address"},
		"no host":          {Tokens{Issuer: "i", Audience: "a", KeysURL: "https:///keys"}, "no address"},
		"a password": {Tokens{Issuer: "i", Audience: "a", KeysURL: "https://u:p@login.example.com/keys"},
			"no address"},
		"nonsense": {Tokens{Issuer: "i", Audience: "a", KeysURL: "keys"}, "no address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.tokens.check()
			if tt.says == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.says)
			}
		})
	}
}

func TestTokens_FetchKeys(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/keys":
			_, _ = w.Write([]byte(`{"keys":[]}`))
		case "/moved":
			http.Redirect(w, r, "/keys", http.StatusFound)
		case "/large":
			_, _ = w.Write([]byte(`{"keys":[]}` + strings.Repeat(" ", keySetBytes)))
		case "/slow":
			<-release
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(provider.Close)
	t.Cleanup(func() { close(release) })
	fetch := func(ctx context.Context, path string) ([]byte, error) {
		tokens := Tokens{Issuer: "i", Audience: "a", KeysURL: provider.URL + path}
		sender := tokens.sender()
		defer sender.Close()
		return tokens.config(sender).FetchKeys(ctx)
	}
	text, err := fetch(t.Context(), "/keys")
	require.NoError(t, err)
	assert.JSONEq(t, `{"keys":[]}`, string(text))
	for path, says := range map[string]string{"/moved": "status 302", "/gone": "status 404", "/large": "too large"} {
		_, err := fetch(t.Context(), path)
		assert.ErrorContains(t, err, says, path)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = fetch(soon, "/slow")
	assert.ErrorIs(t, err, context.DeadlineExceeded)

	// The keys' host is the only one in a private network that their reader may reach.
	elsewhere := Tokens{Issuer: "i", Audience: "a", KeysURL: "https://login.example.com/keys"}
	sender := elsewhere.sender()
	defer sender.Close()
	_, err = fetchKeys(t.Context(), sender, provider.URL+"/keys")
	assert.ErrorContains(t, err, "not allowed")
}
