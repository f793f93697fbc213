package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// cover is the parts of one slice: which of its records wait for, or are in, a call of which task.
type cover struct {
	parts []coverPart
}

type coverPart struct {
	Part
	state Status // Queued, Started, NeedsReconcile or Unresolved
}

// partStatus returns the status that a call's state gives the records that it covers; "" stands for no call.
func partStatus(callState *string) Status {
	if callState == nil {
		return Queued
	}
	switch *callState {
	case "unknown":
		return NeedsReconcile
	case "unresolved":
		return Unresolved
	}
	return Started
}

func partOf(r *db.PartsOfSlicesRow) Part {
	return Part{ID: r.ID, BatchID: r.BatchID, StepNo: r.StepNo, TaskNo: r.TaskNo, SliceNo: r.SliceNo, From: r.FromOff, To: r.ToOff,
		Apart: r.Apart, Attempt: r.Attempt, Element: r.Element, LeftOut: r.LeftOut, ClaimNo: r.ClaimNo}
}

// withSlice stands for the apart step of a record that is with its slice.
const withSlice = -2

// covering returns the parts of a step that speak of the record at this offset. A record that left its slice at apartStep
// still belongs to the slice's parts of that step; withSlice is one that did not leave.
func (c *cover) covering(step int16, offset int32, apartStep int16) []coverPart {
	var out []coverPart
	for _, p := range c.parts {
		own := p.Apart == (apartStep != withSlice) || (!p.Apart && apartStep == step)
		if own && p.StepNo == step && offset >= p.From && offset < p.To && !slices.Contains(p.LeftOut, offset) {
			out = append(out, p)
		}
	}
	return out
}

// status returns where the record at this offset stands by its parts of one step; ok is false where none covers it.
// What is worst known wins: nobody knows, before under way, before waiting.
func (c *cover) status(step int16, offset int32, apartStep int16) (s Status, ok bool) {
	for _, p := range c.covering(step, offset, apartStep) {
		if !ok || rank(p.state) > rank(s) {
			s, ok = p.state, true
		}
	}
	return s, ok
}

// standing is status of a record with tasks that are not settled: one that no part covers waits, or would but for a cancel.
func (c *cover) standing(step int16, offset int32, apartStep int16) Status {
	if s, ok := c.status(step, offset, apartStep); ok {
		return s
	}
	return Queued
}

func (c *cover) remove(id int64) {
	c.parts = slices.DeleteFunc(c.parts, func(p coverPart) bool { return p.ID == id })
}

// each calls do with what the cover has of a stored part.
func (c *cover) each(id int64, do func(p *coverPart)) {
	for i := range c.parts {
		if c.parts[i].ID == id {
			do(&c.parts[i])
		}
	}
}

func rank(s Status) int {
	switch s {
	case Unresolved:
		return 4
	case NeedsReconcile:
		return 3
	case Started:
		return 2
	}
	return 1
}

// loadCovers reads the parts of the slices where records must be looked at one by one.
func (c *Change) loadCovers(ctx context.Context, keys []sliceKey) error {
	args := db.PartsOfSlicesParams{}
	for _, k := range keys {
		if c.covers[k] == nil {
			args.BatchIds = append(args.BatchIds, k.batch)
			args.SliceNos = append(args.SliceNos, k.no)
			c.covers[k] = &cover{}
		}
	}
	if len(args.SliceNos) == 0 {
		return nil
	}
	rows, err := c.s.q.PartsOfSlices(ctx, c.tx, args)
	if err != nil {
		return fmt.Errorf("read parts: %w", err)
	}
	for _, r := range rows {
		state := partStatus(r.CallState)
		if r.CallID != nil {
			if from, ok := c.moved[*r.CallID]; ok {
				state = from
			}
		}
		cov := c.covers[sliceKey{r.BatchID, r.SliceNo}]
		cov.parts = append(cov.parts, coverPart{partOf(&r), state})
	}
	return nil
}

