package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
)

// ResumePoint is where a record that is over goes on if it is tried again: at the step at which it stands, without the
// tasks of that step that came out well.
type ResumePoint struct {
	Step int16
	Done int64
	// kept are those of the other tasks, as bits by number, that keep their idempotency keys: a call with one may have
	// arrived.
	Kept int64
}

// ResumePoints returns where the wanted records of the slice would go on, by offset.
func (v *Slice) ResumePoints(wanted []bool) ([]ResumePoint, error) {
	out := make([]ResumePoint, v.Records)
	if v.Batch.anew() {
		return out, nil
	}
	for o := range v.Records {
		out[o].Step = v.StepOf(o)
		if out[o].Step == v.FirstStep {
			out[o].Done, out[o].Kept = v.TasksDone, v.kept
		}
	}
	err := v.entries(v.Batch.decodeToResume, wanted, func(step, task int16, t *batch.Entry) {
		if t.Inherited {
			return
		}
		if of := &v.Batch.Plan.Steps[step].Tasks[task]; of.Keyed() {
			t.Each(func(o int32) {
				if out[o].Step == step {
					out[o].keep(task, of, t)
				}
			})
		}
		if !t.Decides() {
			return
		}
		passes := t.Kind == batch.EntryOK || t.Kind == batch.EntrySkipped ||
			v.Batch.Plan.Steps[step].Tasks[task].ContinueOnError
		t.Each(func(o int32) {
			if out[o].Step != step {
				return
			}
			if passes {
				out[o].Done |= 1 << task
			} else {
				out[o].Done &^= 1 << task
			}
		})
	})
	if err != nil {
		return nil, err
	}
	for o := range out {
		// A record can stand at the end of a step because its batch was cancelled before it could go on.
		p := &out[o]
		p.Kept &^= p.Done
		if p.Done == 1<<len(v.Batch.Plan.Steps[p.Step].Tasks)-1 && p.Step < v.Batch.lastStep() {
			*p = ResumePoint{Step: p.Step + 1}
		}
	}
	return out, nil
}

// keep notes what an entry of a task says of its key. What may have arrived must come again under the same key, and
// what was refused under another one, because providers repeat the refusals that they remember. The elements of a
// for_each begin anew together: once one of them may have arrived, all keep their keys.
func (p *ResumePoint) keep(no int16, task *definition.Task, t *batch.Entry) {
	switch {
	case t.Kind == batch.EntryUnknown, t.Kind == batch.EntryElement, t.Error != nil &&
		t.Error.Code == batch.CodeUnknown:
		p.Kept |= 1 << no
	case t.Refused && task.ForEach == nil:
		p.Kept &^= 1 << no
	}
}

// decodeToResume reads of an entry what resumePoints needs.
func (b *Batch) decodeToResume(step int16, line []byte) (batch.Entry, error) {
	if batch.Keyed(&b.Plan.Steps[step]) {
		return batch.DecodeLight(step, line)
	}
	return batch.DecodeHead(line)
}

// OpenToResume opens as many of these slices as fit into memory, with what resumePoints needs. Where they were looked
// for by the statuses that are wanted, one that has no others is not read at all if its records can only begin anew.
// errors reads why records failed, and so every slice.
func (b *Batch) OpenToResume(ctx context.Context, s *Reader, tx pgx.Tx, views []*Slice,
	onlyWanted, errors bool,
) ([]*Slice, error) {
	need := Needs{Inherited: NoFragments, bare: !errors}
	onlyWanted = onlyWanted && !errors
	switch {
	case b.anew():
		need.Own = NoFragments
	case b.lastStep() > 0:
		var err error
		if need.Own, err = b.firstStep(ctx, s, tx, views); err != nil {
			return nil, err
		}
	}
	for _, v := range views {
		v.needs, v.Wanted = need, onlyWanted && b.anew() && v.matching == int64(v.Records)
	}
	n := 1
	for n < len(views) && views[n].Wanted == views[0].Wanted {
		n++
	}
	if views[0].Wanted {
		return views[:n], nil
	}
	opened, err := s.openFitting(ctx, tx, views[:n], false)
	if err != nil {
		return nil, err
	}
	return opened, b.readKept(ctx, s, tx, opened)
}

// readKept reads which tasks of slices of a retry keep their keys.
func (b *Batch) readKept(ctx context.Context, s *Reader, tx pgx.Tx, views []*Slice) error {
	if !b.retry() {
		return nil
	}
	in, byNo := db.KeptKeysParams{BatchID: b.FlowBatch.ID, StepNo: -1}, map[int32]*Slice{}
	for _, v := range views {
		in.SliceNos, byNo[v.No] = append(in.SliceNos, v.No), v
	}
	rows, err := s.q.KeptKeys(ctx, tx, in)
	for _, r := range rows {
		byNo[r.SliceNo].kept |= 1 << r.TaskNo
	}
	return fault.Wrap(err, "read the keys that batch %s keeps", b.FlowBatch.ID)
}

// anew reports whether whatever is tried again begins anew: nothing comes before or beside the only task, and that is a
// call without a key. The in-process work of a record can be done while others of its slice still wait for theirs.
func (b *Batch) anew() bool {
	if len(b.Plan.Steps) > 1 || len(b.Plan.Steps[0].Tasks) > 1 {
		return false
	}
	only := &b.Plan.Steps[0].Tasks[0]
	return only.Action.Call != nil && !only.Keyed()
}

// firstStep is the first at which a record of these slices stands.
func (b *Batch) firstStep(ctx context.Context, s *Reader, tx pgx.Tx, views []*Slice) (int16, error) {
	nos := make([]int32, len(views))
	from := b.lastStep()
	for i, v := range views {
		nos[i] = v.No
		from = min(from, v.StepNo)
	}
	first, err := s.q.JobsFirstStep(ctx, tx, db.JobsFirstStepParams{BatchID: b.FlowBatch.ID, SliceNos: nos})
	return min(from, first), fault.Wrap(err, "read jobs of batch %s", b.FlowBatch.ID)
}
