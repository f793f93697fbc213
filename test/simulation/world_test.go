package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/quota"
)

// fault is a deliberate mistake of the store, which the checker must catch.
type fault int

const (
	faultNone fault = iota
	faultSkipDebit
	faultIgnoreHold
	faultSettleTwice
	faultForgetRolled
)

// world is everything of one seed.
type world struct {
	agenda
	r *rand.Rand
	// rolls draws which budgets have windows that roll; nil for none.
	rolls *rand.Rand
	// crowd draws how many organizations there are, and which providers are down when; nil for two organizations.
	crowd     *rand.Rand
	began     time.Time
	zone      string
	orgs      []uuid.UUID
	accounts  []*account
	budgets   []*budget
	batches   []*simBatch
	holds     []*hold
	open      []*hold
	processes []*process
	due       map[dueKey]*dueRow
	passing   map[dueKey]*pass
	leases    int
	calls     int
	check     *checker
	// fault is made once, at a moment that the seed draws; faultAt counts down to it.
	fault   fault
	faultAt int
	// quiet: from now on no new work, no people, no spend of others, and nothing goes wrong.
	quiet bool
	stats stats
}

// stats tell what a world has lived through: a simulation in which nothing happens proves nothing.
type stats struct {
	calls, accepted, refused, limited, lost, crashes, stops, holds, ticks, readings, escalated, resent, foreign, late,
	moved, rolled, down int
	// after is how long what was left took after the week.
	after time.Duration
}

func (s *stats) add(o *stats) {
	s.calls += o.calls
	s.accepted += o.accepted
	s.refused += o.refused
	s.limited += o.limited
	s.lost += o.lost
	s.crashes += o.crashes
	s.stops += o.stops
	s.holds += o.holds
	s.ticks += o.ticks
	s.readings += o.readings
	s.escalated += o.escalated
	s.resent += o.resent
	s.foreign += o.foreign
	s.late += o.late
	s.moved += o.moved
	s.rolled += o.rolled
	s.down += o.down
	s.after += o.after
}

// account is a provider account with its provider.
type account struct {
	no   int
	orgs []uuid.UUID
	loc  *time.Location
	// skew is how far its clock may be from ours, offset how far it is.
	skew, offset time.Duration
	// every is how often its counters are read, zero where it has none; they can lag so much, and tell as of when or
	// not.
	every, lag time.Duration
	tells      bool
	// answersIn is how long it takes to answer.
	answersIn time.Duration
	// others spend of it.
	others bool
	// spentUntil is when the last window ends in which we spent.
	spentUntil time.Time
	budgets    []*budget
	lanes      map[quota.LaneKey]laneSetting
}

type laneSetting struct{ weight, most int }

// mature is how old a call must be that the account's counters hold for certain.
func (a *account) mature() time.Duration {
	if a.every == 0 {
		return 0
	}
	return a.lag + a.skew + time.Second
}

// change is a change of daylight saving.
type change struct {
	zone string
	at   time.Time
}

var changes = []change{
	{"America/New_York", time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)},
	{"America/New_York", time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)},
	{"Europe/Prague", time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)},
	{"Europe/Prague", time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2026, 4, 4, 15, 30, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2026, 10, 3, 15, 30, 0, 0, time.UTC)},
	{"America/St_Johns", time.Date(2026, 3, 8, 5, 30, 0, 0, time.UTC)},
}

var otherZones = []string{"UTC", "Asia/Kathmandu", "America/Sao_Paulo"}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

func zone(name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return loc
}

var zones = func() map[string]*time.Location {
	out := map[string]*time.Location{}
	for _, c := range changes {
		out[c.zone] = zone(c.zone)
	}
	for _, name := range otherZones {
		out[name] = zone(name)
	}
	return out
}()

// newWorld draws a world, which begins some days before clocks change. Where it rolls, some of its budgets have windows
// that do. In each sixth of them many organizations start a record at a time, and providers hang or refuse connections
// for hours.
func newWorld(seed uint64, f fault, rolls bool) *world {
	r := rand.New(rand.NewPCG(seed, 4))
	c := changes[r.IntN(len(changes))]
	w := &world{r: r, zone: c.zone, due: map[dueKey]*dueRow{}, passing: map[dueKey]*pass{}, fault: f,
		orgs: []uuid.UUID{{1}, {2}}}
	if rolls {
		w.rolls = rand.New(rand.NewPCG(seed, 5))
	}
	if seed%6 == 0 {
		w.crowd = rand.New(rand.NewPCG(seed, 6))
		for i := range 1 + w.crowd.IntN(30) {
			w.orgs = append(w.orgs, uuid.UUID{byte(3 + i)})
		}
	}
	w.began = c.at.Add(-time.Duration(1+r.IntN(5))*day - time.Duration(r.IntN(86400))*time.Second)
	w.now = w.began
	w.check = newChecker(w)
	switch f {
	case faultSkipDebit, faultSettleTwice, faultForgetRolled:
		w.faultAt = 1 + r.IntN(300)
	case faultIgnoreHold:
		w.faultAt = 1 + r.IntN(10)
	}
	for i := range 3 {
		w.processes = append(w.processes,
			&process{w: w, no: i, offset: time.Duration(r.Int64N(int64(time.Hour))) - time.Hour/2,
				looked: map[int]time.Time{}, asked: map[int]time.Time{}, planned: map[int]time.Time{}})
	}
	for i := range 5 {
		w.addAccount(i)
	}
	w.planWork()
	w.planPeople()
	w.planTrouble()
	w.every(time.Hour, w.check.audit)
	return w
}

