package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
)

// Claim moves queued records into calls. ranges are ranges of queued parts, at the front of each part and in order;
// Part.ID names the part that a range is taken from.
func (c *Change) Claim(ctx context.Context, ranges []ClaimedRange) error {
	ps := partsIn(ranges, func(p *ClaimedRange) *batch.Part { return &p.Part })
	if err := c.preload(ctx, ps); err != nil {
		return err
	}
	for _, p := range ps {
		c.snapshotStatus(p)
	}
	if err := c.spend(ctx, ranges); err != nil {
		return err
	}
	if err := c.take(ctx, ranges); err != nil {
		return err
	}
	for i := range ranges {
		p := &ranges[i]
		d := c.queue(queueKey{p.Part.BatchID, p.Part.StepNo, p.Part.TaskNo})
		d.records -= int64(p.Part.Records())
		if !p.NoCall {
			c.applyStatus(&p.Part, batch.Queued, batch.Started)
		}
	}
	return nil
}

// ClaimedRange is a range of a queued part that leaves the queue.
type ClaimedRange struct {
	Part   batch.Part
	CallID uuid.UUID
	// Seq is its place among the ranges of the call, from 0: the order of the records in the request.
	Seq int32
	// NoCall ranges need no call: they are taken off the queue, and Settle says how they came out.
	NoCall bool
}

// alone reports whether the call of a range has nothing but it, and all of its range.
func (p *ClaimedRange) alone(inCall map[uuid.UUID]int) bool {
	return inCall[p.CallID] == 1 && !p.NoCall && p.Part.Elements == 0 && len(p.Part.LeftOut) == 0
}

// take removes the ranges from their queued parts, and inserts those that go into calls.
func (c *Change) take(ctx context.Context, ranges []ClaimedRange) error {
	byPart := map[int64][]*ClaimedRange{}
	for i := range ranges {
		byPart[ranges[i].Part.ID] = append(byPart[ranges[i].Part.ID], &ranges[i])
	}
	rows := c.batchLock.parts
	if len(c.batchLock.ranges) == 0 { // nobody has looked
		var err error
		if rows, err = c.s.q.PartsQueued(ctx, c.tx, partsOf(ranges)); err != nil {
			return fmt.Errorf("read queued parts: %w", err)
		}
	}
	if len(rows) != len(byPart) {
		return fmt.Errorf("%w: %d of %d parts are queued", ErrMoved, len(rows), len(byPart))
	}
	t := claimedParts{inCall: map[uuid.UUID]int{}}
	for i := range ranges {
		t.inCall[ranges[i].CallID]++
	}
	for i := range rows {
		if err := c.takePart(&t, &rows[i], byPart[rows[i].ID]); err != nil {
			return err
		}
	}
	return c.writeTaken(ctx, &t)
}

// partsOf returns the stored parts that ranges are taken from.
func partsOf(ranges []ClaimedRange) (out db.PartsQueuedParams) {
	for i := range ranges {
		if p := &ranges[i].Part; !slices.Contains(out.Ids, p.ID) {
			out.BatchIds, out.Ids = append(out.BatchIds, p.BatchID), append(out.Ids, p.ID)
			out.Begins, out.SliceNos = append(out.Begins, p.Begins), append(out.SliceNos, p.SliceNo)
		}
	}
	return out
}

// deletePart has the stored part deleted with the rest of the change.
func (c *Change) deletePart(p *batch.Part) {
	d := &c.deleted
	d.BatchIds, d.SliceNos, d.Ids = append(d.BatchIds, p.BatchID), append(d.SliceNos, p.Begins), append(d.Ids, p.ID)
}

// claimedParts is what take writes.
type claimedParts struct {
	// inCall is how many ranges each call has, out the batches whose parts stand in their queues and are not taken
	// whole.
	inCall map[uuid.UUID]int
	out    []uuid.UUID
	whole  db.PartClaimParams
	shrink db.PartShrinkParams
	insert db.PartInsertClaimedParams
}

