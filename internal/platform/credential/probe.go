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
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/tenant"
	"flowlane/internal/trigger/event"
)

const (
	// probeTimeout bounds one question to a platform.
	probeTimeout = 15 * time.Second
	// recordTimeout bounds the record of an attempt, which is made even when the caller has gone.
	recordTimeout = 5 * time.Second
)

// Prober asks a platform whose a secret is; *provider.Sender does. Its errors are *provider.ProbeError.
type Prober interface {
	Whoami(ctx context.Context, platform *catalog.Platform, service *catalog.Service, secret provider.Secret) (
		provider.Account, error)
}

// Outcome is the result of a connection test.
type Outcome struct {
	Success bool
	// Failure is one of the classes of package provider; empty on success.
	Failure string
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
	// said is what can be quoted of a refusal; it may be empty.
	said string
	// tokens are those that a refresh token of one use was given for; nil for none.
	tokens *provider.Tokens
	// unasked: nobody could be asked, so that there is no use to record.
	unasked bool
}

func (a *attempt) fail(class string, format string, args ...any) {
	a.Success, a.Failure, a.Details = false, class, fmt.Sprintf(format, args...)
}

// Test makes one call to the platform with the stored secret. Whatever the platform does is in the outcome; an error is
// a NotFound fault or a failure of ours. Success sets last_verified, and binds a credential without an account to it.
func (s *Service) Test(ctx context.Context, orgID, id uuid.UUID) (Outcome, error) {
	stored, err := s.load(ctx, orgID, id)
	if err != nil {
		return Outcome{}, err
	}
	if s, err = s.seenBy(ctx, orgID, stored.PlatformID); err != nil {
		return Outcome{}, err
	}
	platform, service := s.target(stored.PlatformID, stored.AuthMethod, stored.material.grant)
	if service == nil {
		a := &attempt{Outcome: Outcome{TestedAt: s.now()}}
		a.fail(provider.UnknownClass, "The catalog no longer has platform %s with %s; nothing can be tested",
			stored.PlatformID, stored.AuthMethod)
		return a.Outcome, account.Audit(ctx, s.pool, "credential", id.String())
	}
	result := s.probe(ctx, Question{OrgID: orgID, TenancyID: stored.TenancyID}, platform, service, stored.material,
		func(secret) (provider.Secret, error) { return s.outgoingStored(stored) })
	if result.unasked {
		return result.Outcome, account.Audit(ctx, s.pool, "credential", id.String())
	}
	err = s.record(ctx, stored, service, result)
	return result.Outcome, err
}

// Try makes one call to the platform with a secret that is stored nowhere. Whatever is wrong with the secret, or comes
// of the call, is in the outcome. Faults: NotFound for an unknown platform or tenant, Unprocessable for a method that
// it does not take.
func (s *Service) Try(ctx context.Context, orgID uuid.UUID, in Input) (Outcome, error) {
	began := s.now()
	s, err := s.seenBy(ctx, orgID, in.PlatformID)
	if err != nil {
		return Outcome{}, err
	}
	target, err := s.check(in)
	details := shapeDetails(err)
	if err != nil && details == "" {
		return Outcome{}, err
	}
	if in.TenancyID != nil {
		if _, err := tenant.Named(ctx, s.pool, orgID, in.PlatformID, *in.TenancyID); err != nil {
			return Outcome{}, err
		}
	}
	if details != "" {
		a := &attempt{Outcome: Outcome{TestedAt: began, Latency: s.now().Sub(began)}}
		a.fail(provider.InvalidShape, "%s", details)
		return a.Outcome, nil
	}
	if target.secret.onceOnly() {
		a := &attempt{Outcome: Outcome{TestedAt: began, Latency: s.now().Sub(began)}}
		a.fail(provider.UnknownClass,
			"Trying this grant may use it up: create the credential, authorize it where a person must, and test that")
		return a.Outcome, nil
	}
	q := Question{OrgID: orgID, TenancyID: textOf(in.TenancyID)}
	return s.probe(ctx, q, target.platform, target.service, *target.secret, s.outgoing).Outcome, nil
}

// shapeDetails says what is wrong with a secret that the platform would take otherwise; empty for any other error.
func shapeDetails(err error) string {
	var f *fault.Error
	if !errors.As(err, &f) {
		return ""
	}
	var texts []string
	for _, field := range f.Fields {
		if field.Loc[1] == "platform_id" || field.Loc[1] == "auth_method" {
			return ""
		}
		texts = append(texts, strings.Join(field.Loc[1:], ".")+": "+field.Msg)
	}
	return strings.Join(texts, "; ")
}

func (s *Service) target(platformID, method, grant string) (*catalog.Platform, *catalog.Service) {
	platform, ok := s.catalog.Platform(platformID)
	if !ok {
		return nil, nil
	}
	service, err := serviceFor(platform, method, grant)
	if err != nil {
		return nil, nil
	}
	return platform, service
}

