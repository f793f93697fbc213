package credential

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
)

// authorizeWithin is how long a person has to come back from the issuer.
const authorizeWithin = 10 * time.Minute

// Consent is where a person agrees that a credential may act for them.
type Consent struct {
	URL       string
	ExpiresAt time.Time
}

// Authorize prepares that a person authorizes a credential of grant authorization_code: they go to the address of the
// Consent, and come back to redirectURI with its state, which is good once and belongs to this caller, organization,
// credential and secret. Faults: NotFound; Conflict for a credential of another grant or status.
func (s *Service) Authorize(ctx context.Context, by account.Caller, id uuid.UUID, redirectURI string) (Consent, error) {
	stored, err := s.load(ctx, by.OrgID, id)
	if err != nil {
		return Consent{}, err
	}
	if s, err = s.seenBy(ctx, by.OrgID, stored.PlatformID); err != nil {
		return Consent{}, err
	}
	if stored.material.grant != provider.AuthorizationCode {
		return Consent{}, fault.New(fault.Conflict,
			"Only a credential of oauth2 with grant_type authorization_code is authorized by a person")
	}
	if stored.Status == Revoked {
		return Consent{}, fault.New(fault.Conflict, "The credential is revoked; set its status to active first")
	}
	state := rand.Text()
	hash := sha256.Sum256([]byte(state))
	var consent Consent
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		consent.ExpiresAt, err = s.queries.AuthorizationAdd(ctx, tx, db.AuthorizationAddParams{
			StateHash: hash[:], OrgID: by.OrgID, CredentialID: id, OfVersion: stored.Version, AccountID: by.AccountID,
			RedirectUri: redirectURI,
			Life:        authorizeWithin.Seconds(), ApiKeyID: by.APIKey(),
		})
		if err != nil {
			return fmt.Errorf("store an authorization of credential %s: %w", id, err)
		}
		return account.Audit(ctx, tx, "credential", id.String())
	})
	if err != nil {
		return Consent{}, err
	}
	consent.URL, err = s.consentURL(stored, state, redirectURI)
	return consent, err
}

