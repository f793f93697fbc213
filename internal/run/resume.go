package run

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
)

// isDone reports whether a set of tasks, bits by number, has a task.
func isDone(done int64, task int) bool { return done>>task&1 == 1 }

// undone returns those of the tasks that are not in a set of tasks.
func undone(tasks []int16, done int64) []int16 {
	if done == 0 {
		return tasks
	}
	var out []int16
	for _, t := range tasks {
		if !isDone(done, int(t)) {
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
	for i := range step.Tasks {
		if step.Tasks[i].Action.Call == nil && !isDone(done, i) {
			return sliceReady
		}
	}
	return sliceCalling
}

// resumePoint is where a record that is over goes on if it is tried again: at the step at which it stands, without the tasks
// of that step that came out well.
type resumePoint struct {
	step int16
	done int64
}

// resumePoints returns where the wanted records of the slice would go on, by offset.
func (v *sliceView) resumePoints(wanted []bool) ([]resumePoint, error) {
	out := make([]resumePoint, v.records)
	for o := range v.records {
		out[o].step = v.step
		if j := v.jobs[o]; j != nil {
			out[o].step = j.StepNo
		}
		if out[o].step == v.firstStep {
			out[o].done = v.tasksDone
		}
	}
	err := v.traces(wanted, func(step, task int16, t *Trace) {
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

// openToResume opens as many of these slices as fit into memory, with the fragments that resumePoints needs.
func (b *batchView) openToResume(ctx context.Context, s *Service, tx pgx.Tx, rows []sliceRow) ([]*sliceView, error) {
	nos := make([]int32, len(rows))
	from := int16(noTraces)
	for i, r := range rows {
		nos[i] = r.no
		from = min(from, r.step)
	}
	first, err := s.q.JobsFirstStep(ctx, tx, db.JobsFirstStepParams{BatchID: b.FlowBatch.ID, SliceNos: nos})
	if err != nil {
		return nil, fmt.Errorf("read jobs of batch %s: %w", b.FlowBatch.ID, err)
	}
	from = min(from, first)
	return s.openFitting(ctx, tx, b.views(rows), fragmentsFrom{own: from, inherited: noTraces}, false)
}
