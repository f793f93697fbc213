package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/vault"
)

const (
	// askLease is how long an attempt to get tokens counts as alive: longer than it may take to begin, to ask and to be
	// written down, so that nobody else asks with a refresh token that is used up.
	askLease = 40 * time.Second
	// askTimeout bounds the request to the issuer, however long its turn was waited for.
	askTimeout = 10 * time.Second
	// endless is the life of an access token that its issuer did not limit, and for which there is no refresh token: it
	// is used until the platform refuses it.
	endless = 100 * 365 * 24 * time.Hour
	// askEvery is how often a process looks whether another one has got tokens.
	askEvery = 50 * time.Millisecond
)

// tokenID names the tokens of a credential in the vault.
func tokenID(id uuid.UUID) uuid.UUID { return uuid.NewSHA1(id, []byte("tokens")) }

// storedTokens are tokens as the vault has them.
type storedTokens struct {
	Access  string            `json:"access"`
	Refresh string            `json:"refresh,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// String hides the tokens.
func (storedTokens) String() string { return redacted }

// GoString hides the tokens from %#v.
func (storedTokens) GoString() string { return redacted }

// share gives the tokens of a credential that all processes share (see provider.Share). Between the transaction that
// takes the turn and the one that stores what came of it the issuer is asked: a process that dies there has perhaps
// used up a refresh token that is good once. The next one tries it once more, and a refusal is final until somebody
// authorizes the credential.
func (s *Service) share(of *loaded) provider.Share {
	orgID, id := of.OrgID, of.ID
	return func(ctx context.Context, after int64, ask func(context.Context,
		string) (provider.Tokens, error)) (provider.Tokens, error) {
		for {
			var t turn
			var err error
			if !s.unkept.has(id) { // this process has better than what is stored
				t, err = s.turn(ctx, of, after)
			}
			switch {
			case err != nil:
				return provider.Tokens{}, err
			case t.old: // the next call carries what came with the rotation
				s.held.drop(orgID, id)
				return provider.Tokens{}, fmt.Errorf("credential %s was rotated: %w", id, provider.ErrNotTried)
			case t.mine:
				return s.askIn(ctx, t, ask)
			case t.tokens.Access != "":
				return t.tokens, nil
			}
			select {
			case <-ctx.Done():
				return provider.Tokens{}, &provider.ProbeError{Class: provider.Timeout,
					Details: "No access token was got and stored in time."}
			case <-time.After(askEvery):
			}
		}
	}
}

// turn is what a process finds when it needs tokens: tokens, that it is to ask for them itself, or that another one
// does.
type turn struct {
	orgID, id, by       uuid.UUID
	version, generation int64
	old, mine           bool
	// ended: there is nothing to ask with, as the tokens came without a refresh token.
	ended   bool
	refresh string
	tokens  provider.Tokens
}

func (s *Service) turn(ctx context.Context, of *loaded, after int64) (turn, error) {
	orgID, id, version := of.OrgID, of.ID, of.Version
	t := turn{orgID: orgID, id: id, version: version}
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.queries.TokenTurn(ctx, tx, db.TokenTurnParams{OrgID: orgID, CredentialID: id, OfVersion: version})
		if pg.IsNoRows(err) {
			return errMissing()
		}
		if err != nil {
			return fmt.Errorf("look for tokens of credential %s: %w", id, err)
		}
		found := &row.FlowCredentialToken
		if t.generation = found.Generation; found.OfVersion > version {
			t.old = true
			return nil
		}
		if err := refusal(&row, after); err != nil {
			return err
		}
		good := row.Life > 0 && found.Generation > after
		if !good && row.Asked {
			return nil
		}
		stored, err := s.storedTokens(ctx, tx, found)
		if err != nil {
			return err
		}
		t.ended = of.material.grant == provider.AuthorizationCode && stored.Access != "" && stored.Refresh == ""
		if t.ended && after == provider.Always {
			good = row.Life > 0
		}
		if good {
			t.tokens = provider.Tokens{
				Access: stored.Access, Fields: stored.Fields, Generation: found.Generation, Shared: true,
				Life: time.Duration(row.Life * float64(time.Second)),
			}
			return nil
		}
		t.mine, t.by, t.refresh = true, uuid.New(), stored.Refresh
		return s.queries.TokenAsk(ctx, tx, db.TokenAskParams{OrgID: orgID, CredentialID: id, AskedBy: t.by,
			Lease: askLease.Seconds()})
	})
	if err != nil {
		return turn{}, err
	}
	return t, nil
}

// refusal is what the latest attempt left for those who come soon after it.
func refusal(row *db.TokenTurnRow, after int64) error {
	found := &row.FlowCredentialToken
	switch {
	case found.Lost:
		return provider.ErrLost(textOf(found.Failure))
	case row.Resting && (row.Life == 0 || found.Generation <= after) && after != provider.Always:
		return &provider.ProbeError{Class: textOf(found.FailureClass), Details: textOf(found.Failure)}
	}
	return nil
}

// storedTokens are the tokens that a row tells of; none where they are of an older secret.
func (s *Service) storedTokens(ctx context.Context, q db.DBTX, row *db.FlowCredentialToken) (storedTokens, error) {
	var stored storedTokens
	if row.ExpiresAt == nil {
		return stored, nil
	}
	orgID, id := row.OrgID, row.CredentialID
	plain, _, err := s.vault.Get(ctx, q, orgID, tokenID(id))
	if errors.Is(err, vault.ErrMissing) {
		return stored, nil
	}
	if err != nil {
		return stored, err
	}
	if json.Unmarshal(plain, &stored) != nil {
		// the decoder's error could quote them
		return storedTokens{}, fmt.Errorf("the tokens of credential %s are no JSON", id)
	}
	return stored, nil
}

// askIn asks the issuer in this process's turn, and writes down what came of it before anybody uses it.
func (s *Service) askIn(ctx context.Context, t turn, ask func(context.Context,
	string) (provider.Tokens, error)) (provider.Tokens, error) {
	// A request that is cut off may have used the refresh token up: whoever waits may go, the request may not.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	got, asked := provider.Tokens{}, provider.ErrEnded()
	if !t.ended {
		got, asked = ask(asking, t.refresh)
	}
	cancel()
	if asked != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		return provider.Tokens{}, s.failTurn(ctx, t, asked)
	}
	if got.Refresh == "" {
		got.Refresh = t.refresh
	}
	kept, err := s.keep(ctx, t, got)
	if err != nil && !fault.Is(err, fault.NotFound) {
		s.keepTrying(ctx, t, got)
	}
	return kept, err
}

// keep stores the tokens that came of a turn, unless newer ones came meanwhile. Fault: NotFound for a credential that
// is gone.
func (s *Service) keep(ctx context.Context, t turn, got provider.Tokens) (provider.Tokens, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.queries.TokenTurn(ctx, tx, db.TokenTurnParams{OrgID: t.orgID, CredentialID: t.id,
			OfVersion: t.version})
		if pg.IsNoRows(err) {
			return errMissing()
		}
		if err != nil {
			return fmt.Errorf("lock the tokens of credential %s: %w", t.id, err)
		}
		if found := &row.FlowCredentialToken; found.OfVersion != t.version || found.Generation != t.generation {
			return nil // newer ones came meanwhile
		}
		got.Generation = t.generation + 1
		return s.putTokens(ctx, tx, t.orgID, t.id, got)
	})
	if err != nil {
		return provider.Tokens{}, err
	}
	return got, nil
}

// putTokens stores tokens as the next generation; the caller has locked their row.
func (s *Service) putTokens(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID, got provider.Tokens) error {
	plain, err := json.Marshal(storedTokens{Access: got.Access, Refresh: got.Refresh, Fields: got.Fields})
	if err != nil {
		return fmt.Errorf("encode tokens: %w", err)
	}
	if _, err := s.vault.Put(ctx, tx, orgID, tokenID(id), plain); err != nil {
		return err
	}
	err = s.queries.TokenStored(ctx, tx, db.TokenStoredParams{OrgID: orgID, CredentialID: id, Life: got.Life.Seconds()})
	if err != nil {
		return fmt.Errorf("store the tokens of credential %s: %w", id, err)
	}
	return nil
}

// failTurn writes down that no tokens came, and returns the error for those who wait.
func (s *Service) failTurn(ctx context.Context, t turn, asked error) error {
	class, details := provider.Explain(asked)
	lost := provider.Lost(asked)
	err := s.queries.TokenFailed(ctx, s.pool, db.TokenFailedParams{
		OrgID: t.orgID, CredentialID: t.id, AskedBy: t.by, Lost: lost, FailureClass: class, Failure: details,
	})
	if err != nil {
		return errors.Join(asked, fmt.Errorf("write down that credential %s got no tokens: %w", t.id, err))
	}
	return asked
}

// Authorization says how the tokens of an oauth2 credential stand.
type Authorization struct {
	// State is pending (nobody has got any yet), authorized, failing (the latest attempt got none; there will be
	// others) or lost.
	State string
	// Failure says why the latest attempt got none; empty for a success.
	Failure string
	// ExpiresAt is nil for none, and for one that its issuer did not limit.
	ExpiresAt *time.Time
}

// endlessFrom is a year in which no other token than one of an endless life ends: others live for a day at most.
const endlessFrom = 2100

// The values of Authorization.State.
const (
	AuthorizationPending    = "pending"
	AuthorizationAuthorized = "authorized"
	AuthorizationFailing    = "failing"
	AuthorizationLost       = "lost"
)

// authorizationOf reads a row of tokens; nil for none, and for a credential of another method.
func authorizationOf(c *Credential, row *db.FlowCredentialToken) *Authorization {
	switch {
	case c.AuthMethod != OAuth2:
		return nil
	case row == nil:
		return &Authorization{State: AuthorizationPending}
	}
	out := &Authorization{State: AuthorizationAuthorized, Failure: textOf(row.Failure), ExpiresAt: row.ExpiresAt}
	if row.ExpiresAt != nil && row.ExpiresAt.Year() >= endlessFrom {
		out.ExpiresAt = nil
	}
	switch {
	case row.ExpiresAt == nil && textOf(c.GrantType) == provider.AuthorizationCode:
		out.State = AuthorizationPending
	case row.Lost:
		out.State = AuthorizationLost
	case row.Failure != nil:
		out.State = AuthorizationFailing
	case row.ExpiresAt == nil:
		out.State = AuthorizationPending
	}
	return out
}
