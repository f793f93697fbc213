package torture_test

import (
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// The clock of the database steps ahead and back, again and again, while calls are under way, some of them cut. The
// platform's goes on.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	w := setup(t, 4)
	w.stepped = true
	w.front.delay = 20 * time.Millisecond
	s := newStorm(w)
	for _, operation := range []string{"upload", "upload_async"} {
		for _, f := range []dialersim.Fault{
			{Kind: "cut_after_accept", Probability: 0.05}, {Kind: "cut_before", Probability: 0.05},
			{Kind: "hang", Probability: 0.03, Accept: true, MS: 4000},
			{Kind: "hang", Probability: 0.03, MS: 4000},
		} {
			f.Operation = operation
			w.sim.AddFault(f)
		}
	}
	both := []*process{w.serve(hasty).ready(w), w.serve(hasty).ready(w)}
	steps, behind := 1+kills(t)/2, time.Duration(0)
	for range steps {
		s.keep(30, w.between(300*time.Millisecond, 1500*time.Millisecond))
		step := w.between(2*time.Second, 2*time.Minute)
		if w.random.IntN(2) > 0 {
			step = -step
		}
		pgtest.StepClock(t, w.pool, step)
		behind = max(0, behind-step)
	}
	w.sim.ClearFaults()
	// What was to happen by the clock as it was, such as the end of a hold, happens.
	pgtest.StepClock(t, w.pool, behind)
	s.check(2 * time.Minute)
	for _, p := range both {
		p.kill()
	}
	sum := w.tally()
	t.Logf("%d steps; %d batches, %d records, %d calls", steps+1, len(w.batches), s.records, sum.Calls)
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries", sum.Unknown, sum.Found,
		sum.NotFound, sum.Retries)
	if sum.Unknown == 0 {
		t.Error("no call had an unknown outcome: the test shows nothing")
	}
}
