package credential

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/tenant"
	"flowlane/internal/trigger/event"
)

// Create stores a credential with its secret. The platform is asked for the account first, or whether it takes the
// secret; one that does not answer leaves TenancyID null and the creation succeeds. createdBy is the id of the caller's
// account. Faults: NotFound for an unknown platform or tenant, Unprocessable for what does not fit the catalog and for
// a secret that the platform refuses, Conflict for a secret of another account than the tenant's, and where the
// platform was imported anew meanwhile.
func (s *Service) Create(ctx context.Context, orgID uuid.UUID, createdBy string, in Input,
	hooks ...pg.TxHook[*Credential]) (*Credential, error) {
	imported, err := s.importedAt(ctx, s.pool, orgID, in.PlatformID)
	if err != nil {
		return nil, err
	}
	if s, err = s.seenBy(ctx, orgID, in.PlatformID); err != nil {
		return nil, err
	}
	target, err := s.check(in)
	if err != nil {
		return nil, err
	}
	if target.secret == nil {
		return nil, fault.Invalidated(wrong("missing", "Field required", "credentials"))
	}
	id := cell.NewID()
	ctx, cancel := target.patient(ctx)
	defer cancel()
	if err := s.mayCreate(ctx, orgID, target); err != nil {
		return nil, err
	}
	seen, err := s.identify(ctx, Question{OrgID: orgID, TenancyID: textOf(in.TenancyID)}, target, in.Unverified)
	if err != nil {
		return nil, err
	}
	var created *Credential
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := orgquota.Credentials.ForOneMore(ctx, tx, orgID); err != nil {
			return err
		}
		if err := s.holdImported(ctx, tx, orgID, target.platform, imported); err != nil {
			return err
		}
		tenancy, err := s.account(ctx, tx, orgID, in, seen)
		if err != nil {
			return err
		}
		row := target.row(orgID, id, tenancy, firstOf(in.Status, Active))
		row.CreatedBy = createdBy
		if err := s.queries.CredentialAdd(ctx, tx, row); err != nil {
			return fmt.Errorf("store credential %s: %w", id, err)
		}
		if err := s.putSecret(ctx, tx, orgID, id, target, seen); err != nil {
			return err
		}
		if created, err = s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "credential", id.String()); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, created, hooks)
	})
	if err != nil {
		return nil, err
	}
	s.follow(ctx, created.TenancyID)
	return created, nil
}

// account returns the account of a new credential: the tenant that the caller names, else the one that the platform
// named.
func (s *Service) account(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, in Input, seen *attempt) (*string, error) {
	if in.TenancyID == nil {
		return bind(ctx, tx, orgID, nil, seen)
	}
	id, err := tenant.Named(ctx, tx, orgID, in.PlatformID, *in.TenancyID)
	if err != nil {
		return nil, err
	}
	return bind(ctx, tx, orgID, &id, seen)
}

