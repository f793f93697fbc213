package run

import (
	"context"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
)

// undone returns those of the tasks that are not in a set of tasks, bits by number.
func undone(tasks []int16, done int64) []int16 {
	if done == 0 {
		return tasks
	}
	var out []int16
	for _, t := range tasks {
		if done>>t&1 == 0 {
			out = append(out, t)
		}
	}
	return out
}

// resumeState returns the state in which a slice enters a step of which some tasks were done before.
func resumeState(step *definition.Step, done int64) string {
	if done == 0 {
		return entryState(step)
	}
	if len(undone(localTasks(step), done)) == 0 && len(undone(callTasks(step), done)) > 0 { // else in-process work finds that all is done
		return sliceCalling
	}
	return sliceReady
}

// resumePoint is where a record that is over goes on if it is tried again: at the step at which it stands, without the tasks
// of that step that came out well.
type resumePoint struct {
	step int16
	done int64
}

// resumePoints returns where the wanted records of the slice would go on, by offset.
func (v *sliceView) resumePoints(wanted []bool) ([]resumePoint, error) {
	out := make([]resumePoint, v.Records)
	if v.batch.anew() {
		return out, nil
	}
	for o := range v.Records {
		out[o].step = v.stepOf(o)
		if out[o].step == v.FirstStep {
			out[o].done = v.TasksDone
		}
	}
	err := v.traces(func(_ int16, line []byte) (Trace, error) { return decodeTraceHead(line) }, wanted, func(step, task int16, t *Trace) {
		if t.inherited || !t.decides() {
			return
		}
		passes := t.Kind == TraceOK || t.Kind == TraceSkipped || v.batch.plan.Steps[step].Tasks[task].ContinueOnError
		t.each(func(o int32) {
			if out[o].step != step {
				return
			}
			if passes {
				out[o].done |= 1 << task
			} else {
				out[o].done &^= 1 << task
			}
		})
	})
	if err != nil {
		return nil, err
	}
	for o := range out {
		// A record can stand at the end of a step because its batch was cancelled before it could go on.
		if p := &out[o]; p.done == 1<<len(v.batch.plan.Steps[p.step].Tasks)-1 && p.step < v.batch.lastStep() {
			*p = resumePoint{step: p.step + 1}
		}
	}
	return out, nil
}

// openToResume opens as many of these slices as fit into memory, with what resumePoints needs. Where they were looked for by the
// statuses that are wanted, one that has no others is not read at all if its records can only begin anew. errors reads
// why records failed, and so every slice.
func (b *batchView) openToResume(ctx context.Context, s *Service, tx pgx.Tx, views []*sliceView, onlyWanted, errors bool,
) ([]*sliceView, error) {
	need := needs{inherited: noTraces, bare: !errors}
	onlyWanted = onlyWanted && !errors
	switch {
	case b.anew():
		need.own = noTraces
	case b.lastStep() > 0:
		var err error
		if need.own, err = b.firstStep(ctx, s, tx, views); err != nil {
			return nil, err
		}
	}
	for _, v := range views {
		v.needs, v.wanted = need, onlyWanted && b.anew() && v.matching == int64(v.Records)
	}
	n := 1
	for n < len(views) && views[n].wanted == views[0].wanted {
		n++
	}
	if views[0].wanted {
		return views[:n], nil
	}
	return s.openFitting(ctx, tx, views[:n], false)
}

// anew reports whether whatever is tried again begins anew: nothing comes before or beside the only task, and that is a call. The
// in-process work of a record can be done while others of its slice still wait for theirs.
func (b *batchView) anew() bool {
	return len(b.plan.Steps) == 1 && len(b.plan.Steps[0].Tasks) == 1 && b.plan.Steps[0].Tasks[0].Action.Call != nil
}

// firstStep is the first at which a record of these slices stands.
func (b *batchView) firstStep(ctx context.Context, s *Service, tx pgx.Tx, views []*sliceView) (int16, error) {
	nos := make([]int32, len(views))
	from := b.lastStep()
	for i, v := range views {
		nos[i] = v.No
		from = min(from, v.StepNo)
	}
	first, err := s.q.JobsFirstStep(ctx, tx, db.JobsFirstStepParams{BatchID: b.FlowBatch.ID, SliceNos: nos})
	return min(from, first), wrap(err, "read jobs of batch %s", b.FlowBatch.ID)
}
