package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/pacing"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// window names a window by its length and its start in Unix seconds.
type window struct {
	seconds int
	start   int64
}

func windowOf(s *quota.Window) window { return window{s.Seconds, s.Start.Unix()} }

// eachWindow goes through the windows of a call in one order.
func eachWindow(c quota.CountsIn, do func(window)) {
	for _, seconds := range quota.WindowLengths {
		for _, start := range c[quota.WindowKind{Seconds: seconds}] {
			do(window{seconds, start})
		}
	}
}

// row is a row of the ledger.
type row struct {
	own, foreign, unsure int
	// observedAt is as of when the provider's counter was read last.
	observedAt time.Time
}

// budget is one bucket of an account, as the database has it.
type budget struct {
	w       *world
	no      int
	account *account
	// raw are the provider's caps, margins those that organizations set, in percent.
	raw map[int]int
	// rolling are those of windows that roll, cells how many calls count there.
	rolling map[int]int
	cells   map[int]map[int64]int
	margins map[uuid.UUID]int
	spacing time.Duration
	// perCall is how many records a call takes, most how many calls of a lane are under way, group how many are claimed
	// together.
	perCall, most, group int
	// daily is about what a day lets through.
	daily               int
	timeout, latency    time.Duration
	ledger              map[window]*row
	nextCallAt, backoff time.Time
	standings           []quota.LaneShare
	batches             []*simBatch
	// open are the calls that are not over, recent those that a reading may miss, too.
	open, recent []*call
	// took is how long the last calls were under way.
	took     []took
	provider *platform
	// refusals: the provider counts what it refuses, too.
	refusals bool
}

type took struct {
	claimedAt time.Time
	took      time.Duration
}

func (b *budget) dispatchKey() dueKey  { return dueKey{run.DueDispatch, b.no} }
func (b *budget) reconcileKey() dueKey { return dueKey{dispatch.DueReconcile, b.no} }

// caps are the effective caps.
func (b *budget) caps() map[int]int {
	lowest := b.lowest()
	out := make(map[int]int, len(b.raw))
	for seconds, n := range b.raw {
		out[seconds] = quota.AfterMargin(n, lowest)
	}
	return out
}

// lowest is the lowest margin of its organizations, in percent.
func (b *budget) lowest() int {
	lowest := 100
	for _, org := range b.account.orgs {
		if n := b.margins[org]; n > 0 {
			lowest = min(lowest, n)
		}
	}
	return lowest
}

func (b *budget) row(k window) *row {
	if b.ledger[k] == nil {
		b.ledger[k] = &row{}
	}
	return b.ledger[k]
}

// spans are the windows that a call may count in which is sent from now on, with their spend.
func (b *budget) spans(now time.Time) []quota.Window {
	out := quota.Windows(b.caps(), now, now.Add(b.timeout), b.account.skew, b.account.loc)
	for i := range out {
		s := &out[i]
		if r := b.ledger[windowOf(s)]; r != nil {
			s.Own, s.Foreign, s.Unsure = r.own, r.foreign, r.unsure
		}
	}
	for _, seconds := range quota.Lengths(b.rolling) {
		out = append(out, quota.Roll(seconds, quota.AfterMargin(b.rolling[seconds], b.lowest()), b.log(seconds), now,
			now.Add(b.timeout)))
	}
	return out
}

// log are the cells of a rolling window.
func (b *budget) log(seconds int) (out []quota.Cell) {
	for _, no := range slices.Sorted(maps.Keys(b.cells[seconds])) {
		if !quota.CellOver(no, seconds).After(b.w.now) {
			delete(b.cells[seconds], no)
			continue
		}
		out = append(out, quota.Cell{No: no, Own: b.cells[seconds][no]})
	}
	return out
}

// rolledOff is when nothing counts any more of what does now.
func (b *budget) rolledOff(seconds int) (at time.Time) {
	for _, c := range b.log(seconds) {
		if c.Own > 0 {
			at = later(at, quota.CellOver(c.No, seconds))
		}
	}
	return at
}

// count puts calls into the rolling windows of in, or takes them out.
func (b *budget) count(in quota.CountsIn, n int) {
	for k, cells := range in {
		if k.Rolls && len(cells) > 0 {
			b.cells[k.Seconds][cells[0]] += n
		}
	}
}

// debit is the conditional debit: all rows or none.
func (b *budget) debit(spans []quota.Window, n int) bool {
	for i := range spans {
		switch s := &spans[i]; {
		case s.Rolls && s.Own+n > s.Cap:
			return false
		case s.Rolls:
		case b.row(windowOf(s)).own+b.row(windowOf(s)).foreign+n > s.Cap:
			return false
		}
	}
	if b.w.strike(faultSkipDebit) {
		n--
	}
	for i := range spans {
		if s := &spans[i]; s.Rolls {
			b.cells[s.Seconds][s.Cell] += n
			continue
		}
		b.row(windowOf(&spans[i])).own += n
		b.account.spentUntil = later(b.account.spentUntil, spans[i].End)
	}
	return true
}

// strike tells that the deliberate fault is made here.
func (w *world) strike(f fault) bool {
	if w.fault != f {
		return false
	}
	w.faultAt--
	return w.faultAt == 0
}

func (b *budget) setMargin(org uuid.UUID, percent int) {
	b.margins[org] = percent
	b.wakeWaiting()
}

