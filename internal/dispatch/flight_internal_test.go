package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/memory"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// What other processes may have under way takes room as our own calls do: of the organization, and of the lane.
func TestFlight_Others(t *testing.T) {
	t.Parallel()
	d := New(Deps{}, Options{})
	f := d.join(budgetKey{"http://receiver.example", "calls"})
	org, other := uuid.New(), uuid.New()
	bulk, backfill := quota.LaneKey{Org: org, Lane: db.FlowLaneBulk}, quota.LaneKey{Org: org, Lane: db.FlowLaneBackfill}
	assert.False(t, d.flights.full(f.key, org), "nobody knows yet how many may be under way")
	f.besides([]db.CallsOfOthersRow{{OrgID: org, Lane: db.FlowLaneBulk, Calls: 3}, {OrgID: other, Lane: db.FlowLaneBulk,
		Calls: 9}}, 9)
	assert.False(t, d.flights.full(f.key, org))
	assert.True(t, d.flights.full(f.key, other))
	assert.False(t, d.flights.full(budgetKey{"http://other.example", "calls"}, other))
	assert.Equal(t, 7, f.room(bulk, 10, 0), "of the organization")
	assert.Equal(t, 1, f.room(bulk, 10, 4), "of the lane")
	assert.Equal(t, 4, f.room(backfill, 10, 4), "of another lane")
	assert.Equal(t, 3, f.underWay(bulk))
	f.besides(nil, 9)
	assert.False(t, d.flights.full(f.key, other))
	assert.Equal(t, 10, f.room(bulk, 10, 0), "once they are over")
	assert.Zero(t, f.underWay(bulk))
}

// A request that breaks the code which sends it, or the code that settles it, ends neither the process nor the budget:
// it may have arrived.
func TestFlight_Panics(t *testing.T) {
	t.Parallel()
	d := New(Deps{}, Options{}) // whatever is sent by no sender panics
	f := d.join(budgetKey{"http://receiver.example", "calls"})
	answer := f.roundTrip(&outboundCall{})
	assert.Equal(t, provider.Maybe, answer.Sent)
	require.ErrorIs(t, answer.Err, errPanicked)
	assert.False(t, answer.FinishedAt.Before(answer.StartedAt))
	assert.ErrorContains(t, f.settleGroup([]finished{{&outboundCall{}, answer}}, false, false), "panic")
}

// A call that was rendered while an exclusive one is under way is kept, with its memory, for the pass that comes after
// that; for a while, since it may not come.
func TestFlight_Held(t *testing.T) {
	t.Parallel()
	d := New(Deps{}, Options{})
	f := d.join(budgetKey{"http://receiver.example", "calls"})
	budget := memory.New(memory.Least)
	call := func() *outboundCall {
		room, err := budget.Take(t.Context(), uuid.New(), 1000)
		require.NoError(t, err)
		return &outboundCall{queues: []queueKey{{batch: uuid.New()}}, request: provider.Request{Memory: room}}
	}
	one, two := call(), call()
	assert.False(t, f.keepRendered(one), "nothing is under way")
	exclusive := uuid.New()
	f.open[exclusive] = struct{}{}
	require.True(t, f.keepRendered(one))
	assert.False(t, f.keepRendered(two), "one is held")
	assert.Empty(t, f.takeRendered(map[queueKey]bool{one.queues[0]: true}), "its queue is blocked")
	assert.Equal(t, []*outboundCall{one}, f.takeRendered(nil))
	assert.Empty(t, f.takeRendered(nil))
	letGo([]*outboundCall{one})

	require.True(t, f.keepRendered(two))
	delete(f.open, exclusive)
	f.leave(t.Context(), false, 0)
	require.Same(t, f, d.join(f.key), "the pass that comes for it")
	assert.Equal(t, []*outboundCall{two}, f.takeRendered(nil))
	letGo([]*outboundCall{two})

	three := call()
	f.open[exclusive] = struct{}{}
	require.True(t, f.keepRendered(three))
	delete(f.open, exclusive)
	f.leave(t.Context(), false, 0)
	f.letRenderedGo(three) // as its timer does
	held, _ := budget.Held()
	assert.Zero(t, held)
	assert.NotSame(t, f, d.join(f.key), "nobody came for it")
}

// The settlement of a call waits for others unless something goes on after it, or nobody could find out what became of
// the call.
func TestAnswered_MayWait(t *testing.T) {
	t.Parallel()
	call := func(change func(*outboundCall, *run.Batch)) *answered {
		plan := &definition.Plan{Steps: []definition.Step{{ID: "first", Tasks: make([]definition.Task, 1)}, {ID: "last",
			Tasks: make([]definition.Task, 1)}}}
		b := &run.Batch{Plan: plan}
		step := &plan.Steps[1]
		p := &outboundCall{r: &renderer{batch: b, step: step, task: &step.Tasks[0]}, check: catalog.CheckSafe}
		change(p, b)
		return &answered{outcomes: []outcome{{call: p}}}
	}
	plain := func(*outboundCall, *run.Batch) {}
	assert.Equal(t, settleWithin, call(plain).mayWait(false))
	assert.Zero(t, call(plain).mayWait(true), "a pass waits")
	for why, change := range map[string]func(*outboundCall, *run.Batch){
		"the batch has a next step": func(p *outboundCall, b *run.Batch) { p.r.step = &b.Plan.Steps[0] },
		"the record has elements":   func(p *outboundCall, _ *run.Batch) { p.r.task.ForEach = &expr.List{} },
		"it must not be repeated":   func(p *outboundCall, _ *run.Batch) { p.check = catalog.CheckNone },
		"who is asked is not the receiver": func(p *outboundCall, _ *run.Batch) {
			p.check = catalog.CheckLookup
		},
		"it carries no record": func(p *outboundCall, _ *run.Batch) { p.serviceCall = true },
	} {
		assert.Zero(t, call(change).mayWait(false), why)
		both := call(plain)
		both.outcomes = append(both.outcomes, call(change).outcomes...)
		assert.Zero(t, both.mayWait(false), why)
	}
}

// An answer after which something goes on does not wait for the settlement before it, which waits for others.
func TestFlight_AwaitedAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Deps{}, Options{}) // whatever is sent by no sender panics
		served := make(chan int, 1)
		d.answered.Serve = func(group []*answered) { served <- len(group) }
		f := d.join(budgetKey{"http://receiver.example", "calls"})
		f.working = true
		began := time.Now()
		d.answered.AddWithin(&answered{}, 1, time.Second)
		f.send(&outboundCall{serviceCall: true})
		assert.Equal(t, 1, <-served)
		assert.Equal(t, began, time.Now())
	})
}

// A pass that begins to wait for a place has settlements under way that wait for others go on.
func TestFlight_Wants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Deps{}, Options{})
		served := make(chan int, 1)
		d.answered.Serve = func(group []*answered) { served <- len(group) }
		f := d.join(budgetKey{"http://receiver.example", "calls"})
		began := time.Now()
		d.answered.AddWithin(&answered{}, 1, time.Second)
		f.want(false)
		synctest.Wait()
		assert.Empty(t, served)
		f.want(true)
		assert.Equal(t, 1, <-served)
		assert.Equal(t, began, time.Now())
		_, waited, _ := f.gather()
		assert.True(t, waited)
		f.want(false)
		_, waited, _ = f.gather()
		assert.False(t, waited)
	})
}
