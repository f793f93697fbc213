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

// In-process work is done in turns that are settled one by one: so long, and with so much in memory, as their limits
// allow. The records of a slice have the same step, so a turn of one leaves it where it is, and notes how far it
// came.

const (
	// turnBytes is how much a turn reads, and how much it makes, before it is settled; a single record may need more.
	turnBytes = 4 << 20
	// turnCopies is how often what is made is in memory while it is settled: built, encoded, compressed, on its way.
	turnCopies = 4
	// turnRoom is the memory that a turn takes before it begins.
	turnRoom = (1 + turnCopies) * turnBytes
)

// Limits bound the in-process work of a process. Zero values are no limits.
type Limits struct {
	// Now is the clock that Turn is measured by.
	Now func() time.Time
	// Turn is how long a turn of work is evaluated before it is settled, but for the record at hand.
	Turn time.Duration
	// Memory is the process's budget.
	Memory *memory.Budget
	// Open meters the batches that organizations have open; nil for none.
	Open *orgquota.Meter
}

// Limit sets the limits. Say it before any work is done.
func (s *Service) Limit(l Limits) { s.limits = l }

// turn is a turn of work under way.
type turn struct {
	limits *Limits
	room   *memory.Grant
	began  time.Time
	// made is how much output there is, read how much of earlier tasks is open.
	made, read int
}

func (s *Service) turn(ctx context.Context, orgID uuid.UUID) (*turn, error) {
	room, err := s.limits.Memory.Take(ctx, orgID, turnRoom)
	if err != nil {
		return nil, fmt.Errorf("begin in-process work: %w", err)
	}
	return &turn{limits: &s.limits, room: room, began: s.limits.now()}, nil
}

func (l *Limits) now() time.Time {
	if l.Turn <= 0 {
		return time.Time{}
	}
	return l.Now()
}

// over reports whether this part of the time of a turn has passed since a time.
func (l *Limits) over(since time.Time, part, of int) bool {
	return l.Turn > 0 && l.now().Sub(since) >= l.Turn*time.Duration(part)/time.Duration(of)
}

// need is how much more than it began with the turn needs by now; negative where that is less.
func (p *turn) need() int64 { return int64(p.read) + turnCopies*int64(p.made) - turnRoom }

// grow has the turn hold what it needs by now.
func (p *turn) grow(ctx context.Context) error {
	most, need := p.limits.Memory.Most(), p.need()
	return fault.Wrap(p.room.Grow(ctx, need, max(most-turnRoom, need)), "in-process work")
}

// openTurn opens a slice from an offset on, as far as what its tasks use of earlier ones is not too much at once;
// the first record always is.
func (s *Service) openTurn(ctx context.Context, b *Batch, ref SliceRef, step int16, from int32) (*Records, error) {
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
	if err := s.openResults(ctx, s.pool, b, recs, used, turnBytes); err != nil {
		recs[0].Release()
		return nil, err
	}
	return recs[0], nil
}