// Replace sets all that can be set. With a secret it rotates in place: id and reference stay, LastVerified is cleared,
// and where the account is known the new secret must belong to it and to the same user. Without one the stored secret
// stays, and so must what steers it. Faults: NotFound; Invalid for another platform; Conflict for another account or
// user, and where another rotation came first; Unprocessable for what does not fit the catalog, and for a secret that
// the platform refuses. A fault changes nothing.
func (s *Service) Replace(ctx context.Context, orgID, id uuid.UUID, in Input) (*Credential, error) {
	row, err := s.queries.CredentialForUse(ctx, s.pool, db.CredentialForUseParams{OrgID: orgID, ID: id})
	if pg.IsNoRows(err) {
		return nil, errMissing()
	}
	if err != nil {
		return nil, fmt.Errorf("read credential %s: %w", id, err)
	}
	stored := &row.FlowCredential
	if in.PlatformID != stored.PlatformID {
		return nil, fault.New(fault.Invalid,
			"platform_id of a credential cannot be changed from %s; create a new credential", stored.PlatformID)
	}
	if len(in.Origins) == 0 {
		in.Origins = stored.AllowedOrigins
	}
	if s, err = s.seenBy(ctx, orgID, in.PlatformID); err != nil {
		return nil, err
	}
	target, err := s.check(in)
	if err != nil {
		return nil, err
	}
	target.version = row.Version
	ctx, cancel := target.patient(ctx)
	defer cancel()
	if target.redeemed() && stored.TenancyID != nil {
		if err := s.checkIdentity(ctx, s.pool, orgID, id, stored.AuthMethod, target); err != nil {
			return nil, err
		}
	}
	seen, err := s.identify(ctx, Question{OrgID: orgID, TenancyID: textOf(stored.TenancyID)}, target, in.Unverified)
	if err != nil {
		return nil, err
	}
	defer s.held.drop(orgID, id)
	var replaced *Credential
	err = pg.InTx(pg.AsWorker(ctx), s.pool, func(ctx context.Context, tx pgx.Tx) error {
		was, err := s.replace(ctx, tx, orgID, id, in, target, seen)
		if err != nil {
			return err
		}
		if replaced, err = s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "credential", id.String()); err != nil {
			return err
		}
		if err := event.Publish(ctx, tx, s.due, changes(replaced, target.secret != nil, was)...); err != nil {
			return err
		}
		return s.wakeOthers(ctx, tx, replaced.TenancyID)
	})
	if err != nil {
		return nil, err
	}
	s.follow(ctx, replaced.TenancyID)
	return replaced, nil
}

// replace writes a replacement, and returns the status that the credential had.
func (s *Service) replace(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID, in Input, target validInput,
	seen *attempt) (was string, err error) {
	lock, err := s.queries.CredentialLock(ctx, tx, db.CredentialLockParams{OrgID: orgID, ID: id})
	if pg.IsNoRows(err) {
		return "", errMissing()
	}
	if err != nil {
		return "", fmt.Errorf("lock credential %s: %w", id, err)
	}
	stored, rotates := &lock.FlowCredential, target.secret != nil
	if lock.Version != target.version {
		return "", fault.New(fault.Conflict,
			"The credential was rotated meanwhile; read it, and try again if that is still right")
	}
	tenancy, err := bind(ctx, tx, orgID, stored.TenancyID, seen)
	if err != nil {
		return "", err
	}
	status := firstOf(in.Status, Active)
	if rotates {
		status = firstOf(in.Status, stored.Status)
	}
	row := target.row(orgID, id, tenancy, status)
	if changed := steered(stored, &row); !rotates && len(changed) > 0 {
		return "", fault.Invalidated(wrong("missing", "Another "+strings.Join(changed, ", ")+
			" needs the secret again: send credentials, too", "credentials"))
	}
	if rotates && stored.TenancyID != nil {
		if err := s.checkIdentity(ctx, tx, orgID, id, stored.AuthMethod, target); err != nil {
			return "", err
		}
	}
	if err := s.queries.CredentialReplace(ctx, tx, replaceRow(row, rotates)); err != nil {
		return "", fmt.Errorf("replace credential %s: %w", id, err)
	}
	if !rotates {
		return stored.Status, nil
	}
	return stored.Status, s.putSecret(ctx, tx, orgID, id, target, seen)
}

// steered are the settings that differ and say where a secret goes, or what it grants there. Whoever may change them
// without knowing the secret could have the stored one sent to an address of their choice.
func steered(was *db.FlowCredential, is *db.CredentialAddParams) (changed []string) {
	for _, setting := range []struct {
		name string
		same bool
	}{
		{"auth_method", was.AuthMethod == is.AuthMethod},
		{"grant_type", firstOf(textOf(was.GrantType), provider.ClientCredentials) == firstOf(textOf(is.GrantType),
			provider.ClientCredentials)},
		{"authorize_url", textOf(was.AuthorizeUrl) == textOf(is.AuthorizeUrl)},
		{"token_url", textOf(was.TokenUrl) == textOf(is.TokenUrl)},
		{"scopes", slices.Equal(was.Scopes, is.Scopes)},
		{"audience", textOf(was.Audience) == textOf(is.Audience)},
		{"api_key_placement", textOf(was.PlacementHeader) == textOf(is.PlacementHeader) &&
			textOf(was.PlacementScheme) == textOf(is.PlacementScheme) &&
			textOf(was.PlacementQuery) == textOf(is.PlacementQuery) &&
			textOf(was.PlacementCookie) == textOf(is.PlacementCookie)},
		{"aws_endpoint_url", textOf(was.AwsEndpointUrl) == textOf(is.AwsEndpointUrl)},
		{"allowed_origins", slices.Equal(was.AllowedOrigins, is.AllowedOrigins)},
	} {
		if !setting.same {
			changed = append(changed, setting.name)
		}
	}
	return changed
}

