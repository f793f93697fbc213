package credential

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/tenant"
)

// Class says why an attempt with a credential failed.
type Class string

// The classes of failure.
const (
	AuthFailed       Class = "AUTH_FAILED"
	Network          Class = "NETWORK"
	Timeout          Class = "TIMEOUT"
	RateLimited      Class = "RATE_LIMITED"
	PermissionDenied Class = "PERMISSION_DENIED"
	InvalidShape     Class = "INVALID_CREDENTIALS_SHAPE"
	Unknown          Class = "UNKNOWN"
)

const (
	// probeTimeout bounds one question to a platform.
	probeTimeout = 15 * time.Second
	// recordTimeout bounds the record of an attempt, which is made even when the caller has gone.
	recordTimeout  = 5 * time.Second
	maxDetailBytes = 500
)

// Account is what a platform says about the account of a secret.
type Account struct {
	// Number is empty where the platform did not say.
	Number string
	Name   string
	// TimeZone is an IANA name, empty where the platform did not say.
	TimeZone string
}

// Prober asks a platform whose a secret is. Its errors are *ProbeError where the kind of failure is known.
type Prober interface {
	Whoami(ctx context.Context, platform *catalog.Platform, service *catalog.Service, secret Secret) (Account, error)
}

// ProbeError is a failed attempt. Details are for the caller, Cause is not shown.
type ProbeError struct {
	Class   Class
	Details string
	Cause   error
}

func (e *ProbeError) Error() string { return fmt.Sprintf("%s: %s", e.Class, e.Details) }
func (e *ProbeError) Unwrap() error { return e.Cause }

// Outcome is the result of a connection test.
type Outcome struct {
	Success bool
	// Failure is empty on success.
	Failure Class
	// Details say what happened and what to do.
	Details string
	Latency time.Duration
	// TestedAt is when the attempt began.
	TestedAt time.Time
}

// attempt is an outcome with the account that the platform named.
type attempt struct {
	Outcome
	// account is nil where none was named.
	account *tenant.Account
}

func (a *attempt) tenancyID() string {
	if a == nil || a.account == nil {
		return ""
	}
	return tenant.TenancyID(a.account.PlatformID, a.account.Number)
}

func (a *attempt) fail(class Class, format string, args ...any) {
	a.Success, a.Failure, a.Details = false, class, fmt.Sprintf(format, args...)
}

// Test makes one call to the platform with the stored secret. Whatever the platform does is in the outcome; an error is a
// NotFound fault or a failure of ours. Success sets last_verified, and binds a credential without an account to it.
func (s *Service) Test(ctx context.Context, orgID, id uuid.UUID) (Outcome, error) {
	stored, err := s.load(ctx, orgID, id)
	if err != nil {
		return Outcome{}, err
	}
	started := s.now()
	result := &attempt{Outcome: Outcome{TestedAt: started}}
	platform, service := s.target(stored)
	if service == nil {
		result.fail(Unknown, "The catalog no longer has platform %s with %s; nothing can be tested", stored.PlatformID, stored.AuthMethod)
	} else {
		result = s.probe(ctx, platform, service, stored.Secret)
	}
	if tenancy := result.tenancyID(); tenancy != "" && stored.TenancyID != "" && tenancy != stored.TenancyID {
		result.fail(AuthFailed, "The secret belongs to another provider account; rotate it to one of the account %s", stored.TenancyID)
	}
	result.Latency = s.now().Sub(started)
	if service == nil {
		return result.Outcome, nil
	}
	return result.Outcome, s.record(ctx, stored, service, result)
}

func (s *Service) target(r *Resolved) (*catalog.Platform, *catalog.Service) {
	platform, ok := s.catalog.Platform(r.PlatformID)
	if !ok {
		return nil, nil
	}
	service, err := serviceFor(platform, r.AuthMethod)
	if err != nil {
		return nil, nil
	}
	return platform, service
}

