package torture_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"flowlane/test/pgtest"
)

// schedulesVariable has TestSchedules live a whole day, with so many schedules.
const schedulesVariable = "FLOWLANE_SCHEDULES"

// TestSchedules moves the clocks through two hours with a hundred schedules, or through a day with as many as
// FLOWLANE_SCHEDULES says. Three processes fire them, some of which are killed or stopped; at times none is there for a
// while, or the clocks jump. People change, delete and run schedules, and archive what they start. Every slot, found
// without the service's parser, must have one fire, with one batch or the right reason why there is none.
func TestSchedules(t *testing.T) {
	t.Parallel()
	n, length := 100, 2*time.Hour
	if text := os.Getenv(schedulesVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("%s is %q: give it a number of schedules", schedulesVariable, text)
		}
		length = 24 * time.Hour
	}
	d := newDiary(t, daySeeds(t)[0], n, length)
	end := d.now().Add(length)
	var gaps []time.Time
	for range 2 + int(length/(6*time.Hour)) {
		gaps = append(gaps, end.Add(-d.between(0, length*9/10)))
	}
	slices.SortFunc(gaps, time.Time.Compare)
	for d.now().Before(end) {
		if len(gaps) > 0 && d.now().After(gaps[0]) {
			d.gap(length)
			gaps = gaps[1:]
		}
		d.step(end)
		switch d.random.IntN(12) {
		case 0:
			d.strike()
		case 1, 2, 3, 4:
			d.act()
		}
	}
	rested := d.quiet()
	d.checkReads(rested)
	for _, p := range d.procs {
		p.kill()
	}
	d.check(rested)
}

// diary is a world of schedules, with what people did.
type diary struct {
	*world

	procs   []*process
	flows   []*flow
	entries []*entry
	// moves are the times that the clocks were moved to: work of one time is done before the next.
	moves                                []time.Time
	kills, stops, deaths, jumps, actions int
	began                                time.Time
	// whole says that it is a day, or else a few hours.
	whole bool
	// rested is the last time at which everything that had come was done.
	rested time.Time
}

// flow is what schedules start.
type flow struct {
	id string
	// ends is how its batches end; a slow one takes minutes.
	ends string
	slow bool
	// flips are when it was archived, made active again, and so on; fickle flows are.
	flips  []flip
	fickle bool
}

// flip is when a flow was archived or made active: at some time in between.
type flip struct{ from, to time.Time }

// terms are what a schedule is from a time on.
type terms struct {
	from    time.Time
	tab     *crontab
	enabled bool
	catchUp time.Duration
	skip    bool
	flow    *flow
}

// entry is a schedule.
type entry struct {
	id string
	// terms are one after another.
	terms []terms
	// deleted is when it was deleted, if it was: at some time between two. Its slots up to rested were decided; kept
	// are the fires that it had at the first of the two.
	deleted struct{ rested, from, to time.Time }
	kept    []fire
}

// String tells what it was, and when.
func (e *entry) String() string {
	var out strings.Builder
	for i := range e.terms {
		t := &e.terms[i]
		fmt.Fprintf(&out, "%q from %s (enabled %t, catch-up %s, skip %t, flow %s); ", t.tab, t.from, t.enabled,
			t.catchUp, t.skip, t.flow.id)
	}
	return out.String()
}

func (e *entry) now() *terms { return &e.terms[len(e.terms)-1] }

const (
	quickFlow = `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]`
	vainFlow  = `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__fail","params":{"message":"in vain"}}]}]`
	slowFlow  = `[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"method":"POST","url":"SIM/work?fail_rate=1",
		"idempotency_header":"Idempotency-Key"},
		"retry":{"max_attempts":3,"initial_seconds":%d,"factor":1,"max_seconds":%[1]d}}]}]`
)

