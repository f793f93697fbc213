package run

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// Claim moves queued records into calls. pieces are ranges of queued parts, at the front of each part and in order;
// Part.ID names the part that a piece is taken from.
func (c *Change) Claim(ctx context.Context, pieces []Piece) error {
	ps := make([]*Part, len(pieces))
	for i := range pieces {
		ps[i] = &pieces[i].Part
	}
	if err := c.look(ctx, ps); err != nil {
		return err
	}
	for _, p := range ps {
		c.remember(p)
	}
	if err := c.take(ctx, pieces); err != nil {
		return err
	}
	for i := range pieces {
		p := &pieces[i]
		c.heads[p.Part.BatchID].started = true
		d := c.lane(laneKey{p.Part.BatchID, p.Part.StepNo, p.Part.TaskNo})
		d.records -= int64(p.Part.Records())
		if !p.Decided {
			c.shift(&p.Part, Queued, Started)
		}
	}
	return nil
}

// Piece is a range of a queued part that leaves the queue.
type Piece struct {
	Part   Part
	CallID uuid.UUID
	Seq    int32
	// Decided pieces need no call: they are taken off the queue, and Settle says how they came out.
	Decided bool
}

// take removes the pieces from their queued parts, and inserts those that go into calls.
func (c *Change) take(ctx context.Context, pieces []Piece) error {
	byPart := map[int64][]*Piece{}
	var order []int64
	for i := range pieces {
		id := pieces[i].Part.ID
		if byPart[id] == nil {
			order = append(order, id)
		}
		byPart[id] = append(byPart[id], &pieces[i])
	}
	rows, err := c.s.q.PartsQueued(ctx, c.tx, order)
	if err != nil {
		return fmt.Errorf("read queued parts: %w", err)
	}
	have := map[int64]db.PartsQueuedRow{}
	for _, r := range rows {
		have[r.ID] = r
	}
	var whole db.PartClaimParams
	var shrink db.PartShrinkParams
	var insert db.PartInsertClaimedParams
	for _, id := range order {
		ps := byPart[id]
		r, ok := have[id]
		first, last := &ps[0].Part, &ps[len(ps)-1].Part
		if !ok || r.FromOff != first.From || r.ToOff < last.To {
			return fmt.Errorf("%w: part %d", ErrMoved, id)
		}
		lane := c.lane(laneKey{first.BatchID, first.StepNo, first.TaskNo})
		if len(ps) == 1 && r.ToOff == last.To && !ps[0].Decided {
			lane.parts--
			whole.Ids = append(whole.Ids, id)
			whole.CallIds = append(whole.CallIds, ps[0].CallID)
			whole.Seqs = append(whole.Seqs, ps[0].Seq)
			whole.LeftOut = append(whole.LeftOut, intsText(first.LeftOut))
			c.coverSet(first, Started)
			continue
		}
		c.coverShrink(first, last.To)
		if r.ToOff == last.To {
			lane.parts--
			c.deleted = append(c.deleted, id)
		} else {
			shrink.Ids = append(shrink.Ids, id)
			shrink.Froms = append(shrink.Froms, last.To)
		}
		for _, p := range ps {
			p.Part.ID = 0
			if !p.Decided {
				addClaimed(&insert, p)
				c.coverAdd(&p.Part, Started)
			}
		}
	}
	return c.writeTaken(ctx, whole, shrink, insert)
}

func addClaimed(in *db.PartInsertClaimedParams, p *Piece) {
	in.BatchIds = append(in.BatchIds, p.Part.BatchID)
	in.StepNos = append(in.StepNos, p.Part.StepNo)
	in.TaskNos = append(in.TaskNos, p.Part.TaskNo)
	in.SliceNos = append(in.SliceNos, p.Part.SliceNo)
	in.Froms = append(in.Froms, p.Part.From)
	in.Tos = append(in.Tos, p.Part.To)
	in.Aparts = append(in.Aparts, p.Part.Apart)
	in.Attempts = append(in.Attempts, p.Part.Attempt)
	in.CallIds = append(in.CallIds, p.CallID)
	in.Seqs = append(in.Seqs, p.Seq)
	in.LeftOut = append(in.LeftOut, intsText(p.Part.LeftOut))
}

func (c *Change) writeTaken(ctx context.Context, whole db.PartClaimParams, shrink db.PartShrinkParams, insert db.PartInsertClaimedParams) error {
	if len(whole.Ids) > 0 {
		if err := c.s.q.PartClaim(ctx, c.later, whole); err != nil {
			return fmt.Errorf("claim parts: %w", err)
		}
	}
	if len(shrink.Ids) > 0 {
		if err := c.s.q.PartShrink(ctx, c.later, shrink); err != nil {
			return fmt.Errorf("shorten parts: %w", err)
		}
	}
	if len(insert.Froms) > 0 {
		if err := c.s.q.PartInsertClaimed(ctx, c.later, insert); err != nil {
			return fmt.Errorf("insert claimed parts: %w", err)
		}
	}
	return nil
}