func (s *Service) consentURL(stored *loaded, state, redirectURI string) (string, error) {
	asked := stored.material.settings
	if platform, ok := s.catalog.Platform(stored.PlatformID); ok {
		asked, _ = completed(platform, asked, stored.material.fields)
	}
	u, err := url.Parse(asked.authorizeURL)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("the authorize_url of credential %s is malformed", stored.ID)
	}
	challenge := sha256.Sum256([]byte(s.verifier(state)))
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", stored.material.fields["client_id"])
	q.Set("redirect_uri", redirectURI)
	q.Set("state", state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	if len(asked.scopes) > 0 {
		q.Set("scope", strings.Join(asked.scopes, " "))
	}
	if asked.audience != "" {
		q.Set("audience", asked.audience)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// verifier is the proof that whoever redeems a code is who asked for it (RFC 7636). It follows from the state by a key
// that only this installation has, so that it need not be stored and does not pass through the browser.
func (s *Service) verifier(state string) string {
	mac := hmac.New(sha256.New, s.verifierKey)
	mac.Write([]byte(state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Return is what a person comes back with, and by which operation.
type Return struct {
	State, Code, Error string
	Operation          account.Operation
}

// errReturn is the answer for a state that is unknown, used up or too old; it says no more than that.
func errReturn() error {
	return fault.New(fault.Invalid,
		"This authorization is not known, was used already or took too long; ask for a new address")
}

// Returned takes a person who comes back from the issuer: the code is exchanged for tokens, the platform is asked whose
// they are, and they are stored; the audit log names whoever asked for the address. Faults: Invalid for a state that is
// not good, where the issuer or the person did not agree, and where the platform does not say that they are of the
// account that the credential has; Conflict where they are of another. A fault changes nothing.
func (s *Service) Returned(ctx context.Context, back Return) error {
	hash := sha256.Sum256([]byte(back.State))
	taken, err := s.queries.AuthorizationTake(ctx, s.pool, hash[:]) // at once: it is good for one try
	if pg.IsNoRows(err) || err == nil && !taken.Good {
		return errReturn()
	}
	if err != nil {
		return fmt.Errorf("take an authorization: %w", err)
	}
	if back.Code == "" {
		return fault.New(fault.Invalid, "The issuer did not authorize the credential (%s); ask for a new address",
			shownCode(back.Error))
	}
	stored, err := s.load(ctx, taken.OrgID, taken.CredentialID)
	if fault.Is(err, fault.NotFound) || err == nil && stored.Version != taken.OfVersion {
		return errReturn()
	}
	if err != nil {
		return err
	}
	if s, err = s.seenBy(ctx, taken.OrgID, stored.PlatformID); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	redeeming, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	got, err := s.redeemer.Redeem(redeeming, s.spec(stored.material.settings, stored.material.fields),
		provider.Code{Code: back.Code, Verifier: s.verifier(back.State), RedirectURI: taken.RedirectUri})
	if err != nil {
		_, details := provider.Explain(err)
		return fault.New(fault.Invalid, "The issuer gave no tokens: %s Ask for a new address", details)
	}
	asker := account.Caller{OrgID: taken.OrgID, AccountID: taken.AccountID}
	if taken.ApiKeyID != nil {
		asker.KeyID = *taken.ApiKeyID
	}
	// No caller is known of whose organization it would be.
	ctx = account.NewContext(pg.AsWorker(pg.WithOrg(ctx, taken.OrgID)), asker, back.Operation)
	return s.keepReturned(ctx, stored, got, s.whose(ctx, stored, got))
}

// keepReturned stores the tokens that a person came back with; seen has what the platform said of them. Faults
// are those of Returned.
func (s *Service) keepReturned(ctx context.Context, stored *loaded, got provider.Tokens, seen *attempt) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	defer s.held.drop(stored.OrgID, stored.ID)
	var tenancy *string
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		lock, err := s.queries.CredentialLock(ctx, tx, db.CredentialLockParams{OrgID: stored.OrgID, ID: stored.ID})
		if pg.IsNoRows(err) || err == nil && lock.Version != stored.Version {
			return errReturn()
		}
		if err != nil {
			return fmt.Errorf("lock credential %s: %w", stored.ID, err)
		}
		if tenancy, err = s.bindReturned(ctx, tx, stored, &lock.FlowCredential, seen); err != nil {
			return err
		}
		// Only what is known to be of the same account is held together.
		same := seen == nil || seen.account != nil && lock.FlowCredential.TenancyID != nil
		if got, err = s.renewable(ctx, tx, stored, got, same); err != nil {
			return err
		}
		if err := s.putTokens(ctx, tx, stored.OrgID, stored.ID, got); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "credential", stored.ID.String())
	})
	if err != nil {
		return err
	}
	s.follow(ctx, tenancy)
	return nil
}

// renewable locks the tokens of a credential, and returns the new ones that are to take their place. An issuer need not
// give a refresh token again to a person who agrees again: the one that is there stays, where it is of the same account
// and the issuer still takes it. An access token that nothing can renew, and that its issuer did not limit, has no end.
func (s *Service) renewable(ctx context.Context, tx pgx.Tx, of *loaded, got provider.Tokens, same bool) (
	provider.Tokens, error) {
	row, err := s.queries.TokenTurn(ctx, tx, db.TokenTurnParams{OrgID: of.OrgID, CredentialID: of.ID,
		OfVersion: of.Version})
	if err != nil {
		return got, fmt.Errorf("lock the tokens of credential %s: %w", of.ID, err)
	}
	if got.Refresh == "" && same && !row.FlowCredentialToken.Lost {
		was, err := s.storedTokens(ctx, tx, &row.FlowCredentialToken)
		if err != nil {
			return got, err
		}
		got.Refresh = was.Refresh
	}
	if got.Refresh == "" && got.Unlimited {
		got.Life = endless
	}
	return got, nil
}

// bindReturned binds a credential, which the caller has locked, to the account that a person authorized it for, and
// returns that; nil where nobody could tell.
func (s *Service) bindReturned(ctx context.Context, tx pgx.Tx, stored *loaded, row *db.FlowCredential,
	seen *attempt) (*string, error) {
	if seen == nil {
		return row.TenancyID, nil
	}
	// A platform that has never said whose the credential is need not do so now.
	silent := seen.Failure == provider.PermissionDenied && row.LastVerified == nil
	if row.TenancyID != nil && !seen.Success && !silent {
		return nil, fault.New(fault.Invalid, "It is not certain that this is still the account of the credential: %s "+
			"Nothing was changed; ask for a new address", seen.Details)
	}
	tenancy, err := bind(ctx, tx, stored.OrgID, row.TenancyID, seen)
	if err != nil {
		return nil, err
	}
	if seen.Success {
		err := s.queries.CredentialVerify(ctx, tx, db.CredentialVerifyParams{OrgID: stored.OrgID, ID: stored.ID,
			VerifiedAt: seen.TestedAt, TenancyID: tenancy})
		if err != nil {
			return nil, fmt.Errorf("record whose credential %s is: %w", stored.ID, err)
		}
	}
	_, service := s.target(stored.PlatformID, stored.AuthMethod, stored.material.grant)
	return tenancy, s.stamp(ctx, tx, Use{OrgID: stored.OrgID, CredentialID: stored.ID, ServiceID: service.ID,
		At: seen.TestedAt, Failure: seen.Failure})
}

// shownCode is an error code of an issuer, which anybody may have written into the address.
func shownCode(code string) string {
	if len(code) > 100 || !isToken(code) {
		return "no code"
	}
	return code
}