// probe asks the platform, outside of any transaction. The answer always has details, and never a secret in them.
func (s *Service) probe(ctx context.Context, platform *catalog.Platform, service *catalog.Service, secret Secret) *attempt {
	a := &attempt{Outcome: Outcome{TestedAt: s.now()}}
	defer func() { a.Latency = s.now().Sub(a.TestedAt) }()
	if missing := missingFields(service, secret.Fields); len(missing) > 0 {
		a.fail(InvalidShape, "The stored secret lacks %s; rotate the credential with all fields", strings.Join(missing, ", "))
		return a
	}
	if !platform.Metered() {
		a.fail(Unknown, "Platform %s offers no way to test a credential", platform.ID)
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	account, err := s.prober.Whoami(ctx, platform, service, secret)
	switch {
	case err != nil:
		class, details := explain(ctx, err)
		a.fail(class, "%s", shorten(secret.scrub(details, hides(service))))
	case account.Number == "":
		a.fail(Unknown, "The platform answered, but did not name the account")
	default:
		a.account = &tenant.Account{
			PlatformID: platform.ID, Number: account.Number, Name: account.Name, TimeZone: tenant.Zone(account.TimeZone, platform.Account.TimeZone),
		}
		a.Success, a.Details = true, "Connected to account "+tenant.Label(account.Name, account.Number)
	}
	return a
}

// explain turns a prober's error into what a caller may read. Texts of unknown errors can hold addresses with keys in
// them, so they are not shown.
func explain(ctx context.Context, err error) (Class, string) {
	var known *ProbeError
	switch {
	case errors.As(err, &known) && known.Details != "":
		return known.Class, known.Details
	case errors.As(err, &known):
		return known.Class, "The attempt failed"
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Timeout, "The platform did not answer in time; try again later"
	}
	return Unknown, "The attempt failed for an unknown reason; try again later"
}

func shorten(text string) string {
	if len(text) <= maxDetailBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxDetailBytes], "") + "…"
}

// record keeps what an attempt with this version of the secret showed. One that was rotated meanwhile keeps its state:
// the attempt says nothing about the new secret.
func (s *Service) record(ctx context.Context, used *Resolved, service *catalog.Service, a *attempt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	defer s.held.drop(used.OrgID, used.ID)
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		lock, err := s.queries.CredentialLock(ctx, tx, db.CredentialLockParams{OrgID: used.OrgID, ID: used.ID})
		if pg.IsNoRows(err) {
			return errMissing()
		}
		if err != nil {
			return fmt.Errorf("lock credential %s: %w", used.ID, err)
		}
		if lock.Version != used.Version {
			return nil
		}
		tenancy, err := s.bind(ctx, tx, lock.TenancyID, a)
		if fault.Is(err, fault.Conflict) {
			a.fail(AuthFailed, "The secret belongs to another provider account than the credential")
		} else if err != nil {
			return err
		}
		if a.Success {
			err := s.queries.CredentialVerify(ctx, tx, db.CredentialVerifyParams{OrgID: used.OrgID, ID: used.ID, VerifiedAt: a.TestedAt, TenancyID: tenancy})
			if err != nil {
				return fmt.Errorf("record the test of credential %s: %w", used.ID, err)
			}
		}
		return s.stamp(ctx, tx, Use{OrgID: used.OrgID, CredentialID: used.ID, ServiceID: service.ID, At: a.TestedAt, Failure: a.Failure})
	})
}

// bind returns the account of a credential after an attempt: the one that it has, else the one that the platform named,
// which is stored. A credential that has another account is a Conflict.
func (s *Service) bind(ctx context.Context, tx pgx.Tx, has *string, a *attempt) (*string, error) {
	found := a.tenancyID()
	if found == "" {
		return has, nil
	}
	if has != nil && *has != found {
		return has, fault.New(fault.Conflict, "The credentials belong to another provider account; create a new credential for it")
	}
	if _, err := tenant.Keep(ctx, tx, *a.account); err != nil {
		return nil, err
	}
	return &found, nil
}
