package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/memory"
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
	// smallFragment is up to which size fragments are read together.
	smallFragment = 64 << 10
)

// Limits bound the in-process work of a process. Zero values are no limits.
type Limits struct {
	// Now is the clock that Piece is measured by.
	Now func() time.Time
	// Piece is how long a piece of work is evaluated before it is settled, but for the record at hand.
	Piece time.Duration
	// Memory is the process's budget.
	Memory *memory.Budget
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

// grow has the piece hold what it needs by now.
func (p *piece) grow(ctx context.Context) error {
	most := p.limits.Memory.Most()
	need := int64(p.read) + pieceCopies*int64(p.made) - pieceRoom
	return wrap(p.room.Grow(ctx, need, max(most-pieceRoom, need)), "in-process work")
}

// openPiece opens a slice from an offset on, as far as what its tasks use of earlier ones is not too much at once;
// the first record always is.
func (s *Service) openPiece(ctx context.Context, b *Batch, ref SliceRef, step int16, from int32) (*Records, error) {
	var names [][2]string
	for i := range b.Plan.Steps[step].Tasks {
		t := &b.Plan.Steps[step].Tasks[i]
		if t.Action.Call != nil {
			continue
		}
		if t.Gone != "" {
			return nil, fmt.Errorf("batch %s, task %s waits for a catalog that has its action: %s", b.ID, t.ID, t.Gone)
		}
		names = append(names, OutputsUsed(t)...)
	}
	recs, err := s.Open(ctx, s.pool, b, []SliceRef{ref}, step, nil)
	if err != nil {
		return nil, err
	}
	rec := recs[0]
	rec.from, rec.to = from, int32(len(rec.Rows))
	if err := s.openSome(ctx, b, rec, names); err != nil {
		rec.Release()
		return nil, err
	}
	return rec, nil
}

// openSome reads the outputs of the named {step, task} pairs for as many records as may be open together.
func (s *Service) openSome(ctx context.Context, b *Batch, rec *Records, names [][2]string) error {
	wanted := b.tasksNamed(names)
	if len(wanted) == 0 {
		return nil
	}
	o := someOutputs{rec: rec, wanted: wanted, sizes: make([]int, len(rec.Rows))}
	rec.outputs = map[[2]string][]json.RawMessage{}
	if b.retry {
		rows, err := s.q.InheritedRead(ctx, s.pool, db.InheritedReadParams{BatchIds: []uuid.UUID{b.ID}, SliceNos: []int32{rec.No}, FromSteps: []int16{0}})
		if err != nil {
			return fmt.Errorf("read what batch %s inherited: %w", b.ID, err)
		}
		for i := range rows {
			if err := o.add(rows[i].StepNo, rows[i].TaskNo, rows[i].Off, rows[i].Body); err != nil {
				return err
			}
		}
	}
	rows, err := s.q.FragmentsOfSlice(ctx, s.pool, db.FragmentsOfSliceParams{BatchID: b.ID, SliceNo: rec.No, Small: smallFragment})
	if err != nil {
		return fmt.Errorf("read outputs of batch %s: %w", b.ID, err)
	}
	for _, r := range rows {
		if _, ok := wanted[[2]int16{r.StepNo, r.TaskNo}]; ok && r.Large {
			r.Body, err = s.q.FragmentBody(ctx, s.pool, db.FragmentBodyParams{BatchID: b.ID, SliceNo: rec.No, StepNo: r.StepNo, TaskNo: r.TaskNo, Seq: r.Seq})
			if err != nil {
				return fmt.Errorf("read outputs of batch %s: %w", b.ID, err)
			}
		}
		if err := o.add(r.StepNo, r.TaskNo, 0, r.Body); err != nil {
			return err
		}
	}
	rec.bytes = o.bytes
	return nil
}

// someOutputs collects outputs of a slice's records from one on, and leaves out the last ones where they are too much.
type someOutputs struct {
	rec    *Records
	wanted map[[2]int16][2]string
	sizes  []int
	bytes  int
}

func (o *someOutputs) add(step, task int16, off int32, body []byte) error {
	name, ok := o.wanted[[2]int16{step, task}]
	if !ok {
		return nil
	}
	outs := o.rec.outputs[name]
	if outs == nil {
		outs = make([]json.RawMessage, len(o.rec.Rows))
		o.rec.outputs[name] = outs
	}
	return eachTrace(body, func(line []byte) error {
		if from, to, _, ok := spanOf(line); ok && (to-off <= o.rec.from || from-off >= o.rec.to) {
			return nil
		}
		t, err := decodeTrace(line)
		if err != nil {
			return fmt.Errorf("outputs of slice %d: %w", o.rec.No, err)
		}
		t.shift(off, int32(len(outs)))
		if t.decides() {
			t.each(func(at int32) { o.put(outs, at, t.Output) })
		}
		return nil
	})
}

func (o *someOutputs) put(outs []json.RawMessage, at int32, output json.RawMessage) {
	if at < o.rec.from || at >= o.rec.to {
		return
	}
	more := len(output) - len(outs[at])
	outs[at] = output
	o.sizes[at], o.bytes = o.sizes[at]+more, o.bytes+more
	for o.bytes > pieceBytes && o.rec.to > o.rec.from+1 {
		o.rec.to--
		for _, outs := range o.rec.outputs {
			outs[o.rec.to] = nil
		}
		o.bytes -= o.sizes[o.rec.to]
	}
}
