package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Later takes statements that Apply sends with its own.
func (c *Change) Later() *pg.Pipeline { return c.later }

// Apply writes the change. It must be the last thing done to these batches in the transaction.
func (c *Change) Apply(ctx context.Context) error {
	writes := []func(context.Context) error{c.moveSlices, c.writeJobs, c.writeWaits, c.writeParts, c.writeQueues,
		c.writeFragments, c.compact, c.moveBatches}
	if c.claimsOnly() {
		writes = []func(context.Context) error{c.claimSlices, c.writeParts, c.writeQueues, c.moveBatches}
	}
	for _, write := range writes {
		if err := write(ctx); err != nil {
			return err
		}
	}
	return c.finish(ctx)
}

// finish makes due what the change gave work to, once all else is written and those who listen are told of it.
func (c *Change) finish(ctx context.Context) error {
	if len(c.ended) == 0 && len(c.left) == 0 {
		return c.send(ctx)
	}
	if err := c.later.Send(ctx, c.tx); err != nil {
		return err
	}
	if err := c.publishUnresolved(ctx); err != nil {
		return err
	}
	if err := c.publishEnded(ctx); err != nil {
		return err
	}
	return c.send(ctx)
}

// claimsOnly reports whether all that happened is that queued records went into calls: nothing can have come to its
// end.
func (c *Change) claimsOnly() bool {
	if len(c.jobs) > 0 || len(c.entries) > 0 || len(c.advances.Nos) > 0 || len(c.slices) == 0 {
		return false
	}
	for _, d := range c.slices {
		n := d.counts.Of(batch.Started)
		var claimed batch.Counts
		claimed.Move(batch.Queued, batch.Started, n)
		if d.remaining != 0 || d.detached != 0 || n < 0 || d.counts != claimed {
			return false
		}
	}
	return true
}

// claimSlices counts claimed records in their slices. Those that stand in their batches' counters are counted there.
func (c *Change) claimSlices(ctx context.Context) error {
	var in db.SliceClaimParams
	for _, k := range sortedSlices(c.slices) {
		if c.heads[k.Batch].OneSlice {
			continue
		}
		in.BatchIds, in.Nos = append(in.BatchIds, k.Batch), append(in.Nos, k.No)
		in.Records = append(in.Records, int32(c.slices[k].counts.Of(batch.Started)))
	}
	if len(in.Nos) == 0 {
		return nil
	}
	err := c.s.q.SliceClaim(ctx, c.later, in)
	c.later.MustTouch(len(in.Nos), ErrMoved)
	return fault.Wrap(err, "count claimed records")
}

// doneWhole reports whether a change is the end of a slice that stands in the counters of its batch: they say all of
// it.
func (h *lockedBatch) doneWhole(d *sliceDelta) bool {
	return h.OneSlice && h.last(0) && d.detached == 0 && int64(d.remaining) == -h.RecordCount
}

// moveSlices writes the slices' counters and moves on those whose step is over.
func (c *Change) moveSlices(ctx context.Context) error {
	moved := slices.DeleteFunc(sortedSlices(c.slices),
		func(k batch.SliceKey) bool { return c.heads[k.Batch].doneWhole(c.slices[k]) })
	if len(moved) == 0 {
		return nil
	}
	if err := c.writeOut(ctx, moved); err != nil {
		return err
	}
	args := db.SliceMoveParams{}
	for _, k := range moved {
		d := c.slices[k]
		args.BatchIds, args.Nos = append(args.BatchIds, k.Batch), append(args.Nos, k.No)
		args.Remaining, args.Detached = append(args.Remaining, d.remaining), append(args.Detached, d.detached)
		args.LastSteps = append(args.LastSteps, c.heads[k.Batch].lastStep())
		for _, n := range d.counts {
			args.Deltas = append(args.Deltas, int32(n))
		}
	}
	rows, err := c.s.q.SliceMove(ctx, c.tx, args)
	if err != nil {
		return fmt.Errorf("move slices: %w", err)
	}
	if len(rows) != len(args.Nos) {
		return fmt.Errorf("move slices: %d of %d are there", len(rows), len(args.Nos))
	}
	for _, r := range rows {
		h := c.heads[r.BatchID]
		if r.Remaining != 0 || (r.State != batch.SliceCalling && r.State != batch.SliceDone) {
			continue
		}
		if k := (batch.SliceKey{Batch: r.BatchID, No: r.No}); c.widest[k] < r.Records {
			c.over.BatchIds, c.over.SliceNos = append(c.over.BatchIds, r.BatchID), append(c.over.SliceNos, r.No)
			c.over.StepNos = append(c.over.StepNos, r.StepNo)
		}
		if r.State == batch.SliceDone || h.stopped() {
			continue
		}
		c.leaveStep(h, new(db.SliceRowsRow(r)), r.Records-r.Detached, allTasks)
	}
	if len(c.advances.Nos) == 0 {
		return nil
	}
	return fault.Wrap(c.s.q.SliceAdvance(ctx, c.later, c.advances), "advance slices")
}

