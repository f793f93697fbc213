package ha_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// calm is how long nothing is broken between two faults.
	calm = 5 * time.Second
	// lookEvery is how often /readyz is asked.
	lookEvery = 500 * time.Millisecond
)

// stage is a fault and what came of it.
type stage struct {
	name string
	// acked and called are how long after the fault the first message that came after it was acknowledged, and its
	// call arrived.
	acked, called time.Duration
	// silence is the longest time in which nothing was acknowledged, waited the longest that a sender waited.
	silence, waited time.Duration
	// answers are those but of success, readiness what /readyz said, by number.
	answers, readiness map[string]int
}

// strike has a fault happen, and then waits until all goes on as before.
func (w *world) strike(name string, fault, mend func()) {
	w.Helper()
	if only := os.Getenv(faultsVariable); !must(regexp.MatchString(only, name)) {
		return
	}
	wait(w.T, calm)
	w.Logf("%s: %s", time.Now().UTC().Format(time.TimeOnly), name)
	before, _ := w.load.counts()
	st := stage{name: name, readiness: map[string]int{}}
	looked := w.look(st.readiness)
	at := time.Now()
	fault()
	mend()
	w.service.ready(2 * time.Minute)
	w.cluster.healthy(3 * time.Minute)
	wait(w.T, calm)
	looked()
	after, wrong := w.load.counts()
	for _, answer := range slices.Sorted(maps.Keys(wrong)) {
		w.Errorf("%s: %d × %s", name, wrong[answer], answer)
	}
	w.settled(at)
	st.answers = after
	for answer, n := range before {
		if st.answers[answer] -= n; st.answers[answer] == 0 {
			delete(st.answers, answer)
		}
	}
	until(w.T, "the first call arrives", time.Minute, func() bool {
		st.measure(at, w.load.since(at), w.platform)
		return st.called > 0
	}, w.leftovers)
	w.stages = append(w.stages, st)
	w.Logf("%s: first acknowledged %s, called %s, silence %s, waited %s, all over after %s; answers %v; readyz %v", name,
		st.acked, st.called, st.silence, st.waited, time.Since(at).Round(time.Second), st.answers, st.readiness)
}

// measure reads off how long who waited.
func (st *stage) measure(at time.Time, acks []ack, p *platform) {
	last := at
	for _, a := range acks {
		st.silence = max(st.silence, a.done.Sub(last))
		last = a.done
		if a.began.Before(at) {
			continue
		}
		if st.acked == 0 {
			st.acked = a.done.Sub(at)
		}
		st.waited = max(st.waited, a.done.Sub(a.began))
		called := p.arrival(a.key)
		if after := called.Sub(at); !called.IsZero() && (st.called == 0 || after < st.called) {
			st.called = after
		}
	}
}

// look asks /readyz of all processes until the returned function is called.
func (w *world) look(seen map[string]int) (stop func()) {
	var group sync.WaitGroup
	var mu sync.Mutex
	done := make(chan struct{})
	for _, p := range w.service.processes {
		group.Go(func() {
			tick := time.NewTicker(lookEvery)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				said := p.status()
				mu.Lock()
				seen[said]++
				mu.Unlock()
			}
		})
	}
	return func() {
		close(done)
		group.Wait()
	}
}

// table is what docs/availability.md shows.
func table(stages []stage) string {
	var out strings.Builder
	out.WriteString("| Fault | First acknowledged | First call | Longest without one acknowledged | " +
		"Longest that a sender waited | 503 | /readyz |\n|---|---|---|---|---|---|---|\n")
	for _, st := range stages {
		refused := 0
		for answer, n := range st.answers {
			if strings.HasPrefix(answer, "503") {
				refused += n
			}
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %d | %s |\n", st.name, seconds(st.acked), seconds(st.called),
			seconds(st.silence), seconds(st.waited), refused, strings.Join(slices.Sorted(maps.Keys(st.readiness)), ", "))
	}
	return out.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
