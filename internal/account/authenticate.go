package account

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/netip"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// loadTimeout bounds the look-up of a key. It does not end with the request that began it, because others wait for the
// same answer.
const loadTimeout = 5 * time.Second

// errUnauthenticated tells no more than that, so that nobody learns which keys once existed.
var errUnauthenticated = fault.New(fault.Unauthenticated, "Authentication required")

// Authenticate returns the caller whose key this is, from memory if it was checked within the last second. It returns a
// RefusalError, which is an Unauthenticated fault, for a key that is unknown, revoked or expired, or whose organization
// is suspended. from is the address of the connection, which is noted once a minute; the zero value for none.
func (s *Service) Authenticate(ctx context.Context, key string, from netip.Addr) (Caller, error) {
	if prefixOf(key) == "" {
		return Caller{}, refused(malformedKey)
	}
	digest := sha256.Sum256([]byte(key))
	return s.cache.get(ctx, digest, func(ctx context.Context) (Caller, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		return s.load(ctx, key, from)
	})
}

func (s *Service) load(ctx context.Context, key string, from netip.Addr) (Caller, error) {
	hashes := make([][]byte, len(s.cfg.HashKeys))
	for i, hashKey := range s.cfg.HashKeys {
		hashes[i] = keyHash(hashKey, key)
	}
	q := db.New()
	row, err := q.ApiKeyAuth(ctx, s.cfg.Pool, hashes)
	if pg.IsNoRows(err) {
		return Caller{}, s.refuseOrLead(ctx, refused(unknownKey), hashes...)
	}
	if err != nil {
		return Caller{}, fmt.Errorf("look up API key: %w", err)
	}
	if !oneOf(row.Hash, hashes) {
		return Caller{}, refused(unknownKey)
	}
	if !row.Usable {
		r := &RefusalError{Reason: suspended, OrgID: row.OrgID, AccountID: row.AccountID, KeyID: row.ID}
		if row.State != suspended {
			r.Reason = row.State + reasonOfStatus
		}
		return Caller{}, s.refuseOrLead(ctx, r, row.Hash)
	}
	if row.StaleUse {
		use := db.ApiKeyTouchParams{OrgID: row.OrgID, ID: row.ID}
		if from.IsValid() {
			use.Address = &from
		}
		// The key is good whether or not its use can be noted.
		if err := q.ApiKeyTouch(ctx, s.cfg.Pool, use); err != nil {
			s.cfg.Log.WarnContext(ctx, "could not note the use of an API key", "key_id", row.ID, "error", err)
		}
	}
	limits, err := requestLimits(row.RequestLimits)
	grant := Grant{Role: Role(row.Role), Scopes: row.Scopes}
	return Caller{OrgID: row.OrgID, AccountID: row.AccountID, KeyID: row.ID, Grant: grant, RequestLimits: limits}, err
}

// oneOf compares in constant time, so that the answer's delay does not depend on how much of a hash fits.
func oneOf(hash []byte, hashes [][]byte) bool {
	found := 0
	for _, h := range hashes {
		found |= subtle.ConstantTimeCompare(h, hash)
	}
	return found == 1
}