// Doubtful is one record in a call of unknown outcome, alone in its part.
type Doubtful struct {
	Part   Part
	CallID uuid.UUID
	// From is where the call has the record: NeedsReconcile or Unresolved.
	From Status
}

// CutOut takes a record out of the parts that calls of unknown outcome hold of it and of others, so that it can be settled
// alone: one part for each of its tasks that is in doubt. The calls must be locked, and nothing else may have happened in the
// change yet. Faults: NotFound; Conflict where nothing about the record is in doubt.
func (c *Change) CutOut(ctx context.Context, orgID, batchID uuid.UUID, position int64) ([]Doubtful, error) {
	h := c.heads[batchID]
	if h == nil || h.OrgID != orgID {
		return nil, fault.Missing("Job")
	}
	r, err := c.s.sliceOf(ctx, c.tx, batchID, position, "Job")
	if err != nil {
		return nil, err
	}
	covering, status, err := c.coveringOf(ctx, h, r, position)
	if err != nil {
		return nil, err
	}
	var out []Doubtful
	for i := range covering {
		p := &covering[i]
		if p.state != NeedsReconcile && p.state != Unresolved {
			continue
		}
		p.First, p.Size = r.First, r.Records
		d, err := c.cut(ctx, &p.Part, int32(position-r.First))
		if err != nil {
			return nil, err
		}
		d.From = p.state
		out = append(out, *d)
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Conflict, "Job is %s; only a job that is needs_reconcile or unresolved can be resolved", status)
	}
	clear(c.covers) // they have the parts as they were
	return out, nil
}

// sliceOf reads the slice that holds the position of a thing. Fault: NotFound.
func (s *Service) sliceOf(ctx context.Context, conn db.DBTX, batchID uuid.UUID, position int64, thing string) (*db.SliceRowsRow, error) {
	no, err := s.q.SliceAt(ctx, conn, db.SliceAtParams{BatchID: batchID, Place: position})
	if err != nil {
		return nil, fmt.Errorf("find position %d of batch %s: %w", position, batchID, err)
	}
	row, err := s.sliceRow(ctx, conn, batchID, no)
	if err != nil && !pg.IsNoRows(err) {
		return nil, err
	}
	if row == nil || position < row.First || position >= row.First+int64(row.Records) {
		return nil, fault.Missing(thing)
	}
	return row, nil
}

// sliceRow reads one slice.
func (s *Service) sliceRow(ctx context.Context, conn db.DBTX, batchID uuid.UUID, no int32) (*db.SliceRowsRow, error) {
	rows, err := s.q.SliceRows(ctx, conn, db.SliceRowsParams{BatchID: batchID, Nos: []int32{no}})
	if err == nil && len(rows) != 1 {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return nil, fmt.Errorf("read slice %d of batch %s: %w", no, batchID, err)
	}
	return &rows[0], nil
}

// coveringOf returns the parts that speak of a record now, and where it stands.
func (c *Change) coveringOf(ctx context.Context, h *head, r *db.SliceRowsRow, position int64) ([]coverPart, Status, error) {
	k, at := sliceKey{h.ID, r.No}, jobKey{h.ID, position}
	if err := c.loadCovers(ctx, []sliceKey{k}); err != nil {
		return nil, "", err
	}
	if err := c.loadJobs(ctx, []jobKey{at}); err != nil {
		return nil, "", err
	}
	offset := int32(position - r.First)
	var covering []coverPart
	var status Status
	if j := c.jobs[at]; j != nil {
		covering, status = c.covers[k].covering(j.StepNo, offset, j.ApartStep), j.Status
	} else {
		covering = c.covers[k].covering(r.StepNo, offset, withSlice)
		status = baseStatus(h.plan, r.State, r.StepNo)
		if s, ok := c.covers[k].status(r.StepNo, offset, withSlice); ok {
			status = s
		}
	}
	if h.stopped() && unsent(status) {
		status = Unprocessed
	}
	return covering, status, nil
}

