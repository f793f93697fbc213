package account

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// minHashKey is the least length of a hash key, in bytes.
const minHashKey = 32

// Config is what a Service is made of.
type Config struct {
	Pool *pgxpool.Pool
	// HashKeys are secrets of at least 32 bytes. The first hashes new keys; keys that were hashed with any of the others
	// still authenticate, so that the hash key can be changed.
	HashKeys [][]byte
	// Random is the source of new keys: crypto/rand.Reader outside tests.
	Random io.Reader
	// Now tells how old a remembered answer is, and whether a token is valid.
	Now func() time.Time
	Log *slog.Logger
	// Tokens says which bearer tokens are taken; nil for none.
	Tokens *TokenConfig
	// Refused counts a refused sign-in by its reason; nil for nobody.
	Refused func(reason string)
}

// Service creates, checks and revokes API keys, checks bearer tokens, and makes and checks stream tokens.
type Service struct {
	cfg   Config
	cache *cache
	// streams remembers stream tokens.
	streams *cache
	// tokens is nil where no bearer tokens are taken.
	tokens   *tokens
	refusals seldom
}

// New returns a service. The error says what is missing from the configuration.
func New(cfg Config) (*Service, error) {
	if len(cfg.HashKeys) == 0 {
		return nil, errors.New("account: no hash key is configured")
	}
	for _, k := range cfg.HashKeys {
		if len(k) < minHashKey {
			return nil, fmt.Errorf("account: a hash key has %d bytes; it needs at least %d", len(k), minHashKey)
		}
	}
	s := &Service{cfg: cfg, cache: newCache(cfg.Now), streams: newCache(cfg.Now)}
	if cfg.Tokens != nil {
		if err := cfg.Tokens.check(); err != nil {
			return nil, err
		}
		var err error
		if s.tokens, err = newTokens(cfg); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// NewKey describes a key to create.
type NewKey struct {
	OrgID uuid.UUID
	Name  string
	// CreatedBy is the account that asked for it; uuid.Nil means the service account of the organization.
	CreatedBy uuid.UUID
	// ExpiresAt is when the key stops by itself; nil for never. A time that is not in the future is refused.
	ExpiresAt *time.Time
}

// CreateKey stores a key in the caller's transaction and returns its text, which cannot be had again. It returns a NotFound fault for an unknown
// organization and an Unprocessable one at ["body","expires_at"] for a time that has passed.
func (s *Service) CreateKey(ctx context.Context, tx db.DBTX, n NewKey) (string, db.FlowApiKey, error) {
	var none db.FlowApiKey
	q := db.New()
	service, err := q.AccountService(ctx, tx, n.OrgID)
	if pg.IsNoRows(err) {
		return "", none, fault.Missing("Organization")
	}
	if err != nil {
		return "", none, fmt.Errorf("read service account: %w", err)
	}
	if err := s.checkExpiry(ctx, tx, n.ExpiresAt); err != nil {
		return "", none, err
	}
	if n.CreatedBy == uuid.Nil {
		n.CreatedBy = service.ID
	}
	text, err := newKey(s.cfg.Random)
	if err != nil {
		return "", none, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", none, err
	}
	row, err := q.ApiKeyCreate(ctx, tx, db.ApiKeyCreateParams{
		ID: id, OrgID: n.OrgID, AccountID: service.ID, Name: n.Name, Prefix: KeyPrefix, LastFour: text[len(text)-4:],
		Hash: keyHash(s.cfg.HashKeys[0], text), CreatedBy: n.CreatedBy, ExpiresAt: n.ExpiresAt,
	})
	if err != nil {
		return "", none, fmt.Errorf("create API key: %w", err)
	}
	return text, row, Audit(ctx, tx, "api_key", id.String())
}

// checkExpiry asks the database's clock, which is also the one that lets the key expire.
func (s *Service) checkExpiry(ctx context.Context, tx db.DBTX, at *time.Time) error {
	if at == nil {
		return nil
	}
	now, err := db.New().ClockNow(ctx, tx)
	if err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	if !at.After(now) {
		return fault.Value([]string{"body", "expires_at"}, "must be in the future")
	}
	return nil
}

// RevokeKey stops a key for good: at once in this process, within a second in the others. Revoking it again changes
// nothing. It returns a NotFound fault for a key that the organization does not have.
func (s *Service) RevokeKey(ctx context.Context, orgID, keyID uuid.UUID) error {
	defer s.streams.forget(keyID)
	defer s.cache.forget(keyID)
	return pg.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		n, err := db.New().ApiKeyRevoke(ctx, tx, db.ApiKeyRevokeParams{OrgID: orgID, ID: keyID})
		if err != nil {
			return fmt.Errorf("revoke API key: %w", err)
		}
		if n == 0 {
			return fault.Missing("API key")
		}
		return Audit(ctx, tx, "api_key", keyID.String())
	})
}