// endOfRanges is the slice and the offset in it where ranges end that follow each other from the front of a stored part
// on.
func endOfRanges(r *db.PartsQueuedRow, ps []*ClaimedRange) (no, off int32, err error) {
	no, off = r.SliceNo, r.FromOff
	for _, p := range ps {
		end := p.Part.Size
		if no == r.LastNo {
			end = r.ToOff
		}
		if no > r.LastNo || p.Part.SliceNo != no || p.Part.From != off || p.Part.To > end {
			return 0, 0, fmt.Errorf("%w: part %d", ErrMoved, r.ID)
		}
		if off = p.Part.To; off == end {
			no, off = no+1, 0
		}
	}
	return no, off, nil
}

// takePart takes ranges from one stored part. They must follow each other from its front on.
func (c *Change) takePart(t *claimedParts, r *db.PartsQueuedRow, ps []*ClaimedRange) error {
	no, off, err := endOfRanges(r, ps)
	if err != nil {
		return err
	}
	first := &ps[0].Part
	lane := c.queue(queueKey{first.BatchID, first.StepNo, first.TaskNo})
	claimNo := c.heads[first.BatchID].claimNo(first.StepNo)
	runs := runsOf(ps)
	all := no > r.LastNo
	if all {
		lane.parts--
	}
	for _, p := range ps {
		p.Part.Begins = r.SliceNo
	}
	if r.InQueue {
		if all && len(ps) == 1 && ps[0].alone(t.inCall) {
			lane.call = ps[0].CallID
			c.updateCoverage(first, func(q *batch.CoveringPart) { q.State = batch.Started })
			return nil
		}
		t.out = append(t.out, first.BatchID)
	}
	if all && len(runs) == 1 && len(runs[0]) == len(ps) {
		t.whole.BatchIds, t.whole.Begins = append(t.whole.BatchIds, first.BatchID), append(t.whole.Begins, r.SliceNo)
		t.whole.Ids, t.whole.CallIds = append(t.whole.Ids, r.ID), append(t.whole.CallIds, ps[0].CallID)
		t.whole.Seqs, t.whole.ClaimNos = append(t.whole.Seqs, ps[0].Seq), append(t.whole.ClaimNos, claimNo)
		t.whole.LeftOut = append(t.whole.LeftOut, intsText(first.LeftOut))
		t.whole.Element, t.whole.Elements = append(t.whole.Element, first.Element), append(t.whole.Elements,
			first.Elements)
		for _, p := range ps {
			c.updateCoverage(&p.Part, func(q *batch.CoveringPart) { q.State = batch.Started })
		}
		return nil
	}
	if all {
		c.deletePart(first)
	} else {
		t.shrink.BatchIds, t.shrink.Begins = append(t.shrink.BatchIds, first.BatchID), append(t.shrink.Begins,
			r.SliceNo)
		t.shrink.Ids, t.shrink.SliceNos = append(t.shrink.Ids, r.ID), append(t.shrink.SliceNos, no)
		t.shrink.Froms = append(t.shrink.Froms, off)
	}
	for _, p := range ps {
		c.updateCoverage(&p.Part, func(q *batch.CoveringPart) { q.From = p.Part.To })
		p.Part.ID = 0
		if !p.NoCall {
			c.addCoverage(&p.Part, batch.Started)
		}
	}
	for _, run := range runs {
		addClaimed(&t.insert, run, claimNo)
	}
	return nil
}

// runsOf groups ranges that can be one stored part: whole ends of slices that follow each other in one call.
func runsOf(ps []*ClaimedRange) (runs [][]*ClaimedRange) {
	for i, p := range ps {
		if p.NoCall {
			continue
		}
		if i > 0 && len(runs) > 0 {
			last := ps[i-1]
			if !last.NoCall && last.CallID == p.CallID && last.Part.To == last.Part.Size && p.Part.From == 0 &&
				len(last.Part.LeftOut) == 0 && len(p.Part.LeftOut) == 0 {
				runs[len(runs)-1] = append(runs[len(runs)-1], p)
				continue
			}
		}
		runs = append(runs, []*ClaimedRange{p})
	}
	return runs
}

