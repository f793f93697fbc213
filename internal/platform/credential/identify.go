package credential

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/tenant"
)

// identify asks the platform about a new secret; nil where there is nobody to ask. Fault: Unprocessable for one that
// the platform refuses, unless it is stored unverified. An account is asked for even then: no secret of another takes
// the place of one.
func (s *Service) identify(ctx context.Context, q Question, target validInput, unverified bool) (*attempt, error) {
	if target.secret == nil || unverified && !target.platform.Metered() ||
		target.secret.onceOnly() && !target.redeemed() {
		return nil, nil
	}
	outgoing := s.outgoing
	var got redeemed
	if target.redeemed() {
		outgoing = func(in secret) (provider.Secret, error) { return s.outgoingWith(in, got.share) }
	}
	a := s.probe(ctx, q, target.platform, target.service, *target.secret, outgoing)
	if a.unasked {
		return nil, nil
	}
	if got.asked && got.err == nil {
		a.tokens = &got.tokens
	}
	refused := a.Failure == provider.AuthFailed || a.Failure == provider.PermissionDenied
	if !refused || unverified {
		return a, nil
	}
	text := a.Details
	if a.said != "" {
		text += " It said: " + a.said
	}
	if a.tokens != nil {
		return nil, fault.Invalidated(wrong("value_error", text+
			" Nothing was changed, but the refresh token was used to ask: send another one.", "credentials"))
	}
	return nil, fault.Invalidated(wrong("value_error", text+
		" Nothing was changed; ?verify=false stores it nevertheless.", "credentials"))
}

// onceOnly tells whether trying a secret may use it up: a refresh token can be good once, and what follows from it is
// stored with the credential.
func (s *secret) onceOnly() bool {
	return s.method == OAuth2 && (s.grant == provider.RefreshToken || s.grant == provider.AuthorizationCode)
}

// redeemed tells whether a new secret is a refresh token that must show whose it is: it is used for tokens once, which
// are then stored together with it.
func (target *validInput) redeemed() bool {
	return target.secret != nil && target.secret.method == OAuth2 && target.secret.grant == provider.RefreshToken &&
		target.platform.Metered()
}

// patient is ctx for what asks about a new secret and stores it. With tokens that replaced what the caller gave it goes
// on after the caller has gone: nobody else has them.
func (target *validInput) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if !target.redeemed() {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), probeTimeout+2*recordTimeout)
}

// mayCreate has refused, before a refresh token is used, what would be refused after it.
func (s *Service) mayCreate(ctx context.Context, orgID uuid.UUID, target validInput) error {
	if !target.redeemed() {
		return nil
	}
	in := &target.in
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := orgquota.Credentials.ForOneMore(ctx, tx, orgID); err != nil {
			return err //nolint:wrapcheck // says everything
		}
		if in.TenancyID == nil {
			return nil
		}
		_, err := tenant.Named(ctx, tx, orgID, in.PlatformID, *in.TenancyID)
		return err //nolint:wrapcheck // says everything
	})
}

// importedAt is when the version of an organization's own platform was imported that counts; long ago for any other.
func (s *Service) importedAt(ctx context.Context, q db.DBTX, orgID uuid.UUID, platformID string) (time.Time, error) {
	at, err := s.queries.CatalogImportedAt(ctx, q, db.CatalogImportedAtParams{OrgID: orgID, PlatformID: platformID})
	if err != nil {
		return time.Time{}, fmt.Errorf("look when platform %s was imported: %w", platformID, err)
	}
	return at, nil
}

// holdImported keeps imports away until tx ends: where there is no credential yet, one may lead secrets elsewhere. was
// is from before the catalog was looked at. Fault: Conflict where there was one since.
func (s *Service) holdImported(ctx context.Context, tx pgx.Tx, orgID uuid.UUID,
	platform *catalog.Platform, was time.Time) error {
	if !platform.Private {
		return nil
	}
	if _, err := s.queries.CatalogHold(ctx, tx, orgID); err != nil {
		return fmt.Errorf("hold the catalog of organization %s: %w", orgID, err)
	}
	is, err := s.importedAt(ctx, tx, orgID, platform.ID)
	if err != nil {
		return err
	}
	if !is.Equal(was) {
		return fault.New(fault.Conflict, "Platform %s was imported anew while the secret was tried there; "+
			"nothing was stored: try again", platform.ID)
	}
	return nil
}

// redeemed are tokens that an issuer was asked for once, whoever wants them how often.
type redeemed struct {
	asked  bool
	tokens provider.Tokens
	err    error
}

func (r *redeemed) share(ctx context.Context, _ int64, ask func(context.Context,
	string) (provider.Tokens, error)) (provider.Tokens, error) {
	if !r.asked {
		r.asked = true
		r.tokens, r.err = ask(ctx, "")
	}
	return r.tokens, r.err
}

// whose asks the platform whose the tokens are that a person came back with; nil where it cannot tell accounts.
func (s *Service) whose(ctx context.Context, stored *loaded, got provider.Tokens) *attempt {
	platform, service := s.target(stored.PlatformID, stored.AuthMethod, stored.material.grant)
	if service == nil || !platform.Metered() {
		return nil
	}
	given := redeemed{asked: true, tokens: got}
	q := Question{OrgID: stored.OrgID, TenancyID: stored.TenancyID}
	return s.probe(ctx, q, platform, service, stored.material,
		func(in secret) (provider.Secret, error) { return s.outgoingWith(in, given.share) })
}
