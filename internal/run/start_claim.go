package run

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg"
)

// Claimer claims calls of batches in the transaction that starts them.
type Claimer interface {
	// ClaimStarted claims what it can of the calls of a start, and sends them once that is committed. An error ends the
	// transaction.
	ClaimStarted(ctx context.Context, tx pgx.Tx, start *StartClaim) error
}

// StartClaim is a start in whose transaction calls can be claimed: batches are written together with the calls that
// have their records.
type StartClaim struct {
	// Batches are those of which a call may take all, at once.
	Batches []StartedCall

	// later are the last statements, asks the questions that go with them, and calls those that batches are in.
	later *pg.Pipeline
	asks  []pg.Query
	wakes wakeUps
	calls map[uuid.UUID]uuid.UUID
}

// StartedCall is a batch of one record that waits for one call, with all that must be known to make it.
type StartedCall struct {
	*Batch
	*TaskRoute
}

// add adds the batches of a group that a call may take.
func (s *StartClaim) add(g *preparedGroup) {
	if !g.rows.Calls || !g.rows.InQueue || g.rows.Paced {
		return
	}
	for _, out := range g.Out {
		if out.RecordCount == 1 && out.batch != nil && out.batch.page != nil {
			s.Batches = append(s.Batches, StartedCall{out.batch, &g.queues[0]}) // of the first step
		}
	}
}

// Later takes statements that go with those of the start, before them.
func (s *StartClaim) Later() *pg.Pipeline { return s.later }

// Check puts a question in the round trip of the start's last statements, after them.
func (s *StartClaim) Check(ask pg.Query) { s.asks = append(s.asks, ask) }

// Wake makes (kind, key) due at a time, with what the start makes due.
func (s *StartClaim) Wake(kind, key string, at time.Time) { s.wakes.add(kind, key, at) }

// Claim says that a call of which Later has the row takes the record of a batch.
func (s *StartClaim) Claim(batchID, callID uuid.UUID) { s.calls[batchID] = callID }

// StartAndClaim is StartGroups in a transaction of the service's own, in which calls of what starts are claimed, where
// somebody does that (ClaimBy). also, if it is set, is called once the groups say what starts, before any budget is
// locked for it and anything is written; the question that it returns is the last statement, so that what it waits for
// is locked behind the due rows, as in other transactions. Its error ends the transaction.
func (s *Service) StartAndClaim(ctx context.Context, tx pgx.Tx, now time.Time, also func() (pg.Query, error),
	groups ...*StartGroup) error {
	return s.startGroups(ctx, tx, now, s.claimer, also, groups)
}

// ClaimBy has starts claim their calls. It must precede all use.
func (s *Service) ClaimBy(c Claimer) { s.claimer = c }