// checkIdentity refuses a secret of another user of the account.
func (s *Service) checkIdentity(ctx context.Context, q db.DBTX, orgID, id uuid.UUID, method string,
	target validInput) error {
	plain, _, err := s.vault.Get(ctx, q, orgID, id)
	if err != nil {
		return err
	}
	old, err := decodeFields(plain)
	if err != nil {
		return err
	}
	if method == target.secret.method && !sameIdentity(fieldsOf(target.service, method, target.secret.grant), old,
		target.secret.fields) {
		return fault.New(fault.Conflict,
			"The credentials belong to another user of the platform; create a new credential for it")
	}
	return nil
}

func (s *Service) putSecret(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID, target validInput,
	seen *attempt) error {
	plain, err := target.secret.encode()
	if err != nil {
		return err
	}
	version, err := s.vault.Put(ctx, tx, orgID, id, plain)
	if err != nil {
		return err
	}
	if seen == nil {
		return nil
	}
	if seen.tokens != nil {
		_, err := s.queries.TokenTurn(ctx, tx, db.TokenTurnParams{OrgID: orgID, CredentialID: id, OfVersion: version})
		if err != nil {
			return fmt.Errorf("lock the tokens of credential %s: %w", id, err)
		}
		if err := s.putTokens(ctx, tx, orgID, id, *seen.tokens); err != nil {
			return err
		}
	}
	return s.stamp(ctx, tx, Use{OrgID: orgID, CredentialID: id, ServiceID: target.service.ID, At: seen.TestedAt,
		Failure: seen.Failure})
}

func (target *validInput) row(orgID, id uuid.UUID, tenancy *string, status string) db.CredentialAddParams {
	in := &target.in
	row := db.CredentialAddParams{
		ID: id, OrgID: orgID, Name: in.Name, PlatformID: in.PlatformID, AuthMethod: in.AuthMethod, TenancyID: tenancy,
		GrantType: in.GrantType, TokenUrl: in.TokenURL, AuthorizeUrl: in.AuthorizeURL, Scopes: in.Scopes,
		Audience:  in.Audience,
		AwsRegion: in.AWSRegion, AwsService: in.AWSService, AwsDefaultBucket: in.AWSDefaultBucket,
		AwsEndpointUrl: in.AWSEndpointURL, AllowedOrigins: in.Origins, Status: status,
	}
	if row.Scopes == nil {
		row.Scopes = []string{}
	}
	if p := in.Placement; p != nil {
		row.PlacementHeader, row.PlacementScheme, row.PlacementQuery, row.PlacementCookie = p.HeaderName, p.Scheme,
			p.QueryParam, p.CookieName
	}
	return row
}

func replaceRow(r db.CredentialAddParams, rotated bool) db.CredentialReplaceParams {
	return db.CredentialReplaceParams{
		ID: r.ID, OrgID: r.OrgID, Name: r.Name, AuthMethod: r.AuthMethod, TenancyID: r.TenancyID,
		GrantType: r.GrantType, TokenUrl: r.TokenUrl, AuthorizeUrl: r.AuthorizeUrl, Scopes: r.Scopes,
		Audience:        r.Audience,
		PlacementHeader: r.PlacementHeader, PlacementScheme: r.PlacementScheme, PlacementQuery: r.PlacementQuery,
		PlacementCookie: r.PlacementCookie,
		AwsRegion:       r.AwsRegion, AwsService: r.AwsService, AwsDefaultBucket: r.AwsDefaultBucket,
		AwsEndpointUrl: r.AwsEndpointUrl, AllowedOrigins: r.AllowedOrigins,
		Status: r.Status, Rotated: rotated,
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
