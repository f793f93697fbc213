package request

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

const (
	// lookupMost bounds the answers that one query looks for, lookupsAtOnce how many such queries run at once, another
	// one beside one that takes longer than lookupSlow. lookupTimeout bounds one.
	lookupMost    = 64
	lookupsAtOnce = 4
	lookupSlow    = 20 * time.Millisecond
	lookupTimeout = 10 * time.Second
)

// lookup is a request whose answer is looked for.
type lookup struct {
	*Attempt

	done chan struct{}
	// row is nil where nothing is kept.
	row *db.IdempotencyAnswersRow
	err error
}

func (a *Answers) newLookups() *pg.Groups[*lookup] {
	return &pg.Groups[*lookup]{Most: lookupMost, AtOnce: lookupsAtOnce, Slow: lookupSlow, Serve: a.serve}
}

// lookUp is Kept, together with other requests. It finds an answer also of an organization that goes to another cell,
// which Kept does not.
func (at *Attempt) lookUp(ctx context.Context) (*Answer, error) {
	l := &lookup{Attempt: at, done: make(chan struct{})}
	at.answers.lookups.Add(l, 1)
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the answer to a request: %w", ctx.Err())
	}
	if l.err != nil || l.row == nil {
		return nil, l.err
	}
	return at.replay(l.row.BodyHash, l.row.Status, l.row.Answer)
}

// serve looks for the answers to requests of several organizations.
func (a *Answers) serve(all []*lookup) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	var in db.IdempotencyAnswersParams
	for _, l := range all {
		in.OrgIds, in.KeyHashes = append(in.OrgIds, l.place.orgID), append(in.KeyHashes, l.place.keyHash[:])
	}
	kept := map[place]*db.IdempotencyAnswersRow{}
	err := pg.GenericPlan(ctx, a.pool, func(conn pg.DB) error {
		rows, err := a.q.IdempotencyAnswers(ctx, conn, in)
		for i := range rows {
			kept[place{rows[i].OrgID, [sha256.Size]byte(rows[i].KeyHash)}] = &rows[i]
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("read the answers to requests: %w", err)
	}
	for _, l := range all {
		l.row, l.err = kept[l.place], err
		close(l.done)
	}
}
