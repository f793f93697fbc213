package run

import (
	"context"
	"fmt"

	"flowlane/gen/db"
)

// Calls of a step are made while other tasks of it wait. The record is set apart then, and its remaining tasks are the calls and the waits:
// whichever is settled last has it go on. Once one has failed it waits for nothing more; what is under way, or queued, is still settled.

// failing returns the records of results that fail while others of their tasks may wait.
func (c *Change) failing(results []Result) (keys []jobKey) {
	for i := range results {
		r := &results[i]
		h := c.heads[r.Part.BatchID]
		if !r.Part.Apart || h.stopped() || !stepWaits(&h.plan.Steps[r.Part.StepNo]) {
			continue
		}
		for j := range r.Exceptions {
			if e := &r.Exceptions[j]; !e.again() && !c.passes(&r.Part, e) {
				keys = append(keys, jobKey{r.Part.BatchID, r.Part.First + int64(e.Offset)})
			}
		}
	}
	return keys
}

// dropWaits ends what else records wait for that are about to fail. A wait that somebody has locked counts until they have ended it.
func (c *Change) dropWaits(ctx context.Context, keys []jobKey) error {
	if len(keys) == 0 {
		return nil
	}
	var in db.WaitDropBesideParams
	for _, k := range keys {
		in.BatchIds, in.Positions = append(in.BatchIds, k.batch), append(in.Positions, k.position)
	}
	rows, err := c.s.q.WaitDropBeside(ctx, c.tx, in)
	if err != nil {
		return fmt.Errorf("end waits of records that fail: %w", err)
	}
	for _, r := range rows {
		c.dropped[jobKey{r.BatchID, r.Position}]++
	}
	return nil
}

// doomJob notes how a record will end once its tasks are settled. Of several that failed, the first failure counts; one of ours counts
// more than a rejection by a provider.
func (c *Change) doomJob(j *job, as Status, e *JobError) {
	if j.Doomed == nil || *j.Doomed == Rejected && as == Failed {
		j.Doomed, j.Error = ref(as), ref(errorText(e))
	}
	k := jobKey{j.BatchID, j.Position}
	j.Remaining -= c.dropped[k]
	delete(c.dropped, k)
}

// dropBeside is dropWaits for the records of waits that end with a failure.
func (e *ending) dropBeside(ctx context.Context, rows []db.WaitsOverRow) error {
	var keys []jobKey
	for i := range rows {
		r := &rows[i]
		p := Part{StepNo: r.StepNo, TaskNo: r.TaskNo}
		if t := e.outcome(r); r.Beside && e.fails(&p, &t) {
			keys = append(keys, jobKey{e.h.ID, r.Position})
		}
	}
	return e.c.dropWaits(ctx, keys)
}

// endBeside ends a wait of a record that makes calls beside. One that failed meanwhile waited for nothing more.
func (e *ending) endBeside(j *job, p *Part, trace Trace) {
	e.c.slice(sliceKey{e.h.ID, p.SliceNo}) // the batch's counters move with the job
	j.Remaining--
	if j.Doomed == nil {
		trace.From = int32(j.Position - p.First)
		trace.To = trace.From + 1
		e.c.trace(p, trace)
		if e.fails(p, &trace) {
			e.c.doomJob(j, Failed, trace.Error)
		}
	}
	if j.Remaining == 0 {
		e.c.advanceJob(j, p.First, e.h.final())
	}
}
