package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// The text of a session is sessionPrefix and 128 random bits or more. A browser keeps it in a cookie that scripts
// cannot read; what is stored is a keyed hash.
const (
	sessionPrefix = "session_"
	linkPrefix    = "login_"
	// SessionLife is how long a session lasts at most, sessionIdle how long it outlasts its last use.
	SessionLife = 12 * time.Hour
	sessionIdle = 2 * time.Hour
	// LinkLife is how long a link can be followed that signs in.
	LinkLife = 10 * time.Minute

	maxSession = 100
)

// Session is what a browser gets when somebody signs in.
type Session struct {
	ID uuid.UUID
	// Text is what the browser shows from then on.
	Text string
	// Expires is when the session ends at the latest.
	Expires time.Time
}

// CreateSession signs the caller of this request in, with what it may do and no longer than its API key lives. It
// writes its audit row. Faults: Unauthenticated for a link that somebody followed a moment before, Forbidden for a
// session.
func (s *Service) CreateSession(ctx context.Context) (out Session, err error) {
	c := FromContext(ctx)
	if c.SessionID != uuid.Nil && !c.Link {
		return out, errOfSession
	}
	err = pg.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if c.Link {
			out, err = s.openLink(ctx, tx, c)
		} else {
			out, err = s.storeSession(ctx, tx, c, sessionPrefix, SessionLife)
		}
		if err != nil {
			return err
		}
		return Audit(ctx, tx, "session", out.ID.String())
	})
	return out, err
}

// errOfSession keeps whoever has got hold of a session from outlasting its end.
var errOfSession = fault.New(fault.Forbidden,
	"A session makes no other one: sign in with an API key, a token or a link")

// CreateLink returns the text of a link that signs in once, within LinkLife, as c. It writes its audit row where there
// is a caller. Fault: Forbidden where c has a session.
func (s *Service) CreateLink(ctx context.Context, c Caller) (out Session, err error) {
	if c.SessionID != uuid.Nil {
		return out, errOfSession
	}
	err = pg.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if out, err = s.storeSession(ctx, tx, c, linkPrefix, LinkLife); err != nil {
			return err
		}
		return Audit(ctx, tx, "session", out.ID.String())
	})
	return out, err
}

func (s *Service) storeSession(ctx context.Context, conn db.DBTX, c Caller, prefix string,
	life time.Duration) (out Session, err error) {
	out.Text = prefix + rand.Text()
	out.ID = cell.NewID()
	out.Expires, err = db.New().SessionCreate(ctx, conn, db.SessionCreateParams{
		ID: out.ID, OrgID: c.OrgID, AccountID: c.AccountID, ApiKeyID: c.APIKey(), Role: string(c.Role),
		Hash: sessionHash(s.cfg.HashKeys[0], out.Text), Opened: prefix == sessionPrefix, LifeSeconds: life.Seconds(),
	})
	if err != nil {
		return out, fmt.Errorf("store a session: %w", err)
	}
	return out, nil
}

// openLink gives the session of a link a text of its own, so that the link is of no use any more.
func (s *Service) openLink(ctx context.Context, tx db.DBTX, c Caller) (out Session, err error) {
	out = Session{ID: c.SessionID, Text: sessionPrefix + rand.Text()}
	out.Expires, err = db.New().SessionOpen(ctx, tx, db.SessionOpenParams{
		OrgID: c.OrgID, ID: c.SessionID, Hash: sessionHash(s.cfg.HashKeys[0], out.Text),
		LifeSeconds: SessionLife.Seconds(),
	})
	if pg.IsNoRows(err) {
		return out, errUnauthenticated
	}
	if err != nil {
		return out, fmt.Errorf("open a session: %w", err)
	}
	return out, nil
}

// EndSession signs the caller of this request out, with everywhere also from all other sessions of its key or person:
// at once in this process, within a second in the others. Who shows a key or a token has none, and nothing ends.
func (s *Service) EndSession(ctx context.Context, everywhere bool) error {
	c := FromContext(ctx)
	if c.SessionID == uuid.Nil || c.Link {
		return nil
	}
	err := pg.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		ended, err := db.New().SessionEnd(ctx, tx, db.SessionEndParams{OrgID: c.OrgID, ID: c.SessionID,
			Everywhere: everywhere})
		if err != nil {
			return fmt.Errorf("end a session: %w", err)
		}
		for _, id := range ended {
			if err := Audit(ctx, tx, "session", id.String()); err != nil {
				return err
			}
		}
		return nil
	})
	s.sessions.drop()
	return err
}

// authenticateSession returns the caller whose session this is, from memory if it was checked within the last second.
func (s *Service) authenticateSession(ctx context.Context, text string) (Caller, error) {
	if len(text) > maxSession {
		return Caller{}, refused(badSession)
	}
	return s.sessions.get(ctx, sha256.Sum256([]byte(text)), func(ctx context.Context) (Caller, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		return s.loadSession(ctx, text)
	})
}

func (s *Service) loadSession(ctx context.Context, text string) (Caller, error) {
	q, hashes := db.New(), s.sessionHashes(text)
	row, err := q.SessionAuth(ctx, s.cfg.Pool, db.SessionAuthParams{Hashes: hashes, IdleSeconds: sessionIdle.Seconds()})
	if pg.IsNoRows(err) {
		return Caller{}, refused(badSession)
	}
	if err != nil {
		return Caller{}, fmt.Errorf("look up a session: %w", err)
	}
	if !oneOf(row.Hash, hashes) {
		return Caller{}, refused(badSession)
	}
	if !row.Usable {
		return Caller{}, s.refuseOrLead(ctx, refused(badSession), row.OrgID[:])
	}
	if row.StaleUse {
		// The session is good whether or not its use can be noted.
		if err := q.SessionTouch(ctx, s.cfg.Pool, db.SessionTouchParams{OrgID: row.OrgID, ID: row.ID}); err != nil {
			s.cfg.Log.WarnContext(ctx, "could not note the use of a session", "session_id", row.ID, "error", err)
		}
	}
	c := Caller{OrgID: row.OrgID, AccountID: row.AccountID, SessionID: row.ID, Grant: Grant{Role: Role(row.Role),
		Scopes: row.Scopes}}
	c.Link = !row.Opened
	if row.ApiKeyID != nil {
		c.KeyID = *row.ApiKeyID
	}
	c.RequestLimits, err = requestLimits(row.RequestLimits)
	return c, err
}

// sessionHash keeps the hashes of sessions apart from those of API keys.
func sessionHash(hashKey []byte, text string) []byte {
	return keyHash(keyHash(hashKey, "session"), text)
}

func (s *Service) sessionHashes(text string) [][]byte {
	hashes := make([][]byte, len(s.cfg.HashKeys))
	for i, key := range s.cfg.HashKeys {
		hashes[i] = sessionHash(key, text)
	}
	return hashes
}
