package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/memory"
	"flowlane/internal/orgquota"
)

// In-process work is done in pieces that are settled one by one: so long, and with so much in memory, as their limits
// allow. The records of a slice have the same step, so a piece of one leaves it where it is, and notes how far it
// came.

const (
	// pieceBytes is how much a piece reads, and how much it makes, before it is settled; a single record may need more.
	pieceBytes = 4 << 20
	// pieceCopies is how often what is made is in memory while it is settled: built, encoded, compressed, on its way.
	pieceCopies = 4
	// pieceRoom is the memory that a piece takes before it begins.
	pieceRoom = (1 + pieceCopies) * pieceBytes
)

// Limits bound the in-process work of a process. Zero values are no limits.
type Limits struct {
	// Now is the clock that Piece is measured by.
	Now func() time.Time
	// Piece is how long a piece of work is evaluated before it is settled, but for the record at hand.
	Piece time.Duration
	// Memory is the process's budget.
	Memory *memory.Budget
	// Open meters the batches that organizations have open; nil for none.
	Open *orgquota.Meter
}

// Limit sets the limits. Say it before any work is done.
func (s *Service) Limit(l Limits) { s.limits = l }

// piece is a piece of work under way.
type piece struct {
	limits *Limits
	room   *memory.Grant
	began  time.Time
	// made is how much output there is, read how much of earlier tasks is open.
	made, read int
}

func (s *Service) piece(ctx context.Context, orgID uuid.UUID) (*piece, error) {
	room, err := s.limits.Memory.Take(ctx, orgID, pieceRoom)
	if err != nil {
		return nil, fmt.Errorf("begin in-process work: %w", err)
	}
	return &piece{limits: &s.limits, room: room, began: s.limits.now()}, nil
}

func (l *Limits) now() time.Time {
	if l.Piece <= 0 {
		return time.Time{}
	}
	return l.Now()
}

// over reports whether this part of the time of a piece has passed since a time.
func (l *Limits) over(since time.Time, part, of int) bool {
	return l.Piece > 0 && l.now().Sub(since) >= l.Piece*time.Duration(part)/time.Duration(of)
}

// need is how much more than it began with the piece needs by now; negative where that is less.
func (p *piece) need() int64 { return int64(p.read) + pieceCopies*int64(p.made) - pieceRoom }

// grow has the piece hold what it needs by now.
func (p *piece) grow(ctx context.Context) error {
	most, need := p.limits.Memory.Most(), p.need()
	return fault.Wrap(p.room.Grow(ctx, need, max(most-pieceRoom, need)), "in-process work")
}

// openPiece opens a slice from an offset on, as far as what its tasks use of earlier ones is not too much at once;
// the first record always is.
func (s *Service) openPiece(ctx context.Context, b *Batch, ref SliceRef, step int16, from int32) (*Records, error) {
	var used []expr.TaskRef
	for i := range b.Plan.Steps[step].Tasks {
		t := &b.Plan.Steps[step].Tasks[i]
		if t.Action.Call != nil {
			continue
		}
		if t.Gone != "" {
			return nil, fmt.Errorf("batch %s, task %s waits for a catalog that has its action: %s", b.ID, t.ID, t.Gone)
		}
		used = append(used, ResultsUsed(t)...)
	}
	recs, err := s.Open(ctx, s.pool, b, []SliceRef{ref}, step, nil)
	if err != nil {
		return nil, err
	}
	recs[0].from = from
	if err := s.openResults(ctx, s.pool, b, recs, used, pieceBytes); err != nil {
		recs[0].Release()
		return nil, err
	}
	return recs[0], nil
}