// Again says how parts come back to their queue.
type Again struct {
	// From is where their records stand.
	From Status
	// ReadyAt is when they may be claimed again; zero for at once.
	ReadyAt time.Time
	// Attempted counts what happened as an attempt of the task.
	Attempted bool
	// Why is noted in the trace, unless nil.
	Why *JobError
}

// Requeue puts parts back whose call provably did nothing, or may be repeated without harm.
func (c *Change) Requeue(ctx context.Context, ps []Part, again Again) error {
	if err := c.look(ctx, pointers(ps)); err != nil {
		return err
	}
	ids := make([]int64, len(ps))
	for i := range ps {
		p := &ps[i]
		ids[i] = p.ID
		c.remember(p)
		k := laneKey{p.BatchID, p.StepNo, p.TaskNo}
		d := c.lane(k)
		d.parts++
		d.records += int64(p.Records())
		if old, ok := c.wakeAt[k]; !ok || again.ReadyAt.Before(old) {
			c.wakeAt[k] = again.ReadyAt
		}
		if again.Why != nil {
			c.trace(p, Trace{From: p.From, To: p.To, LeftOut: p.LeftOut, Kind: TraceRequeued, Attempt: p.Attempt, EndedAt: millis(c.Now), Error: again.Why})
		}
		c.coverSet(p, Queued)
		c.shift(p, again.From, Queued)
	}
	args := db.PartRequeueParams{Ids: ids, ReadyAt: again.ReadyAt}
	if again.Attempted {
		args.Attempts = 1
	}
	n, err := c.s.q.PartRequeue(ctx, c.tx, args)
	if err != nil {
		return fmt.Errorf("requeue parts: %w", err)
	}
	if int(n) != len(ids) {
		return fmt.Errorf("%w: %d of %d parts were not in a call", ErrMoved, len(ids)-int(n), len(ids))
	}
	return nil
}

// Doubt marks the records of calls whose outcome is unknown.
func (c *Change) Doubt(ctx context.Context, ps []Part) error {
	return c.mark(ctx, ps, Started, NeedsReconcile)
}

// Abandon marks records whose outcome nobody but a person can find out.
func (c *Change) Abandon(ctx context.Context, ps []Part) error {
	return c.mark(ctx, ps, NeedsReconcile, Unresolved)
}

func (c *Change) mark(ctx context.Context, ps []Part, from, to Status) error {
	if err := c.look(ctx, pointers(ps)); err != nil {
		return err
	}
	for i := range ps {
		c.trace(&ps[i], Trace{From: ps[i].From, To: ps[i].To, LeftOut: ps[i].LeftOut, Kind: TraceUnknown, Attempt: ps[i].Attempt,
			EndedAt: millis(c.Now)})
		c.remember(&ps[i])
		c.coverSet(&ps[i], to)
		c.shift(&ps[i], from, to)
	}
	return nil
}

// remember notes where the records of a part stand before its cover changes; shift then moves them.
func (c *Change) remember(p *Part) {
	if c.plain(p) {
		return
	}
	for _, o := range p.Offsets() {
		c.was[jobKey{p.BatchID, p.First + int64(o)}] = c.stands(p, o)
	}
}

// shift moves the records of a part whose cover has changed since remember.
func (c *Change) shift(p *Part, from, to Status) {
	d := c.slice(sliceKey{p.BatchID, p.SliceNo})
	if c.plain(p) {
		d.counts.move(from, to, int64(p.Records()))
		return
	}
	cov := c.covers[sliceKey{p.BatchID, p.SliceNo}]
	for _, o := range p.Offsets() {
		k := jobKey{p.BatchID, p.First + int64(o)}
		if j := c.jobs[k]; j != nil {
			if s, ok := cov.status(p.StepNo, o, j.ApartStep); ok {
				c.moveJob(j, s)
			}
			continue
		}
		d.counts.move(c.was[k], c.stands(p, o), 1)
	}
}

// coverSet, coverShrink and coverAdd keep the cover of a slice in step with its parts, where it was loaded.
func (c *Change) coverSet(p *Part, s Status) {
	if cov := c.covers[sliceKey{p.BatchID, p.SliceNo}]; cov != nil {
		cov.set(p.ID, s)
	}
}

func (c *Change) coverShrink(p *Part, from int32) {
	cov := c.covers[sliceKey{p.BatchID, p.SliceNo}]
	if cov == nil {
		return
	}
	for i := range cov.parts {
		if q := &cov.parts[i]; q.ID == p.ID {
			q.From = from
		}
	}
}

func (c *Change) coverAdd(p *Part, s Status) {
	if cov := c.covers[sliceKey{p.BatchID, p.SliceNo}]; cov != nil {
		cov.parts = append(cov.parts, coverPart{Part: *p, state: s})
	}
}

func pointers(ps []Part) []*Part {
	out := make([]*Part, len(ps))
	for i := range ps {
		out[i] = &ps[i]
	}
	return out
}

// ErrMoved means that what was chosen without locks is no longer there: choose again.
var ErrMoved = fmt.Errorf("the work has moved on")

// intsText returns the text form of an integer array, so that arrays of arrays can be sent as one.
func intsText(v []int32) string {
	if len(v) == 0 {
		return ""
	}
	b := []byte{'{'}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(x), 10)
	}
	return string(append(b, '}'))
}
