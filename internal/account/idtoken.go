package account

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	"flowlane/internal/fault"
)

// signInOperation is what the audit log calls a link that came of a sign-in at the identity provider.
const signInOperation = "createSessionLink"

// LinkOfIDToken returns a link that signs in whom an ID token names, which the identity provider issued for the console
// and for this nonce (OpenID Connect Core 1.0, section 3.1.3.7). It writes its audit row, also where somebody is
// refused. Faults: as AuthenticateToken.
func (s *Service) LinkOfIDToken(ctx context.Context, token, nonce, remote, requestID string) (Session, error) {
	op := Operation{ID: signInOperation, RequestID: requestID}
	caller, err := s.callerOfIDToken(ctx, token, nonce)
	if err != nil {
		s.Refused(ctx, SignIn{Address: remote, Operation: op}, err)
		return Session{}, err
	}
	return s.CreateLink(NewContext(ctx, caller, op), caller)
}

func (s *Service) callerOfIDToken(ctx context.Context, token, nonce string) (Caller, error) {
	if s.tokens == nil || s.tokens.idParser == nil || len(token) > maxToken {
		return Caller{}, refused(badToken)
	}
	said, err := s.tokens.parse(ctx, s.tokens.idParser, token)
	if err == nil {
		err = s.tokens.meant(said, nonce)
	}
	var c claims
	if err == nil {
		c, err = s.tokens.read(said)
	}
	if err != nil {
		var f *fault.Error
		if errors.As(err, &f) && f.Code == fault.Unavailable {
			return Caller{}, f
		}
		return Caller{}, fmt.Errorf("%w: %w", refused(badToken), err)
	}
	return s.callerOf(ctx, c)
}

// meant refuses an ID token that was issued for another sign-in or, where it has several audiences, to another client.
func (t *tokens) meant(said map[string]any, nonce string) error {
	if got := textOf(said["nonce"]); nonce == "" || subtle.ConstantTimeCompare([]byte(got), []byte(nonce)) != 1 {
		return errors.New("the ID token is of another sign-in")
	}
	if party, ok := said["azp"]; ok && textOf(party) != t.ClientID {
		return errors.New("the ID token was issued to another client")
	}
	return nil
}