// wakeWaiting has the budget looked at where work waits.
func (b *budget) wakeWaiting() {
	for _, t := range b.batches {
		if len(t.queue) > 0 {
			b.w.wake(b.dispatchKey(), b.w.now)
			return
		}
	}
}

// inFlight counts the calls under way by lane.
func (b *budget) inFlight(k quota.LaneKey, now time.Time) (n int) {
	for _, c := range b.open {
		if c.state == "intent" && c.lane == k && c.sendBefore.After(now.Add(-margin)) && !c.probe {
			n++
		}
	}
	return n
}

// standing returns where a lane stands; it is made where it has not sent yet.
func (b *budget) standing(k quota.LaneKey) *quota.LaneShare {
	i := slices.IndexFunc(b.standings, func(s quota.LaneShare) bool { return s.LaneKey == k })
	if i < 0 {
		s := quota.LaneShare{LaneKey: k}
		if o := slices.IndexFunc(b.standings, func(s quota.LaneShare) bool { return s.Org == k.Org }); o >= 0 {
			s.OrgTag = b.standings[o].OrgTag
		}
		i, b.standings = len(b.standings), append(b.standings, s)
	}
	b.standings[i].Weight = b.account.lanes[k].weight
	return &b.standings[i]
}

// batch is the work of one trigger: records that wait for calls of one task.
type simBatch struct {
	w      *world
	no     int
	lane   quota.LaneKey
	budget *budget
	status batch.BatchStatus
	// pausedFrom is the status before the pause, paused the mark of its queue.
	pausedFrom batch.BatchStatus
	paused     bool
	high       bool
	records    []*record
	queue      []*record
	counts     map[batch.Status]int
	// check is the outcome check of its calls; settles is how long the provider takes until its lookup is true.
	check   string
	settles time.Duration
	retry   definition.Retry
	// policy paces it, allowance is what it may still claim until lapsesAt.
	policy              *pacing.Policy
	pacedAt, paceNextAt time.Time
	allowance           int64
	lapsesAt            time.Time
}

func (t *simBatch) pacingKey() dueKey { return dueKey{run.DuePacing, t.no} }

// record is one job.
type record struct {
	batch   *simBatch
	no      int
	status  batch.Status
	readyAt time.Time
	attempt int
	call    *call
	// accepted is how often the provider took it.
	accepted int
	endedAt  time.Time
}

// call is a request to the provider; it is written down before it is sent.
type call struct {
	no         int
	b          *budget
	lane       quota.LaneKey
	batch      *simBatch
	records    []*record
	check      string
	state      string
	probe      bool
	claimedAt  time.Time
	sendBefore time.Time
	answeredAt time.Time
	counts     quota.CountsIn
	checks     int
	nextAt     time.Time
	// arrivedAt is when the provider had it, accepted whether it took it; visibleAt is when its lookup knows of it.
	arrivedAt time.Time
	accepted  bool
	visibleAt time.Time
}

// move changes where a record stands.
func (t *simBatch) move(rec *record, to batch.Status) {
	t.w.check.moves(rec, to)
	t.counts[rec.status]--
	t.counts[to]++
	rec.status = to
	if batch.Terminal(to) {
		rec.endedAt = t.w.now
	}
}

// become changes the status of a batch.
func (t *simBatch) become(to batch.BatchStatus) {
	t.w.check.becomes(t, to)
	if to == batch.BatchPaused {
		t.pausedFrom = t.status
	} else {
		t.pausedFrom = ""
	}
	t.status = to
}

// terminal counts the records that are over.
func (t *simBatch) terminal() (n int) {
	for _, s := range batch.Statuses {
		if batch.Terminal(s) {
			n += t.counts[s]
		}
	}
	return n
}

// end ends a batch whose records are all over; one that is paused ends at its release.
func (t *simBatch) end() {
	if t.terminal() < len(t.records) || batch.BatchTerminal(t.status) || t.status == batch.BatchPaused {
		return
	}
	good := t.counts[batch.Completed] + t.counts[batch.Accepted]
	switch {
	case good == len(t.records):
		t.become(batch.BatchCompleted)
	case good == 0:
		t.become(batch.BatchFailed)
	default:
		t.become(batch.BatchPartiallyFailed)
	}
}

// requeue puts records back, of a batch that goes on.
func (t *simBatch) requeue(records []*record, readyAt time.Time, attempted bool) {
	for _, rec := range records {
		rec.call = nil
		if t.status == batch.BatchCancelled {
			t.move(rec, batch.Unprocessed)
			continue
		}
		t.move(rec, batch.Queued)
		rec.readyAt = readyAt
		if attempted {
			rec.attempt++
		}
		t.queue = append(t.queue, rec)
		t.w.wake(t.budget.dispatchKey(), readyAt)
	}
	slices.SortStableFunc(t.queue, func(a, b *record) int {
		if c := a.readyAt.Compare(b.readyAt); c != 0 {
			return c
		}
		return a.no - b.no
	})
}

// ready returns up to n records that may be claimed now.
func (t *simBatch) ready(n int, now time.Time) []*record {
	if t.policy != nil {
		n = int(min(int64(n), t.allowance))
	}
	var out []*record
	for _, rec := range t.queue {
		if len(out) == n || rec.readyAt.After(now) {
			break
		}
		out = append(out, rec)
	}
	return out
}
