package simulation

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "simulate this seed alone")
	seedsFlag = flag.Uint64("seeds", 200, "simulate so many seeds")
)

// waitLimit is how long after the week everything must be over. The slowest pace lets a few records go on each of four
// days of a week.
const waitLimit = 730 * day

// live simulates a week, and then what is left of it; it returns what went wrong.
func live(seed uint64, f fault) (w *world, err error) {
	w = newWorld(seed, f, true)
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			err = fmt.Errorf("%s\n\tgo test ./test/simulation -run 'TestWeek$' -seed=%d", v.text, seed)
		default:
			panic(v)
		}
	}()
	w.run(w.began.Add(week), nil)
	w.calm()
	w.run(w.began.Add(week+waitLimit), w.isOver)
	w.stats.after += w.now.Sub(w.began) - week
	w.check.over()
	return w, nil
}

// isOver reports whether nothing is left to do.
func (w *world) isOver() bool {
	for _, t := range w.batches {
		if len(t.queue) > 0 {
			return false
		}
	}
	for _, b := range w.budgets {
		if len(b.open) > 0 {
			return false
		}
	}
	return true
}

// TestWeek: whatever happens in a week, the rules hold after every step, and in the end nothing is lost.
func TestWeek(t *testing.T) {
	t.Parallel()
	from, to := uint64(1), *seedsFlag
	if *seedFlag > 0 {
		from, to = *seedFlag, *seedFlag
	}
	began := time.Now()
	var all stats
	for seed := from; seed <= to; seed++ {
		w, err := live(seed, faultNone)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		all.add(&w.stats)
	}
	t.Logf("%d seeds in %s: %+v", to-from+1, time.Since(began).Round(time.Millisecond), all)
}

// faultSeeds is how many seeds a deliberate fault may survive.
const faultSeeds = 20

// TestFaults: the checker finds each of the deliberate faults, and quickly.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"skip one debit": faultSkipDebit, "ignore one hold": faultIgnoreHold,
		"settle twice":             faultSettleTwice,
		"forget a call that rolls": faultForgetRolled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caught := 0
			for seed := uint64(1); seed <= faultSeeds; seed++ {
				if w, err := live(seed, f); err != nil {
					caught++
					t.Logf("seed %d, after %s: %v", seed, w.now.Sub(w.began).Round(time.Second), err)
				}
			}
			if caught == 0 {
				t.Errorf("%d seeds did not find it", faultSeeds)
			}
		})
	}
}
