package batch

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Part is a range of a slice's records for one task: queued, or covered by a call. A stored part can go over several
// slices; it is then several of these, with one ID.
type Part struct {
	// ID names it in its batch; 0 where no queue and no call has it.
	ID      int64
	BatchID uuid.UUID
	// StepNo and TaskNo are numbers in the plan, from 0.
	StepNo, TaskNo int16
	// SliceNo is the number of the slice in its batch, from 0.
	SliceNo int32
	// Begins is the slice in which its row begins, which may lie before: with the batch and the ID it names the row.
	Begins int32
	// First is the position of the slice's first record.
	First int64
	// From and To are offsets in the slice, from 0; To is behind the last one.
	From, To int32
	// Size is how many records the slice has.
	Size int32
	// Detached marks one record that goes its own way.
	Detached bool
	// Attempt is which attempt of the task its next call is, from 1.
	Attempt int32
	// Element is the element of its task's for_each that the part is for, Elements how many there are: 0 where the
	// part, or what came of it, speaks of the task as a whole. At Elements, none is left to be called for.
	Element, Elements int32
	// LeftOut are the offsets within the range that left the slice before this step, ascending.
	LeftOut []int32
	// ClaimNo is the number of the change in which a call took it; 0 where nobody needs it.
	ClaimNo int64
	// QueuedAt is since when it could be claimed; zero for since its batch began.
	QueuedAt time.Time
	// KeyedSince is when the first call with the idempotency key of its record was claimed that may have arrived; zero
	// for none.
	KeyedSince time.Time
	// ReadyAt is from when on it may be claimed, where it waited for a time, or was in a call before; zero for at once.
	ReadyAt time.Time
}

// Records returns how many records the part holds.
func (p *Part) Records() int32 { return p.To - p.From - int32(len(p.LeftOut)) }

// Slice is that of its records.
func (p *Part) Slice() SliceKey { return SliceKey{p.BatchID, p.SliceNo} }

// Key is that of the record at an offset.
func (p *Part) Key(offset int32) JobKey { return JobKey{p.BatchID, p.First + int64(offset)} }

// Offsets returns the offsets of the part's records, ascending.
func (p *Part) Offsets() []int32 {
	out := make([]int32, 0, p.Records())
	p.Each(func(o int32) { out = append(out, o) })
	return out
}

// Each calls do with every offset of the part.
func (p *Part) Each(do func(o int32)) { EachOffset(p.From, p.To, p.LeftOut, do) }

// EachOffset calls do with the offsets from one to another but for those left out, which ascend.
func EachOffset(from, to int32, left []int32, do func(o int32)) {
	for o := from; o < to; o++ {
		if len(left) > 0 && left[0] == o {
			left = left[1:]
			continue
		}
		do(o)
	}
}

// JobID names a record of a batch.
func JobID(batchID uuid.UUID, position int64) string {
	return fmt.Sprintf("%s.%d", batchID, position)
}

// SliceKey names a slice of a batch.
type SliceKey struct {
	Batch uuid.UUID
	No    int32
}

// Compare orders slices by their batches, then by their numbers.
func (k SliceKey) Compare(o SliceKey) int {
	return cmp.Or(bytes.Compare(k.Batch[:], o.Batch[:]), cmp.Compare(k.No, o.No))
}

// JobKey names a record of a batch by its position.
type JobKey struct {
	Batch    uuid.UUID
	Position int64
}