func addClaimed(in *db.PartInsertClaimedParams, run []*ClaimedRange, claimNo int64) {
	p, last := run[0], run[len(run)-1]
	in.BatchIds, in.StepNos = append(in.BatchIds, p.Part.BatchID), append(in.StepNos, p.Part.StepNo)
	in.TaskNos, in.SliceNos = append(in.TaskNos, p.Part.TaskNo), append(in.SliceNos, p.Part.SliceNo)
	in.LastNos, in.Froms = append(in.LastNos, last.Part.SliceNo), append(in.Froms, p.Part.From)
	in.Tos, in.AreDetached = append(in.Tos, last.Part.To), append(in.AreDetached, p.Part.Detached)
	in.Attempts = append(in.Attempts, p.Part.Attempt)
	in.Element, in.Elements = append(in.Element, p.Part.Element), append(in.Elements, p.Part.Elements)
	in.CallIds, in.Seqs = append(in.CallIds, p.CallID), append(in.Seqs, p.Seq)
	in.ClaimNos, in.LeftOut = append(in.ClaimNos, claimNo), append(in.LeftOut, intsText(p.Part.LeftOut))
	in.QueuedAts = append(in.QueuedAts, p.Part.QueuedAt)
	in.KeyedSinces = append(in.KeyedSinces, p.Part.KeyedSince)
}

func (c *Change) writeTaken(ctx context.Context, t *claimedParts) error {
	if len(t.out) > 0 { // at once: parts are deleted before what is sent later
		if _, err := c.s.q.SlicesWriteOut(ctx, c.tx, t.out); err != nil {
			return fmt.Errorf("write out slices: %w", err)
		}
		for _, id := range t.out {
			c.heads[id].OneSlice = false
		}
		if err := c.s.q.PartsWriteOut(ctx, c.tx, t.out); err != nil {
			return fmt.Errorf("write out parts: %w", err)
		}
	}
	if len(t.whole.Ids) > 0 {
		if err := c.s.q.PartClaim(ctx, c.later, t.whole); err != nil {
			return fmt.Errorf("claim parts: %w", err)
		}
	}
	if len(t.shrink.Ids) > 0 {
		if err := c.s.q.PartShrink(ctx, c.later, t.shrink); err != nil {
			return fmt.Errorf("shorten parts: %w", err)
		}
	}
	if len(t.insert.Froms) > 0 {
		if err := c.s.q.PartInsertClaimed(ctx, c.later, t.insert); err != nil {
			return fmt.Errorf("insert claimed parts: %w", err)
		}
	}
	return nil
}

// Requeueing says how parts come back to their queue.
type Requeueing struct {
	// From is where their records stand.
	From batch.Status
	// ReadyAt is when they may be claimed again; zero for at once.
	ReadyAt time.Time
	// Attempted counts what happened as an attempt of the task.
	Attempted bool
	// Why is noted in the entry; nil where there is nothing to say.
	Why *batch.JobError
}

// Requeue puts parts back whose call provably did nothing, or may be repeated without harm. Those of one ID stand
// together, all of them.
func (c *Change) Requeue(ctx context.Context, ps []batch.Part, again Requeueing) error {
	if err := c.mark(ctx, ps, batch.Entry{Kind: batch.EntryRequeued, Error: again.Why}, again.From,
		batch.Queued); err != nil {
		return err
	}
	args := db.PartRequeueParams{ReadyAt: again.ReadyAt, Now: c.Now}
	for i := range ps {
		p := &ps[i]
		k := queueKey{p.BatchID, p.StepNo, p.TaskNo}
		d := c.queue(k)
		if i == 0 || ps[i-1].ID != p.ID {
			args.BatchIds, args.SliceNos = append(args.BatchIds, p.BatchID), append(args.SliceNos, p.Begins)
			args.Ids = append(args.Ids, p.ID)
			d.parts++
		}
		d.records += int64(p.Records())
		d.delay(again.ReadyAt)
		keepEarliest(c.wakeAt, k, again.ReadyAt)
	}
	if again.Attempted {
		args.Attempts = 1
	}
	n, err := c.s.q.PartRequeue(ctx, c.tx, args)
	if err != nil {
		return fmt.Errorf("requeue parts: %w", err)
	}
	if int(n) != len(args.Ids) {
		return fmt.Errorf("%w: %d of %d parts were not in a call", ErrMoved, len(args.Ids)-int(n), len(args.Ids))
	}
	return nil
}