// every has something happen from now on until the week is over.
func (w *world) every(pause time.Duration, do func()) {
	var again func()
	again = func() {
		if w.quiet {
			return
		}
		do()
		w.after(pause, again)
	}
	w.after(pause, again)
}

// sometimes has something happen so often a week, at random.
func (w *world) sometimes(aWeek int, do func()) {
	w.every1(func() time.Duration { return time.Duration(w.r.Int64N(2 * int64(week) / int64(aWeek))) }, do)
}

func (w *world) every1(pause func() time.Duration, do func()) {
	var again func()
	again = func() {
		if w.quiet {
			return
		}
		do()
		w.after(pause(), again)
	}
	w.after(pause(), again)
}

// seconds draws a time up to so many seconds.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d) + 1)) }

func (w *world) chance(oneIn int) bool { return w.r.IntN(oneIn) == 0 }

// trouble is chance where something may still go wrong.
func (w *world) trouble(oneIn int) bool { return w.chance(oneIn) && !w.quiet }

func (w *world) addAccount(no int) {
	r := w.r
	a := &account{no: no, loc: zones[w.zone], skew: time.Duration(r.IntN(6)) * time.Second,
		lanes: map[quota.LaneKey]laneSetting{}}
	switch { // the third is shared
	case no < 2:
		a.orgs = w.orgs[:1]
	case no == 2:
		a.orgs = w.orgs
	default:
		a.orgs, a.loc = w.orgs[1:], zones[otherZones[r.IntN(len(otherZones))]]
	}
	a.offset = time.Duration(r.Int64N(2*int64(a.skew)+1)) - a.skew
	if r.IntN(3) > 0 {
		a.every, a.lag, a.tells = time.Duration(300+r.IntN(1800))*time.Second, time.Duration(r.IntN(30))*time.Second,
			r.IntN(2) == 0
		a.others = r.IntN(4) > 0
	}
	for _, org := range a.orgs {
		for _, lane := range db.AllFlowLaneValues() {
			a.lanes[quota.LaneKey{Org: org, Lane: lane}] = laneSetting{weight: 1 + r.IntN(60)}
		}
	}
	for i := range 2 {
		w.addBudget(a, i == 1)
	}
	w.accounts = append(w.accounts, a)
}

func (w *world) addBudget(a *account, bulk bool) {
	r := w.r
	b := &budget{w: w, no: len(w.budgets), account: a, perCall: 1, most: 1 + r.IntN(12), group: 1 + r.IntN(6),
		raw: map[int]int{}, ledger: map[window]*row{},
		margins: map[uuid.UUID]int{}, timeout: time.Duration(5+r.IntN(55)) * time.Second, latency: time.Duration(200+
			r.IntN(8000)) * time.Millisecond}
	if bulk {
		b.perCall, b.most, b.group = 2+r.IntN(8), 1+r.IntN(3), 1
	}
	b.latency = min(b.latency, b.timeout/2)
	daily := 15 + r.IntN(90)
	b.daily, b.raw[86400] = daily, daily
	if r.IntN(4) > 0 {
		b.raw[3600] = 3 + r.IntN(daily/2)
	}
	if r.IntN(4) > 0 {
		b.raw[60] = 1 + r.IntN(10)
	}
	if len(b.raw) > 1 && r.IntN(6) == 0 {
		delete(b.raw, 86400)
	}
	if r.IntN(4) == 0 {
		b.spacing = time.Duration(1+r.IntN(20_000)) * time.Millisecond
	}
	if w.rolls != nil && !a.others && w.rolls.IntN(2) == 0 { // what others spend of a rolling window no reading tells
		b.roll(rollingLengths[w.rolls.IntN(len(rollingLengths))], 1+w.rolls.IntN(4))
	}
	b.provider, b.refusals = &platform{b: b, ours: map[window]int{}, others: map[window]int{}}, r.IntN(3) == 0
	a.budgets, w.budgets = append(a.budgets, b), append(w.budgets, b)
}

// rollingLengths are those of windows that roll, in seconds; each budget has one of them at most.
var rollingLengths = []int{1, 10, 90, 900, 7200}

// roll gives a budget a window of this length that rolls.
func (b *budget) roll(seconds, limit int) {
	b.rolling, b.cells = map[int]int{seconds: limit}, map[int]map[int64]int{seconds: {}}
	b.daily = min(b.daily, limit*86400/seconds)
}

// calm ends all that is new and all that goes wrong; what waits then goes on.
func (w *world) calm() {
	w.quiet = true
	w.raise()
	for _, h := range w.holds {
		w.release(h)
	}
	for _, p := range w.processes {
		p.restart()
	}
	for _, b := range w.budgets {
		for _, org := range b.account.orgs {
			b.setMargin(org, 100)
		}
	}
}

// raise has all providers answer again.
func (w *world) raise() {
	for _, b := range w.budgets {
		b.provider.downUntil = time.Time{}
	}
}

func minOf(caps map[int]int) int {
	least := 1 << 30
	for _, n := range caps {
		least = min(least, n)
	}
	return least
}

// dueOf returns the keys of the rows that a process works on, in order.
func (w *world) dueOf(p *process) []dueKey {
	var out []dueKey
	for key, r := range w.due {
		if r.holder == p {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b dueKey) int { return w.due[a].leaseNo - w.due[b].leaseNo })
	return out
}

func (w *world) String() string { return fmt.Sprintf("%s, a week from %s", w.zone, w.began) }