// newDiary makes the world of a seed, with so many schedules.
func newDiary(t *testing.T, seed uint64, schedules int, length time.Duration) *diary {
	t.Helper()
	dsn, pool := pgtest.NewDatabase(t)
	d := &diary{world: setupSeeded(t, dsn, pool, 0, seed), began: time.Now(), whole: length >= 24*time.Hour}
	d.jump(d.between(0, 30*24*time.Hour))
	for range 3 {
		d.procs = append(d.procs, d.newProcess())
	}
	for _, p := range d.procs {
		p.ready(d.world)
	}
	for _, f := range []struct {
		flow
		steps string
	}{
		{flow{ends: "completed"}, quickFlow}, {flow{ends: "completed"}, quickFlow}, {flow{ends: "failed"}, vainFlow},
		{flow{ends: "failed", slow: true}, fmt.Sprintf(slowFlow, 150)}, {flow{ends: "failed", slow: true},
			fmt.Sprintf(slowFlow, 1500)},
		{flow{ends: "completed", fickle: true}, quickFlow}, {flow{ends: "failed", slow: true, fickle: true},
			fmt.Sprintf(slowFlow, 200)},
	} {
		var made struct{ ID string }
		d.client().Do("POST", "/flows/definitions", `{"name":"f","status":"active","steps":`+strings.ReplaceAll(f.steps,
			"SIM", d.url)+`}`).
			Want(http.StatusCreated).Into(&made)
		f.flow.id = made.ID
		d.flows = append(d.flows, &f.flow)
	}
	d.createMinutely()
	for range schedules - 1 {
		d.create()
	}
	return d
}

// jump moves the clocks, whatever is under way.
func (d *diary) jump(ahead time.Duration) {
	d.Helper()
	d.moves = append(d.moves, d.now().Add(ahead))
	d.ahead.Add(int64(ahead))
	pgtest.MoveClock(d.T, d.pool, ahead)
}

func (d *diary) newProcess() *process {
	return d.serve(hasty, "FLOWLANE_MAX_CONNS=8", "FLOWLANE_REQUEST_LIMIT=1000000")
}

// step moves the clocks to when something falls due, when nothing is under way; by 40 seconds at least, so that a day
// has no more than 2,000 steps.
func (d *diary) step(end time.Time) {
	d.Helper()
	for {
		d.rested = d.quiet()
		to, moved := d.moveClocks(func(now time.Time, next *time.Time) time.Time {
			to := now.Add(40 * time.Second)
			if next != nil && next.After(to) {
				to = *next
			}
			if to.After(end) {
				to = end
			}
			return to
		})
		if moved {
			d.moves = append(d.moves, to)
			return
		}
	}
}

// strike kills processes at some moment from now on, or has one stand still for longer than its leases.
func (d *diary) strike() {
	d.Helper()
	d.firing()
	first := d.random.IntN(len(d.procs))
	if d.random.IntN(6) == 0 {
		d.procs[first].stop()
		pass(d.Context(), lease+d.between(0, time.Second))
		d.procs[first].proceed()
		d.stops++
		return
	}
	for i := range 1 + d.random.IntN(len(d.procs)) {
		at := (first + i) % len(d.procs)
		d.procs[at].kill()
		d.procs[at] = d.newProcess()
		d.kills++
	}
}

// firing waits for a moment at which slots are being decided, if any are soon.
func (d *diary) firing() {
	d.Helper()
	for range 50 {
		if d.count("SELECT count(*) FROM flow.due WHERE kind = 'schedule' AND leased") > 0 {
			break
		}
		pass(d.Context(), 2*time.Millisecond)
	}
	pass(d.Context(), d.between(0, 20*time.Millisecond))
}

// gap has minutes or hours go by in which no process is there, or in which all of them stood still: the first time the
// one, the second time the other.
func (d *diary) gap(length time.Duration) {
	d.Helper()
	ahead := d.between(2*time.Minute, length/12)
	if d.deaths > 0 && (d.jumps == 0 || d.random.IntN(3) == 0) {
		d.quiet()
		d.jump(ahead)
		d.jumps++
		return
	}
	d.step(d.now().Add(time.Hour))
	d.firing()
	for _, p := range d.procs {
		p.kill()
	}
	d.jump(ahead)
	for i := range d.procs {
		d.procs[i] = d.newProcess()
	}
	d.deaths++
}
