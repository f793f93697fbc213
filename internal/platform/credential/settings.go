package credential

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// grants are those that are carried out, the default first.
var grants = []string{
	provider.ClientCredentials, provider.RefreshToken, provider.Password, provider.JWTBearer,
	provider.AuthorizationCode,
}

var (
	// awsRegion goes into the host of calls; services have the same form.
	awsRegion = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	awsBucket = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`)
)

// fixOAuth takes out of in what the catalog says of oauth2, which may be sent back as it was read, and returns what
// differs from it.
func fixOAuth(service *catalog.Service, in *Input) (bad []fault.Field) {
	auth, ok := service.Auth(in.AuthMethod, textOf(in.GrantType))
	if in.AuthMethod != OAuth2 || !ok {
		return nil
	}
	if textOf(in.GrantType) == "" {
		in.GrantType = given(auth.Grant)
	}
	for _, setting := range []struct {
		name  string
		given **string
		said  string
	}{{"token_url", &in.TokenURL, auth.TokenURL}, {"authorize_url", &in.AuthorizeURL, auth.AuthorizeURL},
		{"audience", &in.Audience, auth.Audience}} {
		if setting.said == "" {
			continue
		}
		shown := setting.said
		if setting.name != "audience" {
			shown, _ = service.Located(shown,
				catalog.Known{Settings: map[string]string{"aws_region": textOf(in.AWSRegion)}})
		}
		if own := textOf(*setting.given); own != "" && own != shown {
			bad = append(bad, wrong("value_error", "The catalog says it for platform "+in.PlatformID+"; leave it out",
				setting.name))
		}
		*setting.given = nil
	}
	if slices.Equal(in.Scopes, auth.Scopes) {
		in.Scopes = nil
	}
	return bad
}

// checkSettings returns what is wrong with the settings of the method; those of other methods are kept and not used.
func checkSettings(service *catalog.Service, in Input) []fault.Field {
	auth, _ := service.Auth(in.AuthMethod, textOf(in.GrantType))
	var bad []fault.Field
	refuse := func(slug, msg, at string) { bad = append(bad, wrong(slug, msg, at)) }
	switch in.AuthMethod {
	case OAuth2:
		if grant := textOf(in.GrantType); grant != "" && !slices.Contains(grants, grant) {
			refuse("value_error", "Must be one of "+strings.Join(grants, ", ")+", or left out for the first",
				"grant_type")
		}
		switch at := textOf(in.AuthorizeURL); {
		case textOf(in.GrantType) != provider.AuthorizationCode || auth.AuthorizeURL != "":
		case at == "":
			refuse("missing", "Required with grant_type authorization_code: where a person agrees", "authorize_url")
		case !isAddress(at):
			refuse("value_error", "Must be a whole http or https address without user name and fragment",
				"authorize_url")
		}
		switch at := textOf(in.TokenURL); {
		case auth.TokenURL != "":
		case at == "":
			refuse("missing", "Required with auth_method oauth2", "token_url")
		case !isAddress(at):
			refuse("value_error", "Must be a whole http or https address without user name and fragment", "token_url")
		}
		for _, scope := range in.Scopes {
			if strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
				refuse("value_error", "A scope is one word of printable ASCII", "scopes")
				break
			}
		}
	case AWSAccessKey:
		bad = checkAWS(service, &auth, &in)
	}
	return bad
}

// checkAWS returns what is wrong with the settings of aws_access_key.
func checkAWS(service *catalog.Service, auth *catalog.Auth, in *Input) (bad []fault.Field) {
	refuse := func(slug, msg, at string) { bad = append(bad, wrong(slug, msg, at)) }
	if region := textOf(in.AWSRegion); region != "" && !awsRegion.MatchString(region) {
		refuse("value_error", "Must be a region such as eu-central-1", "aws_region")
	}
	switch name := textOf(in.AWSService); {
	case name == "":
	case auth.AWSService != "" && name != auth.AWSService:
		refuse("value_error", "The catalog says it for platform "+in.PlatformID+"; leave it out", "aws_service")
	case !awsRegion.MatchString(name):
		refuse("value_error", "Must be a service as signatures name it, such as sqs", "aws_service")
	}
	if anyAddress(service) {
		const elsewhere = "Goes only with a platform of AWS: flows name the whole address"
		if textOf(in.AWSEndpointURL) != "" {
			refuse("value_error", elsewhere, "aws_endpoint_url")
		}
		if textOf(in.AWSDefaultBucket) != "" {
			refuse("value_error", elsewhere, "aws_default_bucket")
		}
	}
	if bucket := textOf(in.AWSDefaultBucket); bucket != "" && !awsBucket.MatchString(bucket) {
		refuse("value_error", "Must be the name of a bucket: small letters, digits, dots and hyphens",
			"aws_default_bucket")
	}
	if at := textOf(in.AWSEndpointURL); at != "" {
		if u, err := url.Parse(at); !isAddress(at) || err != nil || strings.Trim(u.Path, "/") != "" ||
			u.RawQuery != "" {
			refuse("value_error", "Must be a whole http or https address without path, "+
				"for example https://s3.example.com", "aws_endpoint_url")
		}
	}
	return bad
}

// maxOrigins bounds the origins of a credential.
const maxOrigins = 20

// checkOrigins returns the origins that are to be stored, in order and each once, and what is wrong with those that in
// names. Where flows name addresses there must be some; elsewhere the catalog says them, and what was read may be sent
// back.
func (s *Service) checkOrigins(platform *catalog.Platform, in Input) (origins []string, bad []fault.Field) {
	const at = "allowed_origins"
	if !slices.ContainsFunc(platform.Services, anyAddress) {
		settings := in.settings()
		settings.origins = nil
		if len(in.Origins) > 0 && !slices.Equal(in.Origins, s.spec(settings, nil).Origins) {
			bad = append(bad, wrong("value_error", "The catalog says where a secret of platform "+platform.ID+
				" goes; leave it out", at))
		}
		return []string{}, bad
	}
	switch n := len(in.Origins); {
	case n == 0:
		return nil, []fault.Field{wrong("missing", "Required with platform "+platform.ID+
			", whose flows name addresses: "+
			"list the origins to which the secret may be sent, for example https://api.example.com", at)}
	case n > maxOrigins:
		return nil, []fault.Field{wrong("too_long", fmt.Sprintf("Must have at most %d items", maxOrigins), at)}
	}
	for i, text := range in.Origins {
		origin, err := provider.ParseOrigin(text, s.allowHosts)
		if err != nil {
			bad = append(bad, wrong("value_error", "An origin "+err.Error(), at, strconv.Itoa(i)))
		}
		origins = append(origins, origin)
	}
	slices.Sort(origins)
	return slices.Compact(origins), bad
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil &&
		u.Fragment == ""
}
