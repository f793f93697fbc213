package batch

import (
	"slices"
	"time"

	"flowlane/gen/db"
)

// Coverage is the parts of one slice: which of its records wait for, or are in, a call of which task.
type Coverage struct {
	Parts []CoveringPart
}

// CoveringPart is a part of a slice, with what the call that has it says of its records.
type CoveringPart struct {
	Part
	State Status // Queued, Started, NeedsReconcile or Unresolved
	// ClaimedAt is when the call was made that covers it; nil for none.
	ClaimedAt *time.Time
	Unknown   UnknownOutcome
}

// Concerns reports whether the part speaks of the record at this offset. A record that left its slice at detachedStep
// still belongs to the slice's parts of that step; withSlice is one that did not leave.
func (p *CoveringPart) Concerns(offset int32, detachedStep int16) bool {
	own := p.Detached == (detachedStep != WithSlice) || (!p.Detached && detachedStep == p.StepNo)
	return own && offset >= p.From && offset < p.To && !slices.Contains(p.LeftOut, offset)
}

// StatusOfCall returns the status that a call's state gives the records that it covers; "" stands for no call.
func StatusOfCall(callState *string) Status {
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

// PartOfRow returns a part as stored. What is its slice's (First, Size), and Elements, is not set.
func PartOfRow(r *db.PartsOfSlicesRow) Part {
	return Part{ID: r.ID, BatchID: r.BatchID, StepNo: r.StepNo, TaskNo: r.TaskNo,
		SliceNo: r.SliceNo, Begins: r.Begins, From: r.FromOff, To: r.ToOff,
		Detached: r.Detached, Attempt: r.Attempt, Element: r.Element, LeftOut: r.LeftOut, ClaimNo: r.ClaimNo}
}

// WithSlice stands for the detached step of a record that is with its slice.
const WithSlice = -2

// StatusAt returns where the record at this offset stands by its parts of one step, and how many these are.
// What is worst known wins: nobody knows, before under way, before waiting.
func (c *Coverage) StatusAt(step int16, offset int32, detachedStep int16) (s Status, parts int16) {
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.StepNo != step || !p.Concerns(offset, detachedStep) {
			continue
		}
		if parts++; parts == 1 || Rank(p.State) > Rank(s) {
			s = p.State
		}
	}
	return s, parts
}

// Current is status of a record with tasks that are not settled: one that no part covers waits, or would but for a
// cancel.
func (c *Coverage) Current(step int16, offset int32, detachedStep int16) Status {
	if s, parts := c.StatusAt(step, offset, detachedStep); parts > 0 {
		return s
	}
	return Queued
}

// Remove takes out the part of this id, which is settled.
func (c *Coverage) Remove(id int64) {
	c.Parts = slices.DeleteFunc(c.Parts, func(p CoveringPart) bool { return p.ID == id })
}

// Rank orders the statuses of records that have several parts: the one of the highest rank is shown.
func Rank(s Status) int {
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