// MarkUnknown marks the records of calls whose outcome is unknown.
func (c *Change) MarkUnknown(ctx context.Context, ps []batch.Part) error {
	return c.mark(ctx, ps, batch.Entry{Kind: batch.EntryUnknown}, batch.Started, batch.NeedsReconcile)
}

// MarkUnresolved marks records whose outcome nobody but a person can find out.
func (c *Change) MarkUnresolved(ctx context.Context, ps []batch.Part) error {
	c.leave(ps)
	return c.mark(ctx, ps, batch.Entry{Kind: batch.EntryUnknown}, batch.NeedsReconcile, batch.Unresolved)
}

// mark moves parts as a whole, and leaves an entry of it.
func (c *Change) mark(ctx context.Context, ps []batch.Part, t batch.Entry, from, to batch.Status) error {
	moved := partsIn(ps, func(p *batch.Part) *batch.Part { return p })
	if err := c.preload(ctx, moved); err != nil {
		return err
	}
	t.EndedAt = batch.Millis(c.Now)
	for _, p := range moved {
		t.From, t.To, t.LeftOut, t.Attempt = p.From, p.To, p.LeftOut, p.Attempt
		c.add(p, t)
		c.snapshotStatus(p)
		c.updateCoverage(p, func(q *batch.CoveringPart) { q.State = to })
		c.applyStatus(p, from, to)
	}
	return nil
}

// snapshotStatus notes where the records of a part stand before its coverage changes; applyStatus then moves them.
func (c *Change) snapshotStatus(p *batch.Part) {
	if c.plain(p) {
		return
	}
	for _, o := range p.Offsets() {
		c.was[p.Key(o)] = c.statusOf(p, o)
	}
}

// applyStatus moves the records of a part whose coverage has changed since snapshotStatus.
func (c *Change) applyStatus(p *batch.Part, from, to batch.Status) {
	d := c.slice(p.Slice())
	if c.plain(p) {
		d.counts.Move(from, to, int64(p.Records()))
		return
	}
	cov := c.coverage[p.Slice()]
	for _, o := range p.Offsets() {
		if j := c.jobs[p.Key(o)]; j != nil {
			if s, parts := cov.StatusAt(p.StepNo, o, j.DetachedStep); parts > 0 {
				c.moveJob(j, s)
			}
			continue
		}
		d.counts.Move(c.was[p.Key(o)], c.statusOf(p, o), 1)
	}
}

// updateCoverage calls do with what the coverage of a slice has of a part, and addCoverage adds one to it, where it was
// loaded: so it stays in step with the slice's parts.
func (c *Change) updateCoverage(p *batch.Part, do func(*batch.CoveringPart)) {
	if cov := c.coverage[p.Slice()]; cov != nil {
		for i := range cov.Parts {
			if cov.Parts[i].ID == p.ID {
				do(&cov.Parts[i])
			}
		}
	}
}

func (c *Change) addCoverage(p *batch.Part, s batch.Status) {
	if cov := c.coverage[p.Slice()]; cov != nil {
		cov.Parts = append(cov.Parts, batch.CoveringPart{Part: *p, State: s})
	}
}

// ErrMoved means that what was chosen without locks is no longer there: choose again.
var ErrMoved = fmt.Errorf("the work has moved on")

// intsText returns the text form of an integer array, so that arrays of arrays can be sent as one.
func intsText(v []int32) string {
	if len(v) == 0 {
		return ""
	}
	b, _ := json.Marshal(v) // numbers alone: cannot fail
	b[0], b[len(b)-1] = '{', '}'
	return string(b)
}
