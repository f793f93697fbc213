package torture_test

import (
	"syscall"
	"testing"
	"time"
)

// Two processes are stopped at random moments, inside transactions too, for longer or shorter than their calls and
// leases last, and go on.
func TestPause(t *testing.T) {
	t.Parallel()
	w := setup(t, 4)
	w.late = true
	w.front.delay = 20 * time.Millisecond
	s := newStorm(w)
	both := []*process{w.serve(hasty).ready(w), w.serve(hasty).ready(w)}
	pauses, long := 1+kills(t)/2, 0
	for range pauses {
		s.keep(30, w.between(300*time.Millisecond, time.Second))
		p, d := both[w.random.IntN(2)], w.between(100*time.Millisecond, 3*time.Second)
		p.stop() // perhaps with locks in hand, so that nothing can be started here before it goes on
		pass(t.Context(), d)
		p.proceed()
		if d > hasty.timeout+hasty.margin {
			long++
		}
	}
	s.check(2 * time.Minute)
	for _, p := range both {
		p.kill()
	}
	sum := w.tally()
	t.Logf("%d stops, %d of them for longer than a call may take; %d batches, %d records, %d calls", pauses, long,
		len(w.batches), s.records, sum.Calls)
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries; %d bodies broke off",
		sum.Unknown, sum.Found, sum.NotFound,
		sum.Retries, w.front.broken.Load())
}

// A process that is asked to stop settles what is under way, within ten seconds.
func TestOrderlyStop(t *testing.T) {
	t.Parallel()
	w := setup(t, 3)
	w.front.delay = 20 * time.Millisecond
	s := newStorm(w)
	stops, longest := 2+kills(t)/10, time.Duration(0)
	for range stops {
		p := w.serve(patient).ready(w)
		s.keep(30, w.between(500*time.Millisecond, 2*time.Second))
		asked := time.Now()
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.ended:
		case <-time.After(60 * time.Second):
			t.Fatal("the process has not stopped within a minute")
		}
		longest = max(longest, time.Since(asked))
		if code := p.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the process ended with status %d", code)
		}
		if n := len(w.inFlight()); n > 0 {
			t.Errorf("%d calls were left under way", n)
		}
	}
	last := w.serve(patient)
	s.check(2 * time.Minute)
	last.kill()
	sum := w.tally()
	t.Logf("%d orderly stops, the longest took %s; %d batches, %d records, %d calls; %d unknown outcomes", stops,
		longest.Round(time.Millisecond),
		len(w.batches), s.records, sum.Calls, sum.Unknown)
	if longest > 10*time.Second {
		t.Errorf("a stop took %s", longest)
	}
	if sum.Unknown > 0 {
		t.Errorf("%d calls had an unknown outcome although nothing went wrong", sum.Unknown)
	}
}
