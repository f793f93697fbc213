// Package credential owns stored platform secrets as callers see them: their fields, rotation in place, connection
// tests, observed use, and the copy that workers hold for some seconds. It promises that a credential never moves to
// another platform or provider account, that no call is made inside a transaction, and that no secret is in anything it
// returns but a Resolved. It knows no HTTP route and no protocol: a Prober asks the platform, the vault encrypts.
package credential

import (
	"context"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/listing"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/vault"
	"flowlane/internal/run"
)

// The statuses of a credential; only an active one is used.
const (
	Active  = "active"
	Expired = "expired"
	Revoked = "revoked"
)

// The auth methods.
const (
	BasicAuth    = "basic_auth"
	APIKey       = "api_key"
	JWT          = "jwt"
	OAuth2       = "oauth2"
	AWSAccessKey = "aws_access_key"
	MutualTLS    = "mutual_tls"
)

// refScheme begins every credentials_ref.
const refScheme = "vault://"

// Placement says where the key of an api_key credential goes: exactly one of HeaderName, QueryParam and CookieName is
// set; Scheme, a word before the value, goes only with HeaderName.
type Placement struct {
	HeaderName *string
	Scheme     *string
	QueryParam *string
	CookieName *string
}

// Credential is a stored credential without its secret, as all reads return it.
type Credential struct {
	db.FlowCredential
	// AccountLabel names the provider account for people; empty until the account is known. Manual tells that the
	// organization named it.
	AccountLabel string
	Manual       bool
	// Origins are all to which the secret may be sent.
	Origins []string
	// Uses is the observed use, one entry per service.
	Uses []db.FlowCredentialUse
	// Authorization is how the tokens of an oauth2 credential stand; nil for other methods.
	Authorization *Authorization
}

// Ref is the pointer to the stored secret; it never changes.
func (c *Credential) Ref() string { return refScheme + c.ID.String() }

// Placement returns where an API key goes; nil for other methods.
func (c *Credential) Placement() *Placement {
	return placement(&c.FlowCredential)
}

func placement(row *db.FlowCredential) *Placement {
	if row.PlacementHeader == nil && row.PlacementQuery == nil && row.PlacementCookie == nil {
		return nil
	}
	return &Placement{
		HeaderName: row.PlacementHeader, Scheme: row.PlacementScheme, QueryParam: row.PlacementQuery,
		CookieName: row.PlacementCookie,
	}
}

// Input is what a caller may set. The zero value of an optional field is its default.
type Input struct {
	Name       string
	PlatformID string
	AuthMethod string
	// Secret is the text of the JSON object with the secret's fields; nil keeps the stored secret.
	Secret    []byte
	GrantType *string
	TokenURL  *string
	// AuthorizeURL is where a person agrees, for the grant authorization_code.
	AuthorizeURL *string
	Scopes       []string
	Audience     *string
	Placement    *Placement

	AWSRegion        *string
	AWSService       *string
	AWSDefaultBucket *string
	AWSEndpointURL   *string
	// Origins are those to which the secret may be sent; empty for those that are stored, or that the catalog says.
	Origins []string
	// Status is empty where the caller named none.
	Status string
	// Unverified stores a secret even if the platform refuses it, and does not try one that tells no account.
	Unverified bool
	// TenancyID is a tenant that the organization named, for a new credential; nil for what the platform says.
	TenancyID *string
}

// DueCounters is the kind of due rows of accounts (key: the tenancy id) that package dispatch is to look at: to read
// the counters of their providers, and to align their budgets to their time zones.
const DueCounters = "counters"

// Service is the door to credentials. Safe for concurrent use.
type Service struct {
	pool    pg.Pool
	vault   *vault.Vault
	catalog *catalog.Catalog
	prober  Prober
	now     func() time.Time
	queries *db.Queries
	due     run.Waker
	held    *cache
	stamps  *stamps
	unkept  *unkept
	meter   Meter

	allowHosts  []string
	redeemer    Redeemer
	verifierKey []byte
}

// Redeemer exchanges the code that a person comes back with for tokens; *provider.Sender does.
type Redeemer interface {
	Redeem(ctx context.Context, spec provider.Spec, code provider.Code) (provider.Tokens, error)
}

// Meter debits a question of the service's own that took so long and ended with outcome. Nobody is named for it.
type Meter func(ctx context.Context, q Question, took time.Duration, outcome error) error

// Question is one about an account, by an organization, in the bucket that the platform counts it in.
type Question struct {
	OrgID                       uuid.UUID
	TenancyID, TimeZone, Bucket string
	// Service has the bucket.
	Service *catalog.Service
}

// MeteredBy has m debit tests and identifications, from before the first of them.
func (s *Service) MeteredBy(m Meter) { s.meter = m }

// Deps are what a Service needs; all are required.
type Deps struct {
	Pool    pg.Pool
	Vault   *vault.Vault
	Catalog *catalog.Catalog
	Prober  Prober
	Now     func() time.Time
	Due     run.Waker
	// AllowHosts lists the "host:port" to which secrets may go without TLS; it may be empty.
	AllowHosts []string
	// Redeemer and VerifierKey, a secret of the installation, are for credentials that a person authorizes.
	Redeemer    Redeemer
	VerifierKey []byte
}

// New returns a Service.
func New(d Deps) *Service {
	return &Service{
		pool: d.Pool, vault: d.Vault, catalog: d.Catalog, prober: d.Prober, now: d.Now, due: d.Due, queries: db.New(),
		allowHosts: d.AllowHosts, redeemer: d.Redeemer, verifierKey: d.VerifierKey, held: newCache(d.Now),
		stamps: newStamps(), unkept: newUnkept(),
		meter: func(context.Context, Question, time.Duration, error) error { return nil },
	}
}

// seenBy returns the service with the catalog as an organization sees it, which may have platforms of its own.
func (s *Service) seenBy(ctx context.Context, orgID uuid.UUID, platformIDs ...string) (*Service, error) {
	cat, err := s.catalog.Of(ctx, orgID, platformIDs...)
	if err != nil || cat == s.catalog {
		return s, err //nolint:wrapcheck // says everything
	}
	own := *s
	own.catalog = cat
	return &own, nil
}

// Filter selects rows of List.
type Filter struct {
	// Status is nil for all.
	Status *string
	// PlatformID is nil for all.
	PlatformID *string
	// Name is how names begin, in upper or lower case; empty for all.
	Name    string
	Created listing.Range
}

// Read returns one credential of the organization, or a NotFound fault.
func (s *Service) Read(ctx context.Context, orgID, id uuid.UUID) (*Credential, error) {
	return s.read(ctx, s.pool, orgID, id)
}
