package torture_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/provider/dialersim"
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

// storm keeps batches of every kind coming: bulk uploads in one call and in many, asynchronous ones, and single calls.
type storm struct {
	*world
	lists []string
	// defs by account.
	upload, async, modify []uuid.UUID
	// dial, if set, are phone calls: what became of one can never be found out.
	dial                       []uuid.UUID
	uploaded, modified, dialed int
	records                    int
}

const again = `"retry":{"max_attempts":20,"initial_seconds":0.1,"max_seconds":1}`

func newStorm(w *world) *storm {
	s := &storm{world: w}
	for i := range 80 {
		s.lists = append(s.lists, fmt.Sprintf("list%d", i))
	}
	bulk := `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__%s","credential_id":"CRED",` + again + `,
		"params":{"list":"{{ input.list }}","row":{"id":"{{ input.id }}","bad":"{{ input.bad }}","pad":"{{ input.pad }}"}}}]}]`
	for i := range w.accounts {
		s.upload = append(s.upload, w.define(i, fmt.Sprintf(bulk, "upload")))
		s.async = append(s.async, w.define(i, fmt.Sprintf(bulk, "upload_async")))
		s.modify = append(s.modify, w.define(i, `[{"id":"change","tasks":[{"id":"m","action_id":"dialer__api__modify","credential_id":"CRED",`+again+`,
			"params":{"list":"changed","key":"{{ input.id }}","fields":{"bad":"{{ input.bad }}"}}}]}]`))
	}
	w.everywhere(dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "bad", Value: []byte(`"yes"`)}},
		LatencyByOperation: map[string]dialersim.Range{"upload": {MinMS: 10, MaxMS: 150}, "upload_async": {MaxMS: 100}, "modify": {MinMS: 1, MaxMS: 20}}})
	return s
}

// withPhoneCalls adds phone calls to the storm.
func (s *storm) withPhoneCalls() *storm {
	for i := range s.accounts {
		s.dial = append(s.dial, s.define(i, `[{"id":"call","tasks":[{"id":"d","action_id":"dialer__api__dial","credential_id":"CRED",`+again+`,
			"params":{"number":"{{ input.number }}","campaign":"c"}}]}]`))
	}
	s.everywhere(dialersim.AccountSettings{LatencyByOperation: map[string]dialersim.Range{"dial": {MinMS: 1, MaxMS: 40}}})
	return s
}

// more starts one batch of a random kind.
func (s *storm) more() {
	account, n := s.random.IntN(len(s.accounts)), 1+s.random.IntN(600)
	def, want := s.upload[account], batch{}
	count := &s.uploaded
	switch s.random.IntN(6) {
	case 0:
		def = s.async[account]
	case 1:
		def, count, n = s.modify[account], &s.modified, 1+n/3
	case 2:
		if s.dial != nil {
			def, count, n = s.dial[account], &s.dialed, 1+n/3
		}
	}
	single := count != &s.uploaded
	records := make([][]byte, n)
	list, stretch := "", 0
	for i := range records {
		// A stretch of records for one list is a call of its own.
		if stretch--; stretch <= 0 {
			list, stretch = s.lists[s.random.IntN(len(s.lists))], 1+s.random.IntN(120)
		}
		bad := "no"
		if s.random.IntN(50) == 0 {
			bad = "yes"
		}
		switch {
		case single:
			want.completed++
		case bad == "yes":
			want.rejected++
		default:
			want.accepted++
		}
		s.records++
		records[i] = fmt.Appendf(nil, `{"id":"r%[1]d","number":"+1555%07[1]d","list":%q,"bad":%q,"pad":"%0*d"}`, s.records, list, bad, s.random.IntN(200), 0)
	}
	*count += n
	s.start(def, records, want)
}

// keep keeps so many batches going for a while.
func (s *storm) keep(batches int, d time.Duration) {
	over := time.After(d)
	for {
		for range batches - s.open() {
			s.more()
		}
		select {
		case <-over:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// check settles everything and checks what arrived.
func (s *storm) check(patience time.Duration) {
	s.Helper()
	s.settle(patience)
	s.arrivedOnce(dialersim.KindUpload, s.uploaded, s.lists...)
	// A single change may be repeated: the same write again changes nothing. None may be missing.
	if got := len(s.sim.ArrivalsOf("", "changed", dialersim.KindModify)); got != s.modified {
		s.Errorf("%d records were changed, want %d", got, s.modified)
	}
	if s.dialed > 0 {
		s.arrivedOnce(dialersim.KindDial, s.dialed, "calls")
	}
}

// The process is killed at random moments, again and again. What was under way must be settled, or go through doubt and be
// settled by asking.
func TestKill(t *testing.T) {
	t.Parallel()
	w := setup(t, 3)
	w.front.delay = 40 * time.Millisecond
	s := newStorm(w)
	n := kills(t)
	caught := map[uuid.UUID]time.Time{}
	idle := 0
	for range n {
		p := w.serve(hasty)
		s.keep(30, w.between(200*time.Millisecond, 2500*time.Millisecond))
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
	t.Logf("%d kills (%d with nothing under way), %d calls under way at a kill; %d batches, %d records, %d calls", n, idle, len(caught),
		len(w.batches), s.records, sum.Calls)
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries; %d requests were lost on their way, %d bodies broke off",
		sum.Unknown, sum.Found, sum.NotFound, sum.Retries, w.front.lost.Load(), w.front.broken.Load())
	if len(caught) == 0 || sum.Unknown == 0 {
		t.Error("no kill hit a call: the test shows nothing")
	}
}

// checkCaught checks the ways of the calls that were under way at a kill.
func (s *storm) checkCaught(caught map[uuid.UUID]time.Time) {
	s.Helper()
	rows, err := s.pool.Query(s.Context(), `SELECT DISTINCT ON (call_id) call_id, is_now, checked, records, at FROM torture.move WHERE was = 'intent' ORDER BY call_id, no`)
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
		// A commit that was on its way at the kill may still arrive; nothing else may settle such a call without asking.
		if was && checked == "lookup" && now != "unknown" && at.Sub(killed) > 500*time.Millisecond {
			s.Errorf("call %s of a killed process went from intent to %s, %s after the kill", id, now, at.Sub(killed))
		}
	}
	for id := range caught {
		if !moved[id] {
			s.Errorf("call %s of a killed process never moved", id)
		}
	}
}