// cut puts one record of a stored part into a part of its own. All pieces are new rows: who read the old one must see that it
// is gone.
func (c *Change) cut(ctx context.Context, p *Part, offset int32) (*Doubtful, error) {
	old, err := c.s.q.PartTake(ctx, c.tx, p.ID)
	if err != nil {
		return nil, fmt.Errorf("take part %d out: %w", p.ID, err)
	}
	alone := *p
	alone.From, alone.To, alone.LeftOut = offset, offset+1, nil
	alone.ID, err = c.s.q.PartInsertCut(ctx, c.tx, db.PartInsertCutParams{BatchID: p.BatchID, StepNo: p.StepNo, TaskNo: p.TaskNo, SliceNo: p.SliceNo,
		FromOff: offset, ToOff: offset + 1, Apart: p.Apart, Attempt: old.Attempt, Element: old.Element, Elements: old.Elements,
		CallID: old.CallID, CallSeq: old.CallSeq, ClaimNo: old.ClaimNo})
	if err != nil {
		return nil, fmt.Errorf("cut a record out of part %d: %w", p.ID, err)
	}
	alone.Attempt, alone.Element, alone.Elements, alone.ClaimNo = old.Attempt, old.Element, old.Elements, deref(old.ClaimNo)
	around, err := c.around(ctx, &old, p, offset)
	if err != nil {
		return nil, err
	}
	if len(around.Froms) > 0 {
		if err := c.s.q.PartInsertClaimed(ctx, c.tx, around); err != nil {
			return nil, fmt.Errorf("insert the rest of part %d: %w", p.ID, err)
		}
	}
	return &Doubtful{Part: alone, CallID: *old.CallID}, nil
}

// around returns what a stored part holds before and after a record of one of its slices.
func (c *Change) around(ctx context.Context, old *db.PartTakeRow, p *Part, offset int32) (in db.PartInsertClaimedParams, err error) {
	add := func(no, from, last, to int32) {
		if no > last || no == last && from >= to {
			return
		}
		var leftOut []int32
		for _, o := range old.LeftOut { // only a part of one slice has any
			if o >= from && o < to {
				leftOut = append(leftOut, o)
			}
		}
		if no == last && len(leftOut) == int(to-from) {
			return
		}
		first, end := Part{BatchID: old.BatchID, StepNo: old.StepNo, TaskNo: old.TaskNo, SliceNo: no, From: from, To: to, Attempt: old.Attempt, LeftOut: leftOut},
			Part{SliceNo: last, To: to}
		addClaimed(&in, []*Piece{{Part: first, CallID: *old.CallID, Seq: deref(old.CallSeq)}, {Part: end}}, deref(old.ClaimNo))
	}
	switch {
	case offset > 0 || p.SliceNo == old.SliceNo:
		add(old.SliceNo, old.FromOff, p.SliceNo, offset)
	default: // the part before ends with the slice before
		before, err := c.s.sliceRow(ctx, c.tx, old.BatchID, p.SliceNo-1)
		if err != nil {
			return in, err
		}
		add(old.SliceNo, old.FromOff, before.No, before.Records)
	}
	if offset+1 == p.Size && p.SliceNo < old.LastNo {
		add(p.SliceNo+1, 0, old.LastNo, old.ToOff)
	} else {
		add(p.SliceNo, offset+1, old.LastNo, old.ToOff)
	}
	return in, nil
}

// EndRun ends the run of a job at a step: what comes now belongs to its next one.
func (c *Change) EndRun(ctx context.Context, batchID uuid.UUID, position int64, step int16, note *string) error {
	org := c.heads[batchID].OrgID
	err := c.s.q.EndedRunInsert(ctx, c.tx, db.EndedRunInsertParams{OrgID: org, BatchID: batchID, Position: position, StepNo: step, Note: note, EndedAt: c.Now})
	return wrap(err, "end the run of job %s", JobID(batchID, position))
}
