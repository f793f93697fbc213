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
)

// immediately is the ready time of work that does not wait.
var immediately = time.Time{}

// job is a detached record, as it will be written.
type job struct {
	db.FlowJob
	isNew bool
	// stored is the status of its row.
	stored Status
}

// loadJobs reads the rows of these records, where they have one.
func (c *Change) loadJobs(ctx context.Context, keys []jobKey) error {
	args := db.JobsAtParams{}
	for _, k := range keys {
		if _, ok := c.jobs[k]; !ok {
			args.BatchIds, args.Positions = append(args.BatchIds, k.batch), append(args.Positions, k.position)
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
		c.jobs[jobKey{r.BatchID, r.Position}] = &job{FlowJob: r, stored: r.Status}
	}
	return nil
}

// detach gives the record at this offset a row of its own, standing where it stands.
func (c *Change) detach(p *Part, offset int32, status Status, remaining int16) *job {
	j := &job{isNew: true, FlowJob: db.FlowJob{
		BatchID: p.BatchID, Position: p.First + int64(offset), SliceNo: p.SliceNo, DetachedStep: p.StepNo,
		StepNo:    p.StepNo,
		Remaining: remaining, Status: status, Attempts: max(p.Attempt, 1), UpdatedAt: c.Now, StartedAt: &c.Now,
	}}
	c.jobs[p.key(offset)] = j
	c.slice(sliceKey{p.BatchID, p.SliceNo}).detached++
	return j
}

// moveJob changes a job's status, in its row and in its slice's counters. In a stopped batch what would wait again
// will never be sent; its slice keeps counting it as waiting.
func (c *Change) moveJob(j *job, to Status) {
	h := c.heads[j.BatchID]
	if (to == Failed || to == Rejected) && !h.fails(j.Status) {
		to, j.Error = Unprocessed, nil
	}
	counted := func(s Status) Status {
		if h.stopped() && s == Unprocessed {
			return Queued
		}
		return s
	}
	c.slice(sliceKey{j.BatchID, j.SliceNo}).counts.move(counted(j.Status), counted(to), 1)
	if h.stopped() && to == Queued {
		to = Unprocessed
	}
	j.Status = to
}

// failJob ends a job that failed.
func (c *Change) failJob(j *job, e *JobError) {
	j.Error = new(errorText(e))
	c.moveJob(j, Failed)
}

// againJob queues the task of the part again for this job alone.
func (c *Change) againJob(j *job, p *Part, e *Exception) {
	if c.heads[j.BatchID].stopped() {
		return
	}
	again := *p
	again.ID, again.Detached, again.From, again.To, again.LeftOut = 0, true, e.Offset, e.Offset+1, nil
	again.Attempt = p.Attempt + 1
	if e.Kind == TraceElement {
		again.Element, again.Attempt = p.Element+1, 1
	}
	j.Attempts = max(j.Attempts, again.Attempt)
	c.coverAdd(&again, Queued)
	c.enqueue(again, 1, e.RetryAt)
}

// advanceJob moves a job whose step is over to its end or to its next step. ended is where a job ends whose last step
// is over.
func (c *Change) advanceJob(j *job, first int64, ended Status) {
	h := c.heads[j.BatchID]
	switch {
	case j.Doomed != nil:
		c.moveJob(j, *j.Doomed)
		j.Doomed = nil
	case h.last(j.StepNo):
		c.moveJob(j, ended)
	default:
		c.moveJob(j, Queued)
		if h.stopped() {
			return
		}
		j.StepNo++
		step := &h.plan.Steps[j.StepNo]
		if entryState(step) == sliceReady {
			j.Ready = true
			c.wakeBatch(DueSlices, j.BatchID)
			return
		}
		c.queueJob(j, first, callTasks(step))
	}
}

// queueJob queues the tasks that make calls of the job's step.
func (c *Change) queueJob(j *job, first int64, tasks []int16) {
	j.Remaining = int16(len(tasks))
	offset := int32(j.Position - first)
	for _, t := range tasks {
		c.enqueue(Part{BatchID: j.BatchID, StepNo: j.StepNo, TaskNo: t, SliceNo: j.SliceNo, First: first, From: offset,
			To:       offset + 1,
			Detached: true, Attempt: 1}, 1, immediately)
	}
}

// sortedJobs returns the jobs in the order of their key: rows that are written so lie so, and indexes grow at one end.
func sortedJobs(m map[jobKey]*job) []*job {
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
		for i, s := range between(j.stored, j.Status) {
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

func addJob(up *db.JobUpdateParams, j *job, status Status) {
	up.BatchIds, up.Positions = append(up.BatchIds, j.BatchID), append(up.Positions, j.Position)
	up.StepNos, up.Remaining = append(up.StepNos, j.StepNo), append(up.Remaining, j.Remaining)
	up.Statuses, up.Readies = append(up.Statuses, string(status)), append(up.Readies, j.Ready)
	up.Doomed, up.Attempts = append(up.Doomed, string(deref(j.Doomed))), append(up.Attempts, j.Attempts)
	up.Errors = append(up.Errors, deref(j.Error))
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
