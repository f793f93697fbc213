package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

// Overlap is for how long the secret before a rotation stays valid.
const Overlap = 24 * time.Hour

// secrets are those of one webhook, two at most, as the vault keeps them.
type secrets struct {
	Current string `json:"current"`
	// Previous is valid up to PreviousUntil; empty for none.
	Previous      string    `json:"previous,omitempty"`
	PreviousUntil time.Time `json:"previous_until,omitzero"`
}

const redacted = "[redacted]"

// String hides them from logs and errors.
func (secrets) String() string { return redacted }

// GoString hides them from %#v.
func (secrets) GoString() string { return redacted }

// seal stores the secrets of a webhook and returns their version.
func (s *Service) seal(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID, all secrets) (int64, error) {
	plain, err := json.Marshal(all)
	if err != nil {
		return 0, fmt.Errorf("encode the secrets of webhook %s: %w", id, err)
	}
	return s.Vault.Put(ctx, tx, orgID, id, plain)
}

// open returns the secrets of a webhook, and their version.
func (s *Service) open(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (secrets, int64, error) {
	plain, version, err := s.Vault.Get(ctx, q, orgID, id)
	if err != nil {
		return secrets{}, 0, err
	}
	var all secrets
	if json.Unmarshal(plain, &all) != nil {
		// The decoder's error could quote the text.
		return secrets{}, 0, errors.New("the stored secrets of a webhook cannot be read")
	}
	return all, version, nil
}

// Rotate makes a new secret, and says until when the one before is valid. One that was older than that ends. Fault: NotFound.
func (s *Service) Rotate(ctx context.Context, orgID, id uuid.UUID) (secret string, previousUntil time.Time, err error) {
	if secret, err = NewSecret(); err != nil {
		return "", time.Time{}, err
	}
	err = s.locked(ctx, orgID, id, func(ctx context.Context, tx pgx.Tx, _ *Webhook, now time.Time) error {
		old, _, err := s.open(ctx, tx, orgID, id)
		if err != nil {
			return err
		}
		previousUntil = now.Add(Overlap)
		version, err := s.seal(ctx, tx, orgID, id, secrets{Current: secret, Previous: old.Current, PreviousUntil: previousUntil})
		if err != nil {
			return err
		}
		if err := s.q.WebhookRotate(ctx, tx, db.WebhookRotateParams{OrgID: orgID, ID: id, SecretVersion: version, Now: now}); err != nil {
			return fmt.Errorf("rotate the secret of webhook %s: %w", id, err)
		}
		_, err = s.changed(ctx, tx, orgID, id)
		return err
	})
	return secret, previousUntil, err
}
