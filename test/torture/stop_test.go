package torture_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/platform/provider/dialersim"
)

const (
	// stopRows of about a kilobyte make a body of two megabytes.
	stopRows = 2000
	stopSize = 2 << 20
)

// A process is stopped in the middle of bodies of 2 MB, for so long that another takes over and sends them, and then
// goes on. Nothing may arrive twice.
func TestStop(t *testing.T) {
	t.Parallel()
	const accounts, callsEach = 4, 4 // as many as one process has in flight
	w := setup(t, accounts)
	slow := limits{timeout: 3 * time.Second, margin: 200 * time.Millisecond}
	var defs []uuid.UUID
	for i := range accounts {
		defs = append(defs, w.define(i,
			`[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",`+again+`,
			"params":{"list":"{{ input.list }}","row":"{{ input }}"}}]}]`))
	}
	var lists []string
	sender := w.serve(slow).ready(w)
	rounds, trials, seconds := 1+kills(t)/40, 0, 0
	for round := range rounds {
		s := &stall{most: stopSize * 9 / 10, released: make(chan struct{})}
		w.front.setStall(s)
		broken := w.front.broken.Load()
		for i := range accounts * callsEach {
			list := fmt.Sprintf("round%d-%d", round, i)
			lists = append(lists, list)
			w.start(defs[i%accounts], stopRecords(list), liveBatch{accepted: stopRows})
		}
		first := w.stopInTheMiddle(sender, s, accounts*callsEach)
		w.front.setStall(nil)
		reached := int(s.reached.Load())
		trials += reached

		other := w.serve(slow)
		w.until("the other process has sent everything", time.Minute, func() bool { return w.open() == 0 }, w.leftovers)
		if time.Since(first) < slow.timeout {
			t.Error("everything was over before the stopped process's time was: the trial shows nothing")
		}
		w.arrivedOnce(dialersim.KindUpload, len(lists)*stopRows, lists...)
		// What the kernel took over is read before the process goes on in one round, and after it in the next.
		if round%2 == 0 {
			close(s.released)
			sender.proceed()
		} else {
			sender.proceed()
			close(s.released)
		}
		w.until("the calls of the stopped process have ended", 60*time.Second,
			func() bool { return int(s.ended.Load()) >= reached })
		w.arrivedOnce(dialersim.KindUpload, len(lists)*stopRows, lists...)
		if n := int(w.front.broken.Load() - broken); n < reached {
			t.Errorf("%d of %d bodies of the stopped process were finished", reached-n, reached)
		}
		seconds += w.count("SELECT count(*) FROM flow.call WHERE owner <> (SELECT owner " +
			"FROM flow.call ORDER BY claimed_at LIMIT 1)")
		other.kill() // the one that was stopped sends in the next round
		if t.Failed() {
			break
		}
	}
	w.settle(time.Minute)
	w.arrivedOnce(dialersim.KindUpload, len(lists)*stopRows, lists...)
	sum := w.tally()
	t.Logf("%d stops in the middle of %d bodies of %d bytes, all sent by another process in the meantime (%d calls "+
		"of it); %d bodies broke off, %d unknown outcomes",
		rounds, trials, stopSize, seconds, w.front.broken.Load(), sum.Unknown)
	if trials < rounds*accounts {
		t.Errorf("only %d bodies were caught in the middle in %d rounds", trials, rounds)
	}
}

// stopInTheMiddle stops the process once so many bodies are held up, or a second after the first one; it returns when
// the first one was.
func (w *world) stopInTheMiddle(p *process, s *stall, all int) (first time.Time) {
	w.Helper()
	w.until("a body is under way", time.Minute, func() bool { return s.reached.Load() > 0 })
	first = time.Now()
	w.until("the bodies are under way", time.Minute, func() bool {
		return int(s.reached.Load()) == all ||
			time.Since(first) > time.Second
	})
	p.stop()
	return first
}

func stopRecords(list string) [][]byte {
	records := make([][]byte, stopRows)
	pad := strings.Repeat("x", stopSize/stopRows)
	for i := range records {
		records[i] = fmt.Appendf(nil, `{"id":"%s-%d","list":%q,"pad":%q}`, list, i, list, pad)
	}
	return records
}
