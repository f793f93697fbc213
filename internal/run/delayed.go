package run

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// SpansLoss reports whether the record at this offset waited before the step for longer than the loss of ReadLossSpans:
// then it did not come to the step in the lost time.
func (r *Records) SpansLoss(offset int32) bool { return r.spansLoss != nil && r.spansLoss[offset] }

// ReadLossSpans finds out which records of slices waited in steps before this one for so long that they cannot have
// come to it in the time that a restore has lost. Waits that something else than the time can end prove nothing.
func (s *Service) ReadLossSpans(ctx context.Context, conn db.DBTX, b *Batch, recs []*Records, step int16,
	loss *pg.Loss) error {
	if !delays(b, step) {
		return nil
	}
	in := db.FragmentsReadParams{Small: math.MaxInt32}
	for _, r := range recs {
		in.BatchIds, in.SliceNos, in.FromSteps = append(in.BatchIds, b.ID), append(in.SliceNos, r.No),
			append(in.FromSteps, 0)
	}
	bodies, err := batch.ReadFragments(ctx, conn, db.InheritedReadParams{}, in)
	if err != nil {
		return err
	}
	for _, r := range recs {
		r.spansLoss = make([]bool, len(r.Rows))
		none := func(int32, int32) bool { return false }
		err := batch.DecodeFragments(bodies[batch.SliceKey{Batch: b.ID, No: r.No}], int32(len(r.Rows)), none,
			batch.DecodeWhole,
			func(no, task int16, t *batch.Entry) {
				if no < step && b.Plan.Steps[no].Tasks[task].Action.Utility == delayUtility && spansLoss(t, loss) {
					t.Each(func(o int32) { r.spansLoss[o] = true })
				}
			})
		if err != nil {
			return fault.Wrap(err, "waits of slice %d of batch %s", r.No, b.ID)
		}
	}
	return nil
}

// delays reports whether a batch waits for a time before a step.
func delays(b *Batch, step int16) bool {
	for i := range b.Plan.Steps[:step] {
		for j := range b.Plan.Steps[i].Tasks {
			if b.Plan.Steps[i].Tasks[j].Action.Utility == delayUtility {
				return true
			}
		}
	}
	return false
}

// spansLoss reports whether an entry of a delay tells of one that was not over in the lost time: it had begun before
// and ended behind it, or takes longer than that.
func spansLoss(t *batch.Entry, loss *pg.Loss) bool {
	var out struct {
		Until time.Time `json:"waited_until"`
	}
	if t.Kind != batch.EntryOK || t.StartedAt == 0 || json.Unmarshal(t.Output, &out) != nil {
		return false
	}
	began := time.UnixMilli(t.StartedAt)
	return !began.After(loss.Until) && out.Until.After(loss.Until) || out.Until.Sub(began) > loss.Until.Sub(loss.Since)+
		time.Millisecond
}
