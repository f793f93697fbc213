package torture_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
)

// kills is how often the kill test kills.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FLOWLANE_KILLS")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("FLOWLANE_KILLS is %q: give it a number of kills", text)
	}
	return n
}

// The process is killed at random moments, again and again. What was under way must be settled, or go through doubt and
// be settled by asking.
func TestKill(t *testing.T) {
	t.Parallel()
	w := setup(t, 3)
	w.front.delay = 40 * time.Millisecond
	s := newStorm(w)
	n := kills(t)
	caught := map[uuid.UUID]time.Time{}
	idle := 0
	for range n {
		began := time.Now()
		p := w.serve(hasty)
		if w.random.IntN(5) > 0 { // otherwise it may be killed while it starts
			w.until("the process makes calls", 60*time.Second, func() bool {
				s.keep(30, 0)
				return w.count("SELECT count(*) FROM (SELECT FROM flow.call WHERE claimed_at > $1 LIMIT 1) c",
					began) > 0
			})
		}
		s.keep(30, w.between(10*time.Millisecond, 1500*time.Millisecond))
		p.kill()
		before := len(caught)
		for _, id := range w.inFlight() {
			if _, known := caught[id]; !known {
				caught[id] = time.Now()
			}
		}
		if len(caught) == before {
			idle++
		}
	}
	last := w.serve(hasty)
	s.check(2 * time.Minute)
	s.checkCaught(caught)
	last.kill()
	sum := w.tally()
	t.Logf("%d kills (%d with nothing under way), %d calls under way at a kill; "+
		"%d batches (%d cancelled), %d records, %d calls", n, idle, len(caught),
		len(w.batches), s.cancelled, s.records, sum.Calls)
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries; "+
		"%d requests were lost on their way, %d bodies broke off",
		sum.Unknown, sum.Found, sum.NotFound, sum.Retries, w.front.lost.Load(), w.front.broken.Load())
	if len(caught) == 0 || sum.Unknown == 0 {
		t.Error("no kill hit a call: the test shows nothing")
	}
}

// checkCaught checks the ways of the calls that were under way at a kill.
func (s *storm) checkCaught(caught map[uuid.UUID]time.Time) {
	s.Helper()
	rows, err := s.pool.Query(s.Context(),
		`SELECT DISTINCT ON (call_id) call_id, is_now, checked, records, at FROM torture.move WHERE was = 'intent' ORDER BY call_id, no`)
	if err != nil {
		s.Fatal(err)
	}
	defer rows.Close()
	moved := map[uuid.UUID]bool{}
	for rows.Next() {
		var id uuid.UUID
		var now, checked string
		var records int
		var at time.Time
		if err := rows.Scan(&id, &now, &checked, &records, &at); err != nil {
			s.Fatal(err)
		}
		moved[id] = true
		killed, was := caught[id]
		// A commit that was on its way at the kill may still arrive; nothing else may settle such a call without
		// asking.
		if was && checked == "lookup" && now != "unknown" && at.Sub(killed) > time.Second {
			s.Errorf("call %s of a killed process went from intent to %s, %s after the kill", id, now, at.Sub(killed))
		}
	}
	for id := range caught {
		if !moved[id] {
			s.Errorf("call %s of a killed process never moved", id)
		}
	}
}
