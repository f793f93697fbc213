package torture_test

import (
	"testing"
	"time"
)

// Two processes share the work; one of them is killed.
func TestShare(t *testing.T) {
	t.Parallel()
	w := setup(t, 5)
	w.front.delay = 5 * time.Millisecond
	s := newStorm(w)
	one, two := w.serve(hasty).ready(w), w.serve(hasty).ready(w)
	var calls []int
	w.until("both processes have made 20 calls", 2*time.Minute, func() bool {
		s.keep(40, time.Second)
		calls = w.byOwner()
		return len(calls) == 2 && min(calls[0], calls[1]) >= 20
	}, func() { t.Logf("calls by process: %v", w.byOwner()) })
	one.kill()
	caught := len(w.inFlight())
	s.keep(20, time.Second)
	s.check(2 * time.Minute)
	two.kill()
	sum := w.tally()
	t.Logf("calls by process until one was killed: %v; %d calls were under way then; %d batches, %d records, %d calls",
		calls, caught, len(w.batches), s.records, sum.Calls)
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries", sum.Unknown, sum.Found,
		sum.NotFound, sum.Retries)
}

// byOwner returns how many calls each process made.
func (w *world) byOwner() (calls []int) {
	w.Helper()
	rows, err := w.pool.Query(w.Context(), "SELECT count(*) FROM flow.call GROUP BY owner")
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			w.Fatal(err)
		}
		calls = append(calls, n)
	}
	return calls
}
