package dispatch

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// reserve is what is left of a cap when its bucket is nearly spent: a tenth, at least one call.
func reserve(limit int) int { return max(1, limit/10) }

// BeforeEscalation is how many calls may go before a budget escalates; none where it is not above 0.
func BeforeEscalation(spans []Span) int {
	n := math.MaxInt
	for i := range spans {
		n = min(n, spans[i].Remaining()-reserve(spans[i].Cap))
	}
	return n
}

// Escalated reports whether a budget is so nearly spent that the provider's own counters are read before each claim. It is
// the rule of the dispatcher, and what headroom shows.
func Escalated(spans []Span) bool { return BeforeEscalation(spans) <= 0 }

// Drift is by how many calls a reading is above what stands in the ledger, or below it (negative), as far as our calls that are
// too young for the reading do not explain that. What others spent may have been put too high before, never too low.
func Drift(observed, own, recent, foreign int) int {
	switch least := max(0, own-recent); {
	case observed > own+foreign:
		return observed - own - foreign
	case observed < least:
		return observed - least
	}
	return 0
}

// Tolerated reports whether a drift is within 20% of the window's effective cap.
func Tolerated(drift, limit int) bool { return max(drift, -drift)*5 <= limit }

// worse returns the greater of two drifts beyond the tolerance; was is nil where there was none.
func worse(was *int32, drift, limit int) *int32 {
	now := int32(drift)
	if Tolerated(drift, limit) || was != nil && max(*was, -*was) >= max(now, -now) {
		return was
	}
	return &now
}

// idlePace is how many times longer than while calls go out it takes to the next reading while windows are open.
const idlePace = 20

// NextReading is how long after a reading of the provider's counters the next one is due, 0 for never. young: calls of ours
// were too young for it; scarce: a bucket is nearly spent by what it says; open: we spent in a window that is not over.
func NextReading(young, scarce, open bool, every, mature time.Duration) time.Duration {
	switch {
	case young && scarce: // it may have put others' spend too high
		return mature
	case young:
		return max(every, mature)
	case open:
		return idlePace * every
	}
	return 0
}

// look reads the counters of an account before something is sent. That it fails stops nobody: the ledger goes on counting
// our own calls, and the provider refuses what is too much.
func (d *Dispatcher) look(ctx context.Context, domain string) {
	bounded, cancel := context.WithTimeout(ctx, LookFor)
	defer cancel()
	if err := d.lookInto(bounded, domain); err != nil && ctx.Err() == nil { // a process that stops gives the reading up
		d.opts.Log.Warn("read the provider's counters", "domain", domain, "error", err)
	}
}

func (d *Dispatcher) lookInto(ctx context.Context, domain string) error {
	now, err := d.q.Clock(ctx, d.Pool)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it was for
	}
	org, err := d.q.DomainAnyOrg(ctx, d.Pool, &domain)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it was for
	}
	r, err := d.read(ctx, org, domain)
	if err != nil {
		return err
	}
	d.looked.mark(domain, now)
	if !r.young {
		return nil
	}
	// Another reading can hold the calls that this one could not.
	return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
		return d.Due.Wake(ctx, tx, DueCounters, domain, now.Add(NextReading(true, r.scarce, true, r.every, r.mature)))
	})
}

const (
	// LookFor bounds how long a pass waits for the provider's counters.
	LookFor = 3 * time.Second
	// LookHoldsFor is how long one reading is good for calls of a budget that is nearly spent.
	LookHoldsFor = time.Second
)

// reserveFresh claims calls, of a budget that is nearly spent after a look at the provider's counters. f are the calls
// that are under way.
func (d *Dispatcher) reserveFresh(ctx context.Context, k budgetKey, calls []*prepared, f *flight) (claimed, error) {
	got, err := d.claim(ctx, k, calls, f, false)
	if err != nil || !got.escalated || got.decided {
		return got, err
	}
	d.look(ctx, k.domain)
	return d.claim(ctx, k, calls, f, true)
}

// unread tells that the provider's counters must be read before what is left near exhaustion goes.
func (c *claim) unread() bool {
	return c.meter.askEvery > 0 && !c.checked && !LookHolds(c.d.looked.at(c.key.domain), c.now)
}

// LookHolds reports whether a reading is still good for calls of a budget that is nearly spent: those that go together share it.
func LookHolds(readAt, now time.Time) bool { return now.Sub(readAt) < LookHoldsFor }

// Afford says how many of the wanted calls may be sent now, given every window that they may count in: what Decide says, and,
// where the provider's counters must be read first (unread), what is left before the budget escalates. escalated: that is
// nothing, and the counters must be read.
func Afford(now time.Time, spans []Span, wanted int, unread bool) (g Grant, escalated bool) {
	g = Decide(now, spans, wanted)
	if !unread || g.Calls == 0 {
		return g, false
	}
	free := max(0, BeforeEscalation(spans))
	if free >= g.Calls {
		return g, false
	}
	return Grant{Calls: free}, free == 0
}

// drift notes by how many calls a reading differs from the row of its window, and alarms once a window where they differ by too much.
func (d *Dispatcher) drift(m *meter, row *db.FlowLedger, observed, n int) (drift int32, worst *int32) {
	limit := m.caps[int(row.WindowSeconds)]
	worst = worse(row.AlarmDrift, n, limit)
	if row.AlarmDrift == nil && worst != nil {
		d.opts.Log.Warn("the provider's counter and the ledger differ beyond the tolerance", "domain", m.key.domain, "bucket", m.key.bucket,
			"window", row.WindowSeconds, "starts_at", row.StartsAt, "observed", observed, "used", row.Own+row.ForeignSpend, "drift", n, "cap", limit)
	}
	return int32(n), worst
}
