package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// minHashKey is the least length of a hash key, in bytes.
const minHashKey = 32

// Config is what a Service is made of.
type Config struct {
	Pool pg.Pool
	// HashKeys are secrets of at least 32 bytes. The first hashes new keys; keys that were hashed with any of the
	// others still authenticate, so that the hash key can be changed.
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
	// sessions remembers sessions of browsers.
	sessions *cache
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
	s := &Service{cfg: cfg, cache: newCache(cfg.Now), streams: newCache(cfg.Now), sessions: newCache(cfg.Now)}
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

// CreateKey stores a key in the caller's transaction and returns its text, which cannot be had again. It returns a
// NotFound fault for an unknown organization, an Unauthenticated one where the key that asks was revoked meanwhile, and
// an Unprocessable one that names what of the new key is more than that key has, or a time that has passed.
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
	n.Role = cmp.Or(n.Role, Admin)
	if n.CreatedBy == uuid.Nil {
		n.CreatedBy = service.ID
	}
	if err := check(ctx, tx, n); err != nil {
		return "", none, err
	}
	scopes := slices.Clone(n.Scopes)
	slices.Sort(scopes)
	text, err := newKey(s.cfg.Random)
	if err != nil {
		return "", none, err
	}
	id := cell.NewID()
	row, err := q.ApiKeyCreate(ctx, tx, db.ApiKeyCreateParams{
		ID: id, OrgID: n.OrgID, AccountID: service.ID, Name: n.Name, Prefix: prefixOf(text),
		LastFour: text[len(text)-4:],
		Hash:     keyHash(s.cfg.HashKeys[0], text), Role: string(n.Role), Scopes: slices.Compact(scopes),
		CreatedBy:      n.CreatedBy,
		CreatedByKeyID: orNil(n.CreatedByKey), ExpiresAt: n.ExpiresAt,
	})
	if err != nil {
		return "", none, fmt.Errorf("create API key: %w", err)
	}
	return text, row, Audit(ctx, tx, "api_key", id.String())
}

// check refuses a key that its maker cannot give, and one that has expired. It asks the database's clock, which is also
// the one that lets keys expire.
func check(ctx context.Context, tx db.DBTX, n NewKey) error {
	q := db.New()
	var fields []fault.Field
	if n.CreatedByKey != uuid.Nil {
		own, err := q.ApiKeyMaker(ctx, tx, db.ApiKeyMakerParams{OrgID: n.OrgID, ID: n.CreatedByKey})
		if err == nil && !own.Usable || pg.IsNoRows(err) {
			return errUnauthenticated
		}
		if err != nil {
			return fmt.Errorf("read the key that asks for another: %w", err)
		}
		fields = n.beyond(own)
	}
	if n.ExpiresAt != nil {
		now, err := q.ClockNow(ctx, tx)
		if err != nil {
			return fmt.Errorf("read clock: %w", err)
		}
		fields = append(fields, n.expired(now)...)
	}
	if len(fields) > 0 {
		return fault.Invalidated(fields...)
	}
	return nil
}

// Revocation is what became of the keys that a revoked key made, and of those that these made.
type Revocation struct {
	// Made are the oldest of them, as many as were asked for; Total counts all.
	Made  []db.ApiKeyMadeRow
	Total int
}

// RevokeKey stops a key for good: at once in this process, within a second in the others. With cascade it stops all
// keys, too, that it made and that these made. Revoking them again changes nothing. It returns at most limit of those
// keys, and a NotFound fault for a key that the organization does not have.
func (s *Service) RevokeKey(ctx context.Context, orgID, keyID uuid.UUID, cascade bool,
	limit int32) (out Revocation, err error) {
	stopped := map[uuid.UUID]bool{keyID: true}
	err = pg.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		q := db.New()
		n, err := q.ApiKeyRevoke(ctx, tx, db.ApiKeyRevokeParams{OrgID: orgID, ID: keyID})
		if err != nil {
			return fmt.Errorf("revoke API key: %w", err)
		}
		if n == 0 {
			return fault.Missing("API key")
		}
		if err := Audit(ctx, tx, "api_key", keyID.String()); err != nil {
			return err
		}
		if cascade {
			if err := revokeMade(ctx, tx, orgID, keyID, stopped); err != nil {
				return err
			}
		}
		out.Made, err = q.ApiKeyMade(ctx, tx, db.ApiKeyMadeParams{OrgID: orgID, ID: keyID, MaxRows: limit})
		if err != nil {
			return fmt.Errorf("list what an API key made: %w", err)
		}
		if len(out.Made) > 0 {
			out.Total = int(out.Made[0].Total)
		}
		return nil
	})
	s.cache.forget(stopped)
	s.streams.forget(stopped)
	s.sessions.forget(stopped)
	return out, err
}

// revokeMade revokes what a revoked key made, generation by generation, and adds it to stopped: whoever makes a key
// holds the row of its own key until the other one can be seen, so that none comes between two statements.
func revokeMade(ctx context.Context, tx pgx.Tx, orgID, keyID uuid.UUID, stopped map[uuid.UUID]bool) error {
	makers, revoked := []uuid.UUID{keyID}, []string{}
	for len(makers) > 0 {
		made, err := db.New().ApiKeyRevokeMade(ctx, tx, db.ApiKeyRevokeMadeParams{OrgID: orgID, Makers: makers})
		if err != nil {
			return fmt.Errorf("revoke what an API key made: %w", err)
		}
		makers = makers[:0]
		for _, k := range made {
			makers, stopped[k.ID] = append(makers, k.ID), true
			if k.Fresh {
				revoked = append(revoked, k.ID.String())
			}
		}
	}
	return AuditAll(ctx, tx, "api_key", revoked, slices.Repeat([]*Actor{ActorFrom(ctx)}, len(revoked))...)
}
