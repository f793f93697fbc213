package api

import (
	"time"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/platform/credential"
)

func credentialOf(c *credential.Credential) oas.Credential {
	out := oas.Credential{
		ID: c.ID.String(), OrgID: c.OrgID.String(), Name: c.Name, PlatformID: c.PlatformID,
		AuthMethod: oas.AuthMethod(c.AuthMethod), CredentialsRef: c.Ref(),
		TenancyID: nilString(c.TenancyID), GrantType: nilString(c.GrantType), TokenURL: nilString(c.TokenUrl),
		AuthorizeURL: nilString(c.AuthorizeUrl),
		Audience:     nilString(c.Audience), Scopes: c.Scopes,
		AWSRegion: nilString(c.AwsRegion), AWSService: nilString(c.AwsService),
		AWSDefaultBucket: nilString(c.AwsDefaultBucket), AWSEndpointURL: nilString(c.AwsEndpointUrl),
		AllowedOrigins: c.Origins,
		Telemetry:      make(oas.CredentialTelemetry, len(c.Uses)), Status: oas.CredentialStatus(c.Status),
		CreatedBy: c.CreatedBy, LastVerified: nilTime(c.LastVerified), CreatedAt: nilTime(&c.CreatedAt),
	}
	out.Limits.SetToNull()
	if l := c.Limits(); l != nil {
		limits := oas.CredentialLimits{Windows: []oas.LimitWindow{}}
		if limits.MaxInFlight.SetToNull(); l.MaxInFlight > 0 {
			limits.MaxInFlight.SetTo(l.MaxInFlight)
		}
		for _, w := range l.Windows {
			limits.Windows = append(limits.Windows, oas.LimitWindow{Seconds: w.Seconds, Calls: w.Calls,
				Kind: oas.LimitWindowKind(w.Kind)})
		}
		out.Limits.SetTo(limits)
	}
	out.Authorization.SetToNull()
	if a := c.Authorization; a != nil {
		row := oas.Authorization{State: oas.AuthorizationState(a.State), ExpiresAt: nilTime(a.ExpiresAt)}
		if row.Failure.SetToNull(); a.Failure != "" {
			row.Failure.SetTo(a.Failure)
		}
		out.Authorization.SetTo(row)
	}
	out.Tenant.SetToNull()
	if c.TenancyID != nil {
		out.Tenant.SetTo(oas.CredentialTenant{ID: *c.TenancyID, IsManual: c.Manual, Label: c.AccountLabel,
			PlatformID: c.PlatformID})
	}
	out.APIKeyPlacement.SetToNull()
	if p := c.Placement(); p != nil {
		var cookie oas.OptNilString // the shape is that of the three others unless there is one
		if p.CookieName != nil {
			cookie.SetTo(*p.CookieName)
		}
		out.APIKeyPlacement.SetTo(oas.ApiKeyPlacement{
			HeaderName: optNil(p.HeaderName), Scheme: optNil(p.Scheme), QueryParam: optNil(p.QueryParam),
			CookieName: cookie,
		})
	}
	for _, use := range c.Uses {
		out.Telemetry[use.ServiceID] = credentialUseOf(use)
	}
	return out
}

func credentialUseOf(use db.FlowCredentialUse) oas.CredentialUse {
	out := oas.CredentialUse{
		LastUsedAt: nilTime(&use.LastUsedAt), LastStampedAt: nilTime(&use.LastStampedAt),
		LastSucceededAt: nilTime(use.LastSucceededAt), LastFailedAt: nilTime(use.LastFailedAt),
	}
	out.LastFailureClass.SetToNull()
	if use.LastFailureClass != nil {
		out.LastFailureClass.SetTo(oas.ConnectionError(*use.LastFailureClass))
	}
	return out
}

func connectionTestOf(o credential.Outcome) oas.ConnectionTest {
	out := oas.ConnectionTest{
		Success: o.Success, Details: o.Details, LatencyMs: int(o.Latency / time.Millisecond),
		TestedAt: o.TestedAt.UTC(),
	}
	out.Error.SetToNull()
	if !o.Success {
		out.Error.SetTo(oas.ConnectionError(o.Failure))
	}
	return out
}

func createdCredential(r *oas.CredentialCreate, verify oas.OptBool) credential.Input {
	return credential.Input{
		Name: r.Name, PlatformID: r.PlatformID, AuthMethod: string(r.AuthMethod), Secret: secretBytes(r.Credentials),
		GrantType: givenString(r.GrantType), TokenURL: givenString(r.TokenURL),
		AuthorizeURL: givenString(r.AuthorizeURL),
		Scopes:       r.Scopes, Audience: givenString(r.Audience),
		Placement: placementOf(r.APIKeyPlacement),
		AWSRegion: givenString(r.AWSRegion), AWSService: givenString(r.AWSService),
		AWSDefaultBucket: givenString(r.AWSDefaultBucket), AWSEndpointURL: givenString(r.AWSEndpointURL),
		Origins: r.AllowedOrigins, Status: string(r.Status.Or("")), TenancyID: givenString(r.TenancyID),
		Unverified: !verify.Or(true),
	}
}

// replacedCredential leaves out the read-only fields, which may be sent back as they were read.
func replacedCredential(r *oas.CredentialUpdate, verify oas.OptBool) credential.Input {
	in := credential.Input{
		Name: r.Name, PlatformID: r.PlatformID, AuthMethod: string(r.AuthMethod),
		GrantType: givenString(r.GrantType), TokenURL: givenString(r.TokenURL),
		AuthorizeURL: givenString(r.AuthorizeURL),
		Scopes:       r.Scopes, Audience: givenString(r.Audience),
		Placement: placementOf(r.APIKeyPlacement),
		AWSRegion: givenString(r.AWSRegion), AWSService: givenString(r.AWSService),
		AWSDefaultBucket: givenString(r.AWSDefaultBucket), AWSEndpointURL: givenString(r.AWSEndpointURL),
		Origins: r.AllowedOrigins, Status: string(r.Status.Or("")), Unverified: !verify.Or(true),
	}
	if secret, ok := r.Credentials.Get(); ok {
		in.Secret = secretBytes(secret)
	}
	return in
}

// secretBytes is never nil, since nil means that no secret was sent: the zero value of the object stands for {}.
func secretBytes(o oas.FreeObject) []byte {
	if len(o) == 0 {
		return []byte("{}")
	}
	return o
}

func placementOf(given oas.OptNilApiKeyPlacement) *credential.Placement {
	p, ok := given.Get()
	if !ok {
		return nil
	}
	return &credential.Placement{
		HeaderName: givenString(p.HeaderName), Scheme: givenString(p.Scheme), QueryParam: givenString(p.QueryParam),
		CookieName: givenString(p.CookieName),
	}
}

// givenString is the value of an optional field; absent and null are the same here.
func givenString(s oas.OptNilString) *string {
	if text, ok := s.Get(); ok {
		return &text
	}
	return nil
}

func optNil(s *string) oas.OptNilString {
	if s == nil {
		return oas.OptNilString{Set: true, Null: true}
	}
	return oas.NewOptNilString(*s)
}
