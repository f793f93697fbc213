package credential

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"flowlane/gen/db"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

const redacted = "[redacted]"

// secret is the material of a credential with the settings by which it is sent. It prints as [redacted].
type secret struct {
	settings
	fields map[string]string
}

// settings say how the secret of a credential is sent; nothing in them is secret.
type settings struct {
	platformID, method        string
	placement                 *Placement
	grant, tokenURL, audience string
	authorizeURL              string
	scopes                    []string
	awsRegion, awsService     string
	awsURL, awsName           string
	origins                   []string
}

func (in Input) settings() settings {
	return settings{
		platformID: in.PlatformID, method: in.AuthMethod, placement: in.Placement, tokenURL: textOf(in.TokenURL),
		audience: textOf(in.Audience),
		grant:    textOf(in.GrantType), authorizeURL: textOf(in.AuthorizeURL),
		scopes: in.Scopes, awsRegion: textOf(in.AWSRegion), awsService: textOf(in.AWSService),
		awsURL: textOf(in.AWSEndpointURL), awsName: textOf(in.AWSDefaultBucket),
		origins: in.Origins,
	}
}

func settingsOf(row *db.FlowCredential) settings {
	return settings{
		platformID: row.PlatformID, method: row.AuthMethod, placement: placement(row),
		grant: textOf(row.GrantType), authorizeURL: textOf(row.AuthorizeUrl), tokenURL: textOf(row.TokenUrl),
		audience: textOf(row.Audience), scopes: row.Scopes,
		awsRegion: textOf(row.AwsRegion), awsService: textOf(row.AwsService), awsURL: textOf(row.AwsEndpointUrl),
		awsName: textOf(row.AwsDefaultBucket),
		origins: row.AllowedOrigins,
	}
}

// spec is the settings as package provider takes them, with all places where the secret may go: those that it names,
// and those where its platform is reached. fields are those of the secret; nil where it is not read.
func (s *Service) spec(in settings, fields map[string]string) provider.Spec {
	platform, ok := s.catalog.Platform(in.platformID)
	var signIn catalog.SignIn
	if ok {
		in, signIn = completed(platform, in, fields)
	}
	out := provider.Spec{
		Method: in.method, PlatformID: in.platformID, Fields: fields, Placement: in.placement.outgoing(),
		TokenURL: in.tokenURL, Scopes: in.scopes,
		Grant: in.grant, Audience: in.audience, Region: in.awsRegion, Service: in.awsService, Endpoint: in.awsURL,
		Bucket:  in.awsName,
		Origins: slices.Clone(in.origins), SignIn: signIn,
	}
	for _, service := range s.catalog.Services(in.platformID) {
		origin, err := out.OriginOf(service)
		if err == nil && origin != "" && !slices.Contains(out.Origins, origin) {
			out.Origins = append(out.Origins, origin)
		}
	}
	return out
}

// completed are the settings with what the catalog says of them, and how it has the secret sent. fields fill the labels
// of addresses; an address whose labels they do not fill is left out.
func completed(platform *catalog.Platform, in settings, fields map[string]string) (settings, catalog.SignIn) {
	service, err := serviceFor(platform, in.method, in.grant)
	if err != nil {
		return in, catalog.SignIn{}
	}
	auth, _ := service.Auth(in.method, in.grant)
	known := catalog.Known{Fields: fields, Settings: map[string]string{"aws_region": in.awsRegion}}
	for _, at := range []struct {
		own     *string
		pattern string
	}{{&in.tokenURL, auth.TokenURL}, {&in.authorizeURL, auth.AuthorizeURL}} {
		if at.pattern == "" {
			continue
		}
		if *at.own, err = service.Located(at.pattern, known); err != nil {
			*at.own = ""
		}
	}
	in.grant, in.audience = firstOf(in.grant, auth.Grant), firstOf(auth.Audience, in.audience)
	if len(in.scopes) == 0 && len(auth.Scopes) > 0 {
		in.scopes = auth.Scopes
	}
	return in, auth.SignIn
}

// outgoing is a secret that is not stored as a request carries it. The error wraps provider.ErrSecretShape.
func (s *Service) outgoing(in secret) (provider.Secret, error) {
	return provider.NewSecret(s.spec(in.settings, in.fields))
}

// outgoingWith is a secret of oauth2 that is not stored, with tokens that share has. The error wraps
// provider.ErrSecretShape.
func (s *Service) outgoingWith(in secret, share provider.Share) (provider.Secret, error) {
	spec := s.spec(in.settings, in.fields)
	spec.Share = share
	return provider.NewSecret(spec)
}

// outgoingStored is a stored secret as a request carries it; its tokens are those that processes share. The error wraps
// provider.ErrSecretShape.
func (s *Service) outgoingStored(of *loaded) (provider.Secret, error) {
	spec := s.spec(of.material.settings, of.material.fields)
	spec.Version = of.ID.String() + "/" + strconv.FormatInt(of.Version, 10)
	spec.Share = s.share(of)
	return provider.NewSecret(spec)
}

// String hides the fields from logs and errors.
func (secret) String() string { return redacted }

// GoString hides the fields from %#v.
func (secret) GoString() string { return redacted }

// MarshalJSON refuses: only encode writes a secret, for the vault.
func (secret) MarshalJSON() ([]byte, error) { return nil, errors.New("a secret has no JSON form") }

func (p *Placement) outgoing() provider.Placement {
	if p == nil {
		return provider.Placement{}
	}
	return provider.Placement{HeaderName: textOf(p.HeaderName), Scheme: textOf(p.Scheme),
		QueryParam: textOf(p.QueryParam),
		CookieName: textOf(p.CookieName)}
}

// encode returns the plaintext that the vault encrypts.
func (s secret) encode() ([]byte, error) {
	plain, err := json.Marshal(s.fields)
	if err != nil {
		return nil, fmt.Errorf("encode a secret: %w", err)
	}
	return plain, nil
}

func decodeFields(plain []byte) (map[string]string, error) {
	var fields map[string]string
	if json.Unmarshal(plain, &fields) != nil {
		// The decoder's error could quote the text.
		return nil, errors.New("a stored secret is not an object of strings")
	}
	return fields, nil
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