// probe asks the platform, outside of any transaction. q says who asks, and for which account where that is known.
func (s *Service) probe(ctx context.Context, q Question, platform *catalog.Platform, service *catalog.Service,
	material secret,
	outgoing func(secret) (provider.Secret, error),
) *attempt {
	a := &attempt{Outcome: Outcome{TestedAt: s.now()}}
	defer func() { a.Latency = s.now().Sub(a.TestedAt) }()
	if missing := missingFields(service, material); len(missing) > 0 {
		a.fail(provider.InvalidShape, "The stored secret lacks %s; rotate the credential with all fields",
			strings.Join(missing, ", "))
		return a
	}
	sent, err := outgoing(material)
	if err != nil {
		a.fail(provider.InvalidShape, "The stored secret cannot be sent; rotate the credential")
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	whose, err := s.prober.Whoami(ctx, platform, service, sent)
	s.spend(ctx, q, platform, whose, s.now().Sub(a.TestedAt), err)
	if err != nil {
		class, details := provider.Explain(err)
		a.fail(class, "%s", details)
		a.unasked = errors.Is(err, provider.ErrNothingAsked)
		a.said = provider.Said(err)
		return a
	}
	if platform.Account == nil {
		a.Success, a.Details = true, "The secret works"
		return a
	}
	a.account = &tenant.Account{
		PlatformID: platform.ID, Number: whose.Number, Name: whose.Name, TimeZone: tenant.Zone(whose.TimeZone,
			platform.Account.TimeZone),
		Private: platform.Private,
	}
	a.Success, a.Details = true, "Connected to account "+tenant.Label(whose.Name, whose.Number)
	return a
}

// spend debits a question in the budget of its account, which only the answer may tell. One that is not debited does no
// harm: readings of the counters find it.
func (s *Service) spend(ctx context.Context, q Question, platform *catalog.Platform, whose provider.Account,
	took time.Duration, outcome error) {
	if platform.Account == nil || platform.Account.Whoami.Debits() == "" {
		return
	}
	if q.TenancyID == "" && outcome == nil {
		q.TenancyID = tenant.TenancyID(platform.ID, whose.Number)
	}
	if q.TenancyID == "" {
		return
	}
	q.TimeZone, q.Bucket = tenant.Zone(whose.TimeZone, platform.Account.TimeZone), platform.Account.Whoami.Debits()
	q.Service = platform.ServiceOf(q.Bucket)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	_ = s.meter(ctx, q, took, outcome)
}

// record keeps what an attempt with this version of the secret showed. One that was rotated meanwhile keeps its state:
// the attempt says nothing about the new secret.
func (s *Service) record(ctx context.Context, used *loaded, service *catalog.Service, a *attempt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	defer s.held.drop(used.OrgID, used.ID)
	var tenancy *string
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		lock, err := s.queries.CredentialLock(ctx, tx, db.CredentialLockParams{OrgID: used.OrgID, ID: used.ID})
		if pg.IsNoRows(err) {
			return errMissing()
		}
		if err != nil {
			return fmt.Errorf("lock credential %s: %w", used.ID, err)
		}
		if err := account.Audit(ctx, tx, "credential", used.ID.String()); err != nil {
			return err
		}
		if lock.Version != used.Version {
			return nil
		}
		tenancy, err = bind(ctx, tx, used.OrgID, lock.FlowCredential.TenancyID, a)
		if fault.Is(err, fault.Conflict) {
			a.fail(provider.AuthFailed, "The secret belongs to another provider account than "+
				"the credential; rotate it to one of %s", textOf(lock.FlowCredential.TenancyID))
		} else if err != nil {
			return err
		}
		if a.Success {
			err := s.queries.CredentialVerify(ctx, tx, db.CredentialVerifyParams{OrgID: used.OrgID, ID: used.ID,
				VerifiedAt: a.TestedAt, TenancyID: tenancy})
			if err != nil {
				return fmt.Errorf("record the test of credential %s: %w", used.ID, err)
			}
		}
		err = s.stamp(ctx, tx, Use{OrgID: used.OrgID, CredentialID: used.ID, ServiceID: service.ID, At: a.TestedAt,
			Failure: a.Failure})
		if err != nil || a.Success {
			return err
		}
		tested, err := s.read(ctx, tx, used.OrgID, used.ID)
		if err != nil {
			return err
		}
		return event.Publish(ctx, tx, s.due, failed(tested, &a.Outcome))
	})
	if err != nil {
		return err
	}
	s.follow(ctx, tenancy)
	return nil
}

// bind returns the account of a credential after an attempt: the one that it has, else the one that the platform named,
// which is stored. A credential that has another account is a Conflict.
func bind(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, has *string, a *attempt) (*string, error) {
	if a == nil || a.account == nil {
		return has, nil
	}
	a.account.AnsweredIn = a.Latency
	return tenant.Bind(ctx, tx, orgID, has, *a.account)
}

// follow has the budgets of an account aligned that go by another time zone than it has told. That it fails does no
// harm: the next claim aligns its budget too.
func (s *Service) follow(ctx context.Context, tenancyID *string) {
	if tenancyID == nil {
		return
	}
	behind, err := s.queries.BudgetsUnaligned(ctx, s.pool, *tenancyID)
	if err != nil || len(behind) == 0 {
		return
	}
	_ = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		return s.due.Wake(ctx, tx, DueCounters, *tenancyID, time.Time{})
	})
}
