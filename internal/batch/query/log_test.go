package query

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/platform/catalog"
)

func logPlan(steps, tasks int) *definition.Plan {
	call := &catalog.Action{ID: "call", Call: &catalog.Call{}}
	plan := &definition.Plan{}
	for range steps {
		step := definition.Step{ID: "s"}
		for range tasks {
			step.Tasks = append(step.Tasks, definition.Task{ID: "t", Action: call})
		}
		plan.Steps = append(plan.Steps, step)
	}
	return plan
}

// TestLog_Grows: whatever the facts are, a log of more of them begins with the log of fewer, and from any entry on a
// reader gets the same as whoever read all.
func TestLog_Grows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps, tasks := rapid.IntRange(1, 3).Draw(rt, "steps"), rapid.IntRange(1, 3).Draw(rt, "tasks")
		plan, began := logPlan(steps, tasks), time.Unix(1_700_000_000, 0)
		var facts []fact
		for no := int64(1); no <= 12; no++ {
			f := fact{no: no, task: int16(rapid.IntRange(0, tasks-1).Draw(rt, "task")), attempt: 1,
				at: began.Add(time.Duration(no) * time.Second), called: true}
			if n := len(facts); n > 0 {
				f.step = facts[n-1].step
			}
			if int(f.step) < steps-1 && rapid.IntRange(0, 3).Draw(rt, "next") == 0 {
				f.step++
			}
			if f.kind = rapid.SampledFrom([]string{"", batch.EntryOK, batch.EntrySkipped, batch.EntryFailed,
				batch.EntryRetry, batch.EntryRequeued, batch.EntryUnknown, batch.EntryUnknown}).Draw(rt, "kind"); f.kind == "" {
				f.claim, f.called = true, false
			}
			facts = append(facts, f)
		}
		var before []Event
		for n := range len(facts) + 1 {
			s := logInputs{plan: plan, began: began, queued: began, status: batch.Started, facts: slices.Clone(facts[:n])}
			// BatchScope are found by task, not in the order in which they came.
			slices.SortStableFunc(s.facts, func(a, b fact) int { return int(a.task) - int(b.task) })
			log := s.log()
			require.GreaterOrEqual(rt, len(log.Events), len(before))
			require.Equal(rt, before, append([]Event(nil), log.Events[:len(before)]...))
			before = log.Events
			require.False(rt, log.Closed())
			s.status, s.over, s.facts = batch.Failed, began.Add(time.Hour), slices.Clone(s.facts)
			over := s.log()
			require.True(rt, over.Closed())
			require.Equal(rt, before, over.Events[:len(before)])
			for i, e := range over.Events {
				require.EqualValues(rt, entryQueued+i, e.No)
				require.Equal(rt, over.Events[i+1:], over.After(e.No))
			}
			require.Equal(rt, over.Events, over.After(entryBegun))
		}
	})
}

// TestLog_Staged has room for what a record that is not released may still become.
func TestLog_Staged(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	s := logInputs{plan: logPlan(1, 1), began: began, queued: began.Add(time.Hour), staged: true, status: batch.Staged}
	assert.Equal(t, Log{Last: entryBegun}, s.log())
	s.staged, s.status = false, batch.Queued
	assert.Equal(t, Log{Last: entryQueued, Events: []Event{{No: entryQueued, Kind: EventJobStatus, At: s.queued,
		Status: "queued"}}}, s.log())
	s.staged, s.status, s.over = true, batch.Unprocessed, began.Add(time.Minute)
	var kinds []string
	log := s.log()
	for _, e := range log.After(entryBegun) {
		kinds = append(kinds, string(e.Kind)+" "+e.Status)
		assert.Equal(t, s.over, e.At)
		assert.Greater(t, e.No, int64(entryQueued))
	}
	assert.Equal(t, []string{"job.status unprocessed", "execution.status cancelled", "execution.closed cancelled"},
		kinds)
}

// TestLog_Before: a step of which an earlier batch did some tasks is over with the others, and nothing tells of those
// again.
func TestLog_Before(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	s := logInputs{plan: logPlan(2, 3), began: at, queued: at, status: batch.Queued,
		before: []fact{{task: 2, kind: batch.EntrySkipped}, {task: 0, kind: batch.EntryOK, called: true}},
		facts: []fact{{task: 1, no: 1, claim: true, attempt: 1}, {task: 1, no: 2, kind: batch.EntryOK, called: true,
			attempt: 1}, {step: 1, no: 3, claim: true, attempt: 1}}}
	var told []string
	for _, e := range s.log().Events {
		told = append(told, string(e.Kind)+" "+e.Status)
	}
	assert.Equal(t, []string{"job.status queued", "execution.status running", "step.started running",
		"task.attempt running", "job.status started",
		"task.attempt completed", "step.completed completed", "job.status queued", "step.started running",
		"task.attempt running", "job.status started"}, told)
}
