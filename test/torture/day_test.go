package torture_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

const (
	// seedVariable has TestDay live one day, of this seed, and TestMinute its minute; daysVariable says how many days
	// they live.
	seedVariable = "FLOWLANE_DAY_SEED"
	daysVariable = "FLOWLANE_DAYS"
)

// daySeeds are the seeds of the days to live.
func daySeeds(t *testing.T) (seeds []uint64) {
	t.Helper()
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q: give it a seed", seedVariable, text)
		}
		return []uint64{seed}
	}
	n := 1
	if text := os.Getenv(daysVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("%s is %q: give it a number of days", daysVariable, text)
		}
	}
	first := uint64(time.Now().UnixMilli())
	for i := range n {
		seeds = append(seeds, first+uint64(i))
	}
	return seeds
}

// A virtual day of two organizations and three accounts, one of them shared: batches come, people hold, pace, steer and
// cancel, the platform refuses, others spend, and of the three processes of the service some are killed or stopped. The
// clocks go from one thing that falls due to the next, when nothing is under way.
func TestDay(t *testing.T) {
	t.Parallel()
	for _, seed := range daySeeds(t) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			d := newDay(t, seed, dayLimits)
			for _, e := range d.plan() {
				d.until(d.began.Add(e.at))
				d.happen(e)
			}
			d.until(d.began.Add(24 * time.Hour))
			d.end()
		})
	}
}

// TestMinute is the same without moving the clocks: a minute of real time, where FLOWLANE_DAYS is set, else ten
// seconds.
func TestMinute(t *testing.T) {
	t.Parallel()
	length := 10 * time.Second
	if os.Getenv(daysVariable) != "" {
		length = time.Minute
	}
	d := newDay(t, daySeeds(t)[0], minuteLimits)
	d.hurry = true
	plan := d.plan()
	for _, e := range plan {
		at := d.began.Add(time.Duration(float64(length) * e.at.Hours() / 24))
		for d.now().Before(at) {
			d.strikeIfBusy()
			pass(t.Context(), 10*time.Millisecond)
		}
		d.happen(e)
	}
	d.end()
}

// event is one thing that happens in a day.
type event struct {
	at   time.Duration
	what happening
	// seed decides everything about it, so that it does not depend on what happened before how it goes.
	seed uint64
}

// happening is a kind of event, and how often it happens in a day.
type happening struct {
	times int
	do    func(*day)
	// rush says that four of five times it happens when the batches come: lanes and organizations compete then, and
	// there is something to disturb.
	rush bool
}

// happenings are what a day is made of.
var happenings = []happening{
	{32, (*day).start, true}, {12, (*day).steer, true}, {16, (*day).hold, true}, {6, (*day).extend, false},
	{8, (*day).resume, false}, {3, (*day).cancel, true},
	{8, (*day).spend, true}, {5, (*day).refuse, true}, {8, (*day).disturb, true}, {3, (*day).setMargin, false},
	{3, (*day).setLane, false}, {8, (*day).look, true},
	{4, (*day).kill, true}, {2, (*day).stop, true},
}

// plan is what happens when.
func (d *day) plan() (plan []event) {
	random := rand.New(rand.NewPCG(d.seed, 3))
	rushes := []time.Duration{2 * time.Hour, 7 * time.Hour, 12 * time.Hour, 17 * time.Hour}
	for _, h := range happenings {
		for range h.times {
			e := event{at: time.Duration(random.Int64N(int64(23 * time.Hour))), what: h, seed: random.Uint64()}
			if h.rush && random.IntN(5) > 0 {
				e.at = rushes[random.IntN(len(rushes))] + time.Duration(random.Int64N(int64(5*time.Minute)))
			}
			plan = append(plan, e)
		}
	}
	slices.SortFunc(plan, func(a, b event) int { return int(a.at - b.at) })
	return plan
}

// happen lets an event happen.
func (d *day) happen(e event) {
	d.Helper()
	d.random = rand.New(rand.NewPCG(e.seed, 5))
	e.what.do(d)
	d.strikeIfBusy()
}
