package account

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// The text of a stream token is StreamTokenPrefix and, in base 64, what it grants and a keyed hash over that:
//
//	version (1 byte), organization, account, API key, randomness (16 bytes each),
//	Unix seconds of its end (8), resource, HMAC-SHA256 (32)
//
// Nothing is stored: every replica has the hash key, and asks at each use whether the key and the organization behind
// the token are still good.
const (
	// StreamTokenPrefix is what every stream token starts with.
	StreamTokenPrefix = "stream_"
	// StreamTokenLife is how long a stream token opens streams.
	StreamTokenLife = 300 * time.Second

	streamTokenVersion = 1
	streamTokenFixed   = 1 + 4*16 + 8
	maxResource        = 255
	maxStreamToken     = 1024
)

// streamGrant is what a stream token says.
type streamGrant struct {
	Caller

	expires time.Time
	// nonce tells apart tokens that grant the same.
	nonce uuid.UUID
}

// CreateStreamToken returns a token that lets in, for StreamTokenLife, who opens streams in the name of the caller: of
// its organization, and of this resource alone unless that is empty. Fault:
// Unprocessable for a resource of more than 255 bytes.
func (s *Service) CreateStreamToken(ctx context.Context, c Caller,
	resource string) (text string, expires time.Time, err error) {
	if len(resource) > maxResource {
		return "", time.Time{}, fault.Value([]string{"body", "execution_id"}, "is too long")
	}
	err = pg.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		text, expires, err = s.grantStream(ctx, tx, c, resource)
		return err
	})
	return text, expires, err
}

func (s *Service) grantStream(ctx context.Context, tx db.DBTX, c Caller,
	resource string) (text string, expires time.Time, err error) {
	now, err := db.New().ClockNow(ctx, tx)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read clock: %w", err)
	}
	expires = now.Add(StreamTokenLife).UTC().Truncate(time.Second)
	c.Resource = resource
	grant := streamGrant{Caller: c, expires: expires}
	if _, err := io.ReadFull(s.cfg.Random, grant.nonce[:]); err != nil {
		return "", time.Time{}, fmt.Errorf("read randomness: %w", err)
	}
	text = signStreamToken(s.cfg.HashKeys[0], grant)
	if resource != "" {
		return text, expires, Audit(ctx, tx, "execution", resource)
	}
	return text, expires, Audit(ctx, tx, "organization", c.OrgID.String())
}

// AuthenticateStreamToken returns the caller that a stream token lets in, a member whose Resource is the token's. It
// returns an Unauthenticated fault for a token that is not ours or has expired, and within a second once its API key is
// revoked or its organization suspended.
func (s *Service) AuthenticateStreamToken(ctx context.Context, text string) (Caller, error) {
	grant, ok := s.readStreamToken(text)
	if !ok {
		return Caller{}, errUnauthenticated
	}
	return s.streams.get(ctx, sha256.Sum256([]byte(text)), func(ctx context.Context) (Caller, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		return s.admitStream(ctx, grant)
	})
}

func (s *Service) admitStream(ctx context.Context, grant streamGrant) (Caller, error) {
	row, err := db.New().StreamTokenAuth(ctx, s.cfg.Pool, db.StreamTokenAuthParams{OrgID: grant.OrgID,
		AccountID: grant.AccountID, KeyID: grant.APIKey()})
	if pg.IsNoRows(err) {
		return Caller{}, s.refuseOrLead(ctx, errUnauthenticated, grant.OrgID[:])
	}
	if err != nil {
		return Caller{}, fmt.Errorf("look up the owner of a stream token: %w", err)
	}
	if !row.Usable {
		return Caller{}, s.refuseOrLead(ctx, errUnauthenticated, grant.OrgID[:])
	}
	if !row.Now.Before(grant.expires) {
		return Caller{}, errUnauthenticated
	}
	grant.Scopes = row.Scopes // it opens nothing that the key may not read
	grant.RequestLimits, err = requestLimits(row.RequestLimits)
	return grant.Caller, err
}

// streamKey keeps the hashes of stream tokens apart from those of API keys.
func streamKey(hashKey []byte) []byte { return keyHash(hashKey, "stream-token") }

func signStreamToken(hashKey []byte, g streamGrant) string {
	b := make([]byte, 0, streamTokenFixed+len(g.Resource)+sha256.Size)
	b = append(b, streamTokenVersion)
	for _, id := range []uuid.UUID{g.OrgID, g.AccountID, g.KeyID, g.nonce} {
		b = append(b, id[:]...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(g.expires.Unix())) //nolint:gosec // after 1970
	b = append(b, g.Resource...)
	return StreamTokenPrefix + base64.RawURLEncoding.EncodeToString(append(b, streamHash(hashKey, b)...))
}

func streamHash(hashKey, body []byte) []byte {
	mac := hmac.New(sha256.New, streamKey(hashKey))
	mac.Write(body)
	return mac.Sum(nil)
}

// readStreamToken reads a token that was signed with any of the hash keys.
func (s *Service) readStreamToken(text string) (g streamGrant, ok bool) {
	encoded, found := strings.CutPrefix(text, StreamTokenPrefix)
	if !found || len(text) > maxStreamToken || strings.ContainsAny(text, "\r\n") { // the decoder would pass over those
		return g, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(b) < streamTokenFixed+sha256.Size {
		return g, false
	}
	body, hash := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	hashes := make([][]byte, len(s.cfg.HashKeys))
	for i, key := range s.cfg.HashKeys {
		hashes[i] = streamHash(key, body)
	}
	if !oneOf(hash, hashes) || body[0] != streamTokenVersion {
		return g, false
	}
	g.Grant = Grant{Role: Member}
	for i, id := range []*uuid.UUID{&g.OrgID, &g.AccountID, &g.KeyID, &g.nonce} {
		copy(id[:], body[1+16*i:])
	}
	at := binary.BigEndian.Uint64(body[streamTokenFixed-8:])
	g.expires = time.Unix(int64(at), 0) //nolint:gosec // what was signed
	g.Resource = string(body[streamTokenFixed:])
	return g, true
}
