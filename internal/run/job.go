package run

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/pg"
)

// immediately is the ready time of work that does not wait.
var immediately = time.Time{}

// job is a detached record, as it will be written.
type job struct {
	db.FlowJob
	isNew bool
	// stored is the status of its row.
	stored batch.Status
}

// loadJobs reads the rows of these records, where they have one.
func (c *Change) loadJobs(ctx context.Context, keys []batch.JobKey) error {
	args := db.JobsAtParams{}
	for _, k := range keys {
		if _, ok := c.jobs[k]; !ok {
			args.BatchIds, args.Positions = append(args.BatchIds, k.Batch), append(args.Positions, k.Position)
		}
	}
	if len(args.Positions) == 0 {
		return nil
	}
	rows, err := c.s.q.JobsAt(ctx, c.tx, args)
	if err != nil {
		return fmt.Errorf("read jobs: %w", err)
	}
	for _, r := range rows {
		c.jobs[batch.JobKey{Batch: r.BatchID, Position: r.Position}] = &job{FlowJob: r, stored: r.Status}
	}
	return nil
}

// detach gives the record at this offset a row of its own, standing where it stands.
func (c *Change) detach(p *batch.Part, offset int32, status batch.Status, remaining int16) *job {
	j := &job{isNew: true, FlowJob: db.FlowJob{
		BatchID: p.BatchID, Position: p.First + int64(offset), SliceNo: p.SliceNo, DetachedStep: p.StepNo,
		StepNo:    p.StepNo,
		Remaining: remaining, Status: status, Attempts: max(p.Attempt, 1), UpdatedAt: c.Now, StartedAt: &c.Now,
	}}
	c.jobs[p.Key(offset)] = j
	c.slice(p.Slice()).detached++
	return j
}

// moveJob changes a job's status, in its row and in its slice's counters. In a stopped batch what would wait again
// will never be sent; its slice keeps counting it as waiting.
func (c *Change) moveJob(j *job, to batch.Status) {
	h := c.heads[j.BatchID]
	if (to == batch.Failed || to == batch.Rejected) && !h.fails(j.Status) {
		to, j.Error = batch.Unprocessed, nil
	}
	counted := func(s batch.Status) batch.Status {
		if h.stopped() && s == batch.Unprocessed {
			return batch.Queued
		}
		return s
	}
	c.slice(batch.SliceKey{Batch: j.BatchID, No: j.SliceNo}).counts.Move(counted(j.Status), counted(to), 1)
	if h.stopped() && to == batch.Queued {
		to = batch.Unprocessed
	}
	j.Status = to
}

// failJob ends a job that failed.
func (c *Change) failJob(j *job, e *batch.JobError) {
	j.Error = new(errorText(e))
	c.moveJob(j, batch.Failed)
}

// againJob queues the task of the part again for this job alone.
func (c *Change) againJob(j *job, p *batch.Part, e *Exception) {
	if c.heads[j.BatchID].stopped() {
		return
	}
	again := *p
	again.ID, again.Detached, again.From, again.To, again.LeftOut = 0, true, e.Offset, e.Offset+1, nil
	again.Attempt = p.Attempt + 1
	if e.Kind == batch.EntryElement { // has a key of its own
		again.Element, again.Attempt, again.KeyedSince = p.Element+1, 1, time.Time{}
	}
	j.Attempts = max(j.Attempts, again.Attempt)
	c.addCoverage(&again, batch.Queued)
	c.enqueue(again, 1, e.RetryAt)
}

// advanceJob moves a job whose step is over to its end or to its next step. ended is where a job ends whose last step
// is over.
func (c *Change) advanceJob(j *job, first int64, ended batch.Status) {
	h := c.heads[j.BatchID]
	switch {
	case j.EndStatus != nil:
		c.moveJob(j, *j.EndStatus)
		j.EndStatus = nil
	case h.last(j.StepNo):
		c.moveJob(j, ended)
	default:
		c.moveJob(j, batch.Queued)
		if h.stopped() {
			return
		}
		j.StepNo++
		step := &h.plan.Steps[j.StepNo]
		if batch.EntryState(step) == batch.SliceReady {
			j.Ready = true
			c.wakeBatch(DueSlices, j.BatchID)
			return
		}
		c.queueJob(j, first, batch.CallTasks(step))
	}
}

// queueJob queues the tasks that make calls of the job's step.
func (c *Change) queueJob(j *job, first int64, tasks []int16) {
	j.Remaining = int16(len(tasks))
	offset := int32(j.Position - first)
	for _, t := range tasks {
		c.enqueue(batch.Part{BatchID: j.BatchID, StepNo: j.StepNo, TaskNo: t, SliceNo: j.SliceNo, First: first,
			From:     offset,
			To:       offset + 1,
			Detached: true, Attempt: 1}, 1, immediately)
	}
}

// sortedJobs returns the jobs in the order of their key: rows that are written so lie so, and indexes grow at one end.
func sortedJobs(m map[batch.JobKey]*job) []*job {
	return slices.SortedFunc(maps.Values(m), func(a, b *job) int {
		return cmp.Or(bytes.Compare(a.BatchID[:], b.BatchID[:]), cmp.Compare(a.Position, b.Position))
	})
}

// writeJobs inserts new rows and updates changed ones.
func (c *Change) writeJobs(ctx context.Context) error {
	var fresh []db.JobInsertParams
	var hops []db.JobUpdateParams
	up := db.JobUpdateParams{Now: c.Now}
	for _, j := range sortedJobs(c.jobs) {
		if j.isNew {
			fresh = append(fresh, db.JobInsertParams(j.FlowJob))
			continue
		}
		for i, s := range batch.Between(j.stored, j.Status) {
			if i == len(hops) {
				hops = append(hops, db.JobUpdateParams{Now: c.Now})
			}
			addJob(&hops[i], j, s)
		}
		addJob(&up, j, j.Status)
	}
	if len(fresh) > 0 {
		if _, err := c.s.q.JobInsert(ctx, c.tx, fresh); err != nil {
			return fmt.Errorf("detach jobs: %w", err)
		}
	}
	for _, u := range append(hops, up) {
		if len(u.Positions) == 0 {
			continue
		}
		if err := c.s.q.JobUpdate(ctx, c.tx, u); err != nil {
			return fmt.Errorf("move jobs: %w", err)
		}
	}
	return nil
}

func addJob(up *db.JobUpdateParams, j *job, status batch.Status) {
	up.BatchIds, up.Positions = append(up.BatchIds, j.BatchID), append(up.Positions, j.Position)
	up.StepNos, up.Remaining = append(up.StepNos, j.StepNo), append(up.Remaining, j.Remaining)
	up.Statuses, up.Readies = append(up.Statuses, string(status)), append(up.Readies, j.Ready)
	up.EndStatuses, up.Attempts = append(up.EndStatuses, string(pg.Value(j.EndStatus))), append(up.Attempts, j.Attempts)
	up.Errors = append(up.Errors, pg.Value(j.Error))
}
