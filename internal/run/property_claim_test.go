package run

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/pg"
)

// cutting cuts queued parts into ranges from the front, as the dispatcher does.
type cutting struct {
	ranges  []ClaimedRange
	decided []Result
	calls   []uuid.UUID
	// after is what the model does once the ranges are claimed.
	after []func()
}

func (p *play) claim(b *modelBatch, step, task int, kind bool) {
	parts := p.queued(p.t, b.id, step, task)
	require.NotEmpty(p.t, parts, "records wait, but no part")
	bulk := p.plan[step][task].kind == "upload"
	total := 0
	for i := range parts {
		in, _ := p.members(p.t, &parts[i])
		total += len(in)
	}
	take := total
	if !kind {
		take = rapid.IntRange(1, total).Draw(p.t, "take")
	}
	c := cutting{}
	var bulkID uuid.UUID
	if bulk {
		bulkID = uuid.Must(uuid.NewV7())
	}
	for i := range parts {
		if take > 0 {
			take -= p.cut(&c, b, parts[i], take, bulkID, kind)
		}
	}
	action := p.plan[step][task].action()
	var unmarked []uuid.UUID
	var now time.Time
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error {
		l := p.s.BatchLock([]uuid.UUID{b.id}, c.ranges)
		if err := pg.QueryBatch(ctx, tx, l.Queries(ctx)...); err != nil {
			return err
		}
		ch, err := p.s.BeginLocked(ctx, tx, l)
		if err != nil {
			return err
		}
		if err := ch.Claim(ctx, c.ranges); err != nil {
			return err
		}
		if err := ch.Settle(ctx, c.decided); err != nil {
			return err
		}
		if err := p.insertCalls(ctx, tx, b.id, action, c.calls, ch.Now); err != nil {
			return err
		}
		err = ch.Apply(ctx)
		unmarked, now = ch.Unmarked(), ch.Now
		return err
	})
	p.mark(b, unmarked, now, len(c.decided) == 0 && total == len(b.records()))
	for _, f := range c.after {
		f()
	}
}

// mark marks a batch as running, now or never, that went into calls as a whole: whole tells that it can have.
func (p *play) mark(b *modelBatch, unmarked []uuid.UUID, now time.Time, whole bool) {
	if b.touched || len(unmarked) == 0 {
		b.touched = true
		return
	}
	require.True(p.t, whole, "all of the batch goes into calls at once")
	if rapid.Bool().Draw(p.t, "marked") {
		require.NoError(p.t, p.s.MarkRunning(p.ctx, unmarked, now))
		b.touched = true
	}
}

// cut takes up to n members off a part, and returns how many.
func (p *play) cut(c *cutting, b *modelBatch, part batch.Part, n int, bulkID uuid.UUID, kind bool) int {
	in, gone := p.members(p.t, &part)
	require.NotEmpty(p.t, in, "a part without records")
	n = min(n, len(in))
	from, open := part.From, false
	for i, o := range in[:n] {
		r := b.record(&part, o)
		require.Equal(p.t, waiting, r.tasks[part.TaskNo], "%v is offered by a part", r)
		piece := part
		piece.From, piece.To, piece.LeftOut = from, o+1, nil
		if p.plan[part.StepNo][part.TaskNo].kind == "each" {
			require.EqualValues(p.t, r.element[part.TaskNo], piece.Element, "element of %v", r)
			piece.Elements = modelElements
		}
		if i == len(in)-1 {
			piece.To = part.To
		}
		for _, g := range gone {
			if g >= piece.From && g < piece.To {
				piece.LeftOut = append(piece.LeftOut, g)
			}
		}
		from = piece.To
		decide := !kind && rapid.IntRange(0, 5).Draw(p.t, "decide") == 5
		switch {
		case decide:
			p.decide(c, r, piece, o)
			open = false
		case bulkID != uuid.Nil && open:
			last := &c.ranges[len(c.ranges)-1].Part
			last.To, last.LeftOut = piece.To, append(last.LeftOut, piece.LeftOut...)
		default:
			id := bulkID
			if id == uuid.Nil {
				id = uuid.Must(uuid.NewV7())
			}
			if !slices.Contains(c.calls, id) {
				c.calls = append(c.calls, id)
			}
			c.ranges = append(c.ranges, ClaimedRange{Part: piece, CallID: id, Seq: int32(len(c.ranges))})
			open = true
		}
		if !decide {
			task := part.TaskNo
			c.after = append(c.after, func() {
				r.tasks[task] = flying
				require.False(p.t, p.accepted[r.sending(int(task))], "task %d of %v is sent again", task, r)
			})
		}
	}
	return n
}

func (p *play) decide(c *cutting, r *modelRecord, piece batch.Part, o int32) {
	if n := len(piece.LeftOut); n > 0 && piece.To == o+1 && rapid.Bool().Draw(p.t, "split") {
		// Who left can be taken off the queue as a range without records.
		left := piece
		left.To, piece.From, piece.LeftOut = o, o, nil
		c.ranges = append(c.ranges, ClaimedRange{Part: left, NoCall: true})
	}
	c.ranges = append(c.ranges, ClaimedRange{Part: piece, NoCall: true})
	piece.ID = 0
	e := Exception{Offset: o, Kind: batch.EntrySkipped}
	if rapid.Bool().Draw(p.t, "decided_bad") {
		e.Kind, e.Error = batch.EntryFailed, &batch.JobError{Code: CodeExpression}
	}
	c.decided = append(c.decided, Result{Part: piece, From: batch.Queued, Exceptions: []Exception{e}})
	task := int(piece.TaskNo)
	c.after = append(c.after, func() { r.settle(task, e.Kind, "", false) })
}
