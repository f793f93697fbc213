package request

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Keyed is a request that carries an idempotency key. Its key holds for one organization, operation and path.
type Keyed struct {
	OrgID                uuid.UUID
	Operation, Path, Key string
	Body                 []byte
}

// Answer is what a request was told.
type Answer struct {
	Status int
	Body   []byte
}

// Answers keeps the answers to requests that carry idempotency keys, for 24 hours.
type Answers struct {
	pool    pg.Pool
	q       *db.Queries
	hashKey []byte

	mu sync.Mutex
	// busy has a channel, closed at the end, for each key whose request is under way in this process. Its duplicates
	// wait there, without a connection; those in other processes wait for each other in the database (Attempt.Keep).
	busy map[place]chan struct{}
	// lookups has requests that come at the same time look for their answers together.
	lookups *pg.Groups[*lookup]
}

// place is where an answer is kept.
type place struct {
	orgID   uuid.UUID
	keyHash [sha256.Size]byte
}

// NewAnswers returns the answers of an installation. hashKey is a secret of at least 32 bytes, the same in all
// processes: bodies may hold secrets, so that a plain hash of them could be searched for.
func NewAnswers(pool pg.Pool, hashKey []byte) (*Answers, error) {
	if len(hashKey) < sha256.Size {
		return nil, fmt.Errorf("request: the hash key has %d bytes; it needs at least %d", len(hashKey), sha256.Size)
	}
	a := &Answers{pool: pool, q: db.New(), hashKey: hashKey, busy: map[place]chan struct{}{}}
	a.lookups = a.newLookups()
	return a, nil
}

// Begin returns the answer that is kept for this request, or else the right to carry the request out; end that attempt
// in any case. While another request with the same key is under way Begin waits for it. Fault: Conflict when the key
// was used for another body.
func (a *Answers) Begin(ctx context.Context, k Keyed) (*Attempt, *Answer, error) {
	at := &Attempt{answers: a, place: place{k.OrgID, a.hash(k.Operation, k.Path, k.Key)}, operation: k.Operation}
	at.bodyHash = a.hash(string(k.Body))
	for {
		before := a.enter(at)
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
				return nil, nil, fmt.Errorf("wait for a request with the same idempotency key: %w", ctx.Err())
			}
		}
		kept, err := at.lookUp(ctx)
		if before != nil && kept == nil && err == nil {
			continue // the one before failed: one of those that waited is next
		}
		if kept == nil && err == nil {
			return at, nil, nil
		}
		if before == nil {
			at.End()
		}
		return nil, kept, err
	}
}

// enter returns nil if no request with this key is under way, which this one is from now on, or else the channel that
// is closed when that one has ended.
func (a *Answers) enter(at *Attempt) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, ok := a.busy[at.place]; ok {
		return before
	}
	at.ended = make(chan struct{})
	a.busy[at.place] = at.ended
	return nil
}

// hash is of the parts one after the other, each behind its length.
func (a *Answers) hash(parts ...string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, a.hashKey)
	for _, p := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	h.Sum(sum[:0])
	return sum
}

// Attempt is a request with an idempotency key that is being carried out.
type Attempt struct {
	answers   *Answers
	place     place
	bodyHash  [sha256.Size]byte
	operation string
	ended     chan struct{}
}

// KeyedAnswer is the answer to an attempt.
type KeyedAnswer struct {
	*Attempt
	Answer
}

var (
	// ErrAnswered is Keep's error when an answer is there already. The transaction must be rolled back: Kept has the
	// answer.
	ErrAnswered = errors.New("a request with the same idempotency key was carried out meanwhile")
	errReused   = fault.New(fault.Conflict, "Idempotency key reused with a different request").Known(
		fault.IdempotencyKeyReused)
)

// Keep stores the answer in the transaction of what the request does; it comes last in it. A transaction of another
// process that keeps an answer under the same key is waited for; if that commits, the error is ErrAnswered.
func (at *Attempt) Keep(ctx context.Context, tx pgx.Tx, answer Answer) error {
	answered, err := Keep(ctx, tx, []KeyedAnswer{{at, answer}})
	if err == nil && len(answered) > 0 {
		err = ErrAnswered
	}
	return err
}

// Keep stores answers to several attempts as Attempt.Keep does, and returns the places of those that are answered
// already: then the transaction must be rolled back.
func Keep(ctx context.Context, conn db.DBTX, all []KeyedAnswer) (answered []int, err error) {
	var in db.IdempotencyKeepParams
	for i := range all {
		k := &all[i]
		in.OrgIds, in.KeyHashes = append(in.OrgIds, k.place.orgID), append(in.KeyHashes, k.place.keyHash[:])
		in.BodyHashes, in.Operations = append(in.BodyHashes, k.bodyHash[:]), append(in.Operations, k.operation)
		in.Statuses = append(in.Statuses, int16(k.Status)) //nolint:gosec // a status
		in.Answers = append(in.Answers, k.Body)
	}
	rows, err := db.New().IdempotencyKeep(ctx, conn, in)
	if err != nil {
		return nil, fmt.Errorf("keep the answers to requests: %w", err)
	}
	kept := map[place]bool{}
	for _, r := range rows {
		kept[place{r.OrgID, [sha256.Size]byte(r.KeyHash)}] = true
	}
	for i := range all {
		if !kept[all[i].place] {
			answered = append(answered, i)
		}
	}
	return answered, nil
}

// Kept returns the answer that is kept for the request; nil if there is none. Fault: Conflict when the key was used for
// another body.
func (at *Attempt) Kept(ctx context.Context) (*Answer, error) {
	row, err := at.answers.q.IdempotencyAnswer(ctx, at.answers.pool, db.IdempotencyAnswerParams{OrgID: at.place.orgID,
		KeyHash: at.place.keyHash[:]})
	if pg.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer to a request: %w", err)
	}
	return at.replay(row.BodyHash, row.Status, row.Answer)
}

// replay is an answer that is kept, if it was one to this request.
func (at *Attempt) replay(bodyHash []byte, status int16, body []byte) (*Answer, error) {
	if !hmac.Equal(bodyHash, at.bodyHash[:]) {
		return nil, errReused
	}
	return &Answer{Status: int(status), Body: body}, nil
}

// End lets duplicates of the request go on.
func (at *Attempt) End() {
	a := at.answers
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.busy, at.place)
	close(at.ended)
}
