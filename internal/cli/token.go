package cli

import "flowlane/internal/app"

// tokens is the flags that name an identity provider.
type tokens struct {
	Issuer       string `name:"jwt-issuer" env:"FLOWLANE_JWT_ISSUER" help:"Take bearer tokens of this issuer (iss), as it writes itself. Needs the next two."`
	Audience     string `name:"jwt-audience" env:"FLOWLANE_JWT_AUDIENCE" help:"The audience (aud) that its tokens must have."`
	KeysURL      string `name:"jwt-keys-url" env:"FLOWLANE_JWT_KEYS_URL" help:"Address of its keys, a JWK Set."`
	OrgClaim     string `name:"jwt-org-claim" env:"FLOWLANE_JWT_ORG_CLAIM" default:"org_id" help:"Claim with the id, or the external id, of the organization."`
	RoleClaim    string `name:"jwt-role-claim" env:"FLOWLANE_JWT_ROLE_CLAIM" default:"role" help:"Claim with the role, or a list of roles."`
	AdminRole    string `name:"jwt-admin-role" env:"FLOWLANE_JWT_ADMIN_ROLE" default:"admin" help:"The role that admins have there; any other is a member."`
	ClientID     string `name:"oidc-client-id" env:"FLOWLANE_OIDC_CLIENT_ID" help:"Have people sign in to the console at that provider, where it is known as this client."`
	ClientSecret string `name:"oidc-client-secret" env:"FLOWLANE_OIDC_CLIENT_SECRET" help:"The secret of that client, if it has one; better given by its variable."`
}

func (t tokens) config() app.Tokens {
	return app.Tokens{
		Issuer: t.Issuer, Audience: t.Audience, KeysURL: t.KeysURL, OrgClaim: t.OrgClaim, RoleClaim: t.RoleClaim,
		AdminRole: t.AdminRole,
		ClientID:  t.ClientID, ClientSecret: t.ClientSecret,
	}
}