// writeOut gives slices that stand in the counters of their batches rows of their own.
func (c *Change) writeOut(ctx context.Context, keys []batch.SliceKey) error {
	var ids []uuid.UUID
	for _, k := range keys {
		if h := c.heads[k.Batch]; h.OneSlice {
			h.OneSlice, h.uncounted, ids = false, false, append(ids, k.Batch)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := c.s.q.SlicesWriteOut(ctx, c.tx, ids)
	return fault.Wrap(err, "write out slices")
}

func sortedSlices(m map[batch.SliceKey]*sliceDelta) []batch.SliceKey {
	return slices.SortedFunc(maps.Keys(m), batch.SliceKey.Compare)
}

func (c *Change) writeParts(ctx context.Context) error {
	if asked := len(c.deleted.Ids); asked > 0 {
		n, err := c.s.q.PartDelete(ctx, c.tx, c.deleted)
		if err != nil {
			return fmt.Errorf("delete parts: %w", err)
		}
		if int(n) != asked {
			return fmt.Errorf("%w: %d of %d parts were settled before", ErrMoved, asked-int(n), asked)
		}
	}
	if answered := len(c.answered.CallIds); answered > 0 {
		n, err := c.s.q.PartDeleteOfCalls(ctx, c.tx, c.answered)
		if err != nil {
			return fmt.Errorf("delete parts of calls: %w", err)
		}
		if int(n) < answered {
			return fmt.Errorf("%w: %d calls have %d parts", ErrMoved, answered, n)
		}
	}
	if len(c.queued.Froms) == 0 {
		return nil
	}
	c.queued.Now = c.Now
	return fault.Wrap(c.s.q.PartInsert(ctx, c.later, c.queued), "queue parts")
}

func (c *Change) writeQueues(ctx context.Context) error {
	args := db.LaneBatchMoveParams{}
	for k, d := range c.queues {
		if d.parts == 0 && d.records == 0 && d.delayedUntil.IsZero() {
			continue
		}
		args.BatchIds, args.StepNos = append(args.BatchIds, k.batch), append(args.StepNos, k.step)
		args.TaskNos, args.Parts = append(args.TaskNos, k.task), append(args.Parts, d.parts)
		args.Records, args.Claimed = append(args.Records, d.records), append(args.Claimed, d.claimed)
		args.DelayedUntils, args.CallIds = append(args.DelayedUntils, d.delayedUntil), append(args.CallIds, d.call)
	}
	if len(args.Parts) == 0 {
		return nil
	}
	return fault.Wrap(c.s.q.LaneBatchMove(ctx, c.later, args), "count queued parts")
}

func (c *Change) writeFragments(ctx context.Context) error {
	args := db.FragmentInsertParams{}
	for k, entries := range c.entries {
		body, err := batch.EncodeEntries(entries)
		if err != nil {
			return err
		}
		if c.besideCounts(k, entries, body) {
			c.heads[k.slice.Batch].fragment = body
			continue
		}
		args.BatchIds, args.SliceNos = append(args.BatchIds, k.slice.Batch), append(args.SliceNos, k.slice.No)
		args.StepNos, args.TaskNos = append(args.StepNos, k.step), append(args.TaskNos, k.task)
		args.Skipped, args.Bodies = append(args.Skipped, batch.SkippedIn(entries)), append(args.Bodies, body)
	}
	if len(args.Bodies) == 0 {
		return nil
	}
	return fault.Wrap(c.s.q.FragmentInsert(ctx, c.tx, args), "write entries")
}

// fragmentMost is how many bytes a fragment has at most that stands with the counters of its batch: lists read those as
// a whole.
const fragmentMost = 256

// besideCounts reports whether a fragment says all that becomes of a slice that stands in the counters of its batch,
// and may stand there, too: a row of its own, with its entry in an index, is more than twice as large.
func (c *Change) besideCounts(k fragmentKey, entries []batch.Entry, body []byte) bool {
	d, h := c.slices[k.slice], c.heads[k.slice.Batch]
	return k.step == 0 && k.task == 0 && d != nil && h.doneWhole(d) && len(body) <= fragmentMost &&
		batch.SkippedIn(entries) == 0
}

// moveBatches writes what the change does to batches.
func (c *Change) moveBatches(ctx context.Context) error {
	deltas := map[uuid.UUID]*batch.Counts{}
	for k, d := range c.slices {
		entry(deltas, k.Batch).Add(&d.counts)
	}
	if err := c.moveCounts(ctx, deltas); err != nil {
		return err
	}
	goOn := slices.DeleteFunc(c.answered.BatchIds, func(id uuid.UUID) bool { return slices.Contains(c.ended, id) })
	if len(goOn) == 0 {
		return nil
	}
	taken := db.LaneBatchTakenParams{BatchIds: goOn, CallIds: c.answered.CallIds}
	return fault.Wrap(c.s.q.LaneBatchTaken(ctx, c.later, taken), "take settled parts off their queues")
}

// moveCounts writes the counters of batches, ends those whose jobs are over, and marks the others as running. A paused
// one ends when it is resumed.
func (c *Change) moveCounts(ctx context.Context, deltas map[uuid.UUID]*batch.Counts) error {
	args := db.BatchCountMoveParams{Now: c.Now}
	var start, over []uuid.UUID
	for id, d := range deltas {
		h := c.heads[id]
		h.counts.Add(d)
		if err := c.stopPast(ctx, h); err != nil {
			return err
		}
		if h.stopped() {
			for _, s := range []batch.Status{batch.Staged, batch.Queued, batch.Pending} {
				n := h.counts.Of(s)
				d.Move(s, batch.Unprocessed, n)
				h.counts.Move(s, batch.Unprocessed, n)
			}
		}
		endedAs, began := "", time.Time{}
		switch {
		case h.counts.Terminal() == h.RecordCount && h.Status != batch.BatchPaused && !batch.BatchTerminal(h.Status):
			endedAs, began = string(h.outcome()), h.began
			if began.IsZero() {
				began = c.Now
			}
			over = append(over, id)
		case h.Status == batch.BatchQueued && d.Of(batch.Started) == h.RecordCount:
			c.unmarked = append(c.unmarked, id)
			if h.OneSlice {
				continue
			}
		case h.Status == batch.BatchQueued, h.Status == batch.BatchPaused:
			start = append(start, id)
		}
		h.abandoned = d.Of(batch.Unresolved)
		if h.uncounted {
			d.Move(batch.Queued, batch.Started, h.RecordCount)
		}
		args.BatchIds, args.Deltas = append(args.BatchIds, id), append(args.Deltas, d[:]...)
		args.EndedAs, args.Began = append(args.EndedAs, endedAs), append(args.Began, began)
		args.Fragments = append(args.Fragments, h.fragment)
	}
	if len(args.BatchIds) == 0 {
		return nil
	}
	err := c.s.q.BatchCountMove(ctx, c.later, args)
	if err == nil && len(start) > 0 {
		err = c.s.q.BatchStart(ctx, c.later, db.BatchStartParams{Ids: start, Began: c.Now, Now: c.Now})
	}
	if c.ended = append(c.ended, over...); err == nil && len(over) > 0 {
		maps.DeleteFunc(c.wakeAt, func(k queueKey, _ time.Time) bool { return slices.Contains(over, k.batch) })
		err = c.s.q.LaneBatchesEnd(ctx, c.later, over)
	}
	return fault.Wrap(err, "count jobs")
}

// outcome is how a batch ends whose jobs are all over.
func (h *lockedBatch) outcome() batch.BatchStatus {
	if h.StoppedAt != nil {
		return batch.BatchFailed
	}
	return h.counts.Outcome()
}
