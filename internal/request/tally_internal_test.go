package request

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// base is a database and the processes on it, of which the test is the clock and the network.
type base struct {
	r         *rand.Rand
	limit     Limit
	processes []tally
	now       time.Time
	// began and used are the row of the database.
	began time.Time
	used  int64
	// asked are reports on their way to the database, told what it said of them on the way back.
	asked, told []underWay
	// passed are the requests that passed in each window of the database; free those in none.
	passed map[time.Time]int64
	free   int64
}

type underWay struct {
	process *tally
	report  report
	count   count
}

func (b *base) open() bool { return b.now.Sub(b.began) < b.limit.period() }

// request sends one request to a process.
func (b *base) request() {
	p := &b.processes[b.r.IntN(len(b.processes))]
	switch d, r := p.next(b.limit, b.now); {
	case d == ask:
		b.asked = append(b.asked, underWay{process: p, report: r})
	case d == pass && b.open():
		b.passed[b.began]++
	case d == pass:
		b.free++
	}
}

// count does what the statement RequestCount does, for any of the reports on their way.
func (b *base) count() {
	u := b.take(&b.asked)
	switch {
	case !b.open():
		b.began, b.used = b.now, u.report.requests
	case b.used >= b.limit.Max:
		u.count.full = true
	default:
		b.used += u.report.requests
	}
	u.count.used, u.count.began, u.count.endsIn = b.used, b.began, b.limit.period()-b.now.Sub(b.began)
	b.told = append(b.told, u)
}

// tell brings an answer back. It returns a complaint where the request was refused too early.
func (b *base) tell() string {
	u := b.take(&b.told)
	if u.process.answered(u.report, u.count, b.now) {
		b.passed[u.count.began]++
		return ""
	}
	least := b.limit.Max - int64(len(b.processes))*2*b.limit.slack()
	if n := b.passed[u.count.began] + b.onTheWay(u.count.began); n < least {
		return fmt.Sprintf("refused after %d requests, want %d at least", n, least)
	}
	return ""
}

// onTheWay are requests that were counted in a window, had room, and do not know yet.
func (b *base) onTheWay(began time.Time) (n int64) {
	for _, u := range b.told {
		if !u.count.full && u.count.used <= b.limit.Max && u.count.began.Equal(began) {
			n++
		}
	}
	return n
}

func (b *base) take(from *[]underWay) underWay {
	i, last := b.r.IntN(len(*from)), len(*from)-1
	u := (*from)[i]
	(*from)[i] = (*from)[last]
	*from = (*from)[:last]
	return u
}

// step does one thing that could come next. pace is how many requests come in a window or so.
func (b *base) step(pace float64) string {
	switch n := b.r.IntN(5); {
	case n < 2 && len(b.asked) > 0:
		b.count()
	case n < 4 && len(b.told) > 0:
		return b.tell()
	case len(b.asked)+len(b.told) < 40:
		b.now = b.now.Add(time.Duration(b.r.ExpFloat64() * float64(b.limit.period()) / pace))
		b.request()
	}
	return ""
}

// TestTally_Bounds: whatever comes when, in a window of the database no more pass than the limit and a hundredth of
// it for each process, and no fewer than that much less. Limits without slack are exact.
func TestTally_Bounds(t *testing.T) {
	t.Parallel()
	var full, loose int
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeats itself
		b := &base{
			r: r, limit: Limit{[]int64{1, 100, 199, 400, 1000, 2500, 20_000}[r.IntN(7)], 1},
			passed:    map[time.Time]int64{},
			processes: make([]tally, 1+r.IntN(4)), now: time.Unix(1e9, 0),
		}
		pace := float64(b.limit.Max) * []float64{.01, .9, 1.5, 4}[r.IntN(4)]
		for range 60_000 {
			if complaint := b.step(pace); complaint != "" {
				t.Fatalf("seed %d: %s at %d processes: %s", seed, b.limit, len(b.processes), complaint)
			}
		}
		most := b.limit.Max + int64(len(b.processes))*b.limit.Max/100
		if b.limit.Max <= 100 {
			most = b.limit.Max
		}
		for _, n := range b.passed {
			if n > most || b.limit.slack() == 0 && n > b.limit.Max {
				t.Fatalf("seed %d: %d of %s passed at %d processes, want %d at most", seed, n, b.limit,
					len(b.processes), most)
			}
			if n >= b.limit.Max {
				full++
			}
			if n > b.limit.Max {
				loose++
			}
		}
		if b.limit.slack() == 0 && b.free > 0 {
			t.Fatalf("seed %d: %d of %s passed in no window", seed, b.free, b.limit)
		}
	}
	if full < 100 || loose < 10 {
		t.Errorf("only %d windows were filled, %d passed over", full, loose)
	}
}

// TestTally_Reports: a process alone asks once for half of the slack, and for each request when it knows of none left.
func TestTally_Reports(t *testing.T) {
	t.Parallel()
	limit, now := Limit{60_000, 1}, time.Unix(1e9, 0)
	var p tally
	var used, asked int64
	for range limit.Max {
		d, r := p.next(limit, now)
		if d == ask {
			asked++
			used += r.requests
			if !p.answered(r, count{used: used, began: now, endsIn: time.Minute}, now) {
				t.Fatalf("refused at %d", used)
			}
		}
	}
	if asked > limit.Max/(limit.slack()/2) || p.remaining() != 0 {
		t.Errorf("asked %d times; %+v", asked, p)
	}
	d, r := p.next(limit, now)
	if d != ask || p.answered(r, count{full: true, used: used, began: now, endsIn: time.Minute}, now) {
		t.Errorf("one more is %d", d)
	}
	if d, _ := p.next(limit, now); d != refuse {
		t.Errorf("the next one is %d", d)
	}
	if d, _ := p.next(Limit{70_000, 1}, now); d != pass {
		t.Errorf("with a higher limit it is %d", d)
	}
}

// TestTally_ReportUnderWay: while a report is under way no more pass than the slack.
func TestTally_ReportUnderWay(t *testing.T) {
	t.Parallel()
	limit, now := Limit{60_000, 1}, time.Unix(1e9, 0)
	var p tally
	var passed int64
	for range 10 * limit.slack() {
		if d, _ := p.next(limit, now); d == pass {
			passed++
		}
	}
	if passed != limit.slack() {
		t.Errorf("%d passed, want %d", passed, limit.slack())
	}
}

// TestTally_Failed: while the database is away a process holds its own requests to the limit; one without slack lets
// none pass.
func TestTally_Failed(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	for _, tt := range []struct{ max, passes, asks int64 }{{100, 0, 150}, {1000, 1000, 501}} {
		limit := Limit{tt.max, 1}
		var p tally
		var passes, asks int64
		for range tt.max + tt.max/2 {
			d, r := p.next(limit, now)
			if d == ask {
				asks++
			}
			if d == pass || d == ask && p.failed(r, now) {
				passes++
			}
		}
		if passes != tt.passes || asks != tt.asks {
			t.Errorf("%s: %d passed, %d asked; want %d and %d", limit, passes, asks, tt.passes, tt.asks)
		}
		d, r := p.next(limit, now.Add(aloneFor))
		if d != ask || r.requests != passes+1 {
			t.Errorf("%s: later it is %d, %+v", limit, d, r)
		}
		passed := p.answered(r, count{used: r.requests, began: now, endsIn: time.Second}, now)
		if passed != (tt.passes < tt.max) {
			t.Errorf("%s: when the database is back, %d with room is %t", limit, r.requests, passed)
		}
	}
}
