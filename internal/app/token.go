package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"flowlane/internal/account"
	"flowlane/internal/platform/provider"
	"flowlane/internal/signin"
)

const (
	// keySetBytes is the size of the largest key set that is read; those of big providers have some ten keys.
	keySetBytes = 256 << 10
	// keySetConnect and keySetTimeout bound one reading, together with the time that its reader gives it.
	keySetConnect = 3 * time.Second
	keySetTimeout = 5 * time.Second
)

// Tokens names the identity provider whose bearer tokens the API takes; the zero value stands for none.
type Tokens struct {
	// Issuer and Audience are what tokens carry in iss and aud; KeysURL is the address of the provider's JWK Set.
	Issuer, Audience, KeysURL string
	// OrgClaim and RoleClaim are the claims that hold the organization and the role; empty for org_id and role.
	// AdminRole is the role that admins have there; empty for admin.
	OrgClaim, RoleClaim, AdminRole string
	// ClientID and ClientSecret are those of the console, where people sign in to it at the provider; empty where they
	// do not.
	ClientID, ClientSecret string
}

// config returns what the accounts need, nil where no tokens are taken. The sender reads the keys.
func (t Tokens) config(sender *provider.Sender) *account.TokenConfig {
	if t.Issuer == "" {
		return nil
	}
	return &account.TokenConfig{
		Issuer: t.Issuer, Audience: t.Audience, OrgClaim: cmp.Or(t.OrgClaim, "org_id"), RoleClaim: cmp.Or(t.RoleClaim,
			"role"),
		AdminRole: cmp.Or(t.AdminRole, "admin"), ClientID: t.ClientID,
		FetchKeys: func(ctx context.Context) ([]byte, error) { return fetchKeys(ctx, sender, t.KeysURL) },
	}
}

// check refuses half a provider, and an address on which somebody in between could put keys of his own.
func (t Tokens) check() error {
	if t.Issuer == "" && t.Audience == "" && t.KeysURL == "" {
		return signin.Check(t.Issuer, t.ClientID, t.ClientSecret) //nolint:wrapcheck // names the flag
	}
	if t.Issuer == "" || t.Audience == "" || t.KeysURL == "" {
		return errors.New("bearer tokens need all of --jwt-issuer, --jwt-audience and --jwt-keys-url, or none of them")
	}
	u, err := url.Parse(t.KeysURL)
	if err != nil || u.Host == "" || u.User != nil {
		return errors.New("--jwt-keys-url is no address: it looks like https://login.example.com/.well-known/jwks.json")
	}
	ip := net.ParseIP(u.Hostname())
	here := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !here) {
		return errors.New("--jwt-keys-url must begin with https://; only keys from this machine may come by http://")
	}
	return signin.Check(t.Issuer, t.ClientID, t.ClientSecret) //nolint:wrapcheck // names the flag
}

// sender returns the guarded client for the keys and for sign-ins. The operator named their hosts, so they may be
// private; nothing follows them anywhere else.
func (t Tokens) sender() *provider.Sender {
	return provider.NewSender(provider.Options{
		AllowHosts: append(HostOf(t.KeysURL), HostOf(t.Issuer)...), MaxAnswer: keySetBytes, DialTimeout: keySetConnect,
	})
}

func fetchKeys(ctx context.Context, sender *provider.Sender, address string) ([]byte, error) {
	until := time.Now().Add(keySetTimeout)
	ans := sender.Send(ctx, provider.Request{
		Method: http.MethodGet, URL: address,
		Header:     http.Header{"Accept": {"application/jwk-set+json, application/json"}},
		SendBefore: until, AnswerBefore: until,
	})
	if ans.Err != nil {
		return nil, fmt.Errorf("read %s: %w", address, ans.Err)
	}
	if ans.Status != http.StatusOK {
		return nil, fmt.Errorf("read %s: the answer has status %d, not 200", address, ans.Status)
	}
	return ans.Body, nil
}
