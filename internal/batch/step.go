package batch

import (
	"slices"

	"flowlane/internal/definition"
)

// FinalStatus returns the status in which a record ends that passed the whole plan.
func FinalStatus(plan *definition.Plan) Status {
	last := plan.Steps[len(plan.Steps)-1]
	if len(last.Tasks) == 1 && last.Tasks[0].Action.Bulk {
		return Accepted
	}
	return Completed
}

// CallTasks returns the numbers of the step's tasks that make calls.
func CallTasks(step *definition.Step) []int16 { return tasksThat(step, true) }

// LocalTasks returns the numbers of the step's tasks that are carried out in process.
func LocalTasks(step *definition.Step) []int16 { return tasksThat(step, false) }

func tasksThat(step *definition.Step, call bool) []int16 {
	var out []int16
	for i := range step.Tasks {
		if (step.Tasks[i].Action.Call != nil) == call {
			out = append(out, int16(i))
		}
	}
	return out
}

// EntryState returns the state in which a slice enters a step. Records are checked where in-process work is done.
func EntryState(step *definition.Step) string {
	if step.Input == nil && len(LocalTasks(step)) == 0 {
		return SliceCalling
	}
	return SliceReady
}

// The states of a slice.
const (
	SliceStaged  = "staged"
	SliceReady   = "ready"
	SliceWaiting = "waiting"
	SliceCalling = "calling"
	SliceDone    = "done"
)

// Undone returns those of the tasks that are not in a set of tasks, bits by number.
func Undone(tasks []int16, done int64) []int16 {
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

// Keyed reports whether calls of the step can carry idempotency keys.
func Keyed(step *definition.Step) bool {
	return slices.ContainsFunc(step.Tasks, func(t definition.Task) bool { return t.Keyed() })
}

// ResumeState returns the state in which a slice enters a step of which some tasks were done before.
func ResumeState(step *definition.Step, done int64) string {
	if done == 0 {
		return EntryState(step)
	}
	// else in-process work finds that all is done
	if len(Undone(LocalTasks(step), done)) == 0 && len(Undone(CallTasks(step), done)) > 0 {
		return SliceCalling
	}
	return SliceReady
}
