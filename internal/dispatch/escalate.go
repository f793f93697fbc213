package dispatch

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
	"flowlane/internal/quota"
)

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
	now, err := d.clock(ctx, d.Pool)
	if err != nil {
		return err
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
		return d.Due.Wake(ctx, tx, DueCounters, domain, now.Add(quota.NextReading(true, r.scarce, true, r.every, r.mature)))
	})
}

const (
	// LookFor bounds how long a pass waits for the provider's counters.
	LookFor = 3 * time.Second
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
	return c.meter.askEvery > 0 && !c.checked && !quota.ReadingHolds(c.d.looked.at(c.key.domain), c.now)
}

// drift notes by how many calls a reading differs from the row of its window, and alarms once a window where they differ by too much.
func (d *Dispatcher) drift(m *meter, row *db.FlowLedger, observed, n int) (drift int32, worst *int32) {
	limit := m.caps[int(row.WindowSeconds)]
	worst = quota.Worse(row.AlarmDrift, n, limit)
	if row.AlarmDrift == nil && worst != nil {
		d.opts.Log.Warn("the provider's counter and the ledger differ beyond the tolerance", "domain", m.key.domain, "bucket", m.key.bucket,
			"window", row.WindowSeconds, "starts_at", row.StartsAt, "observed", observed, "used", row.Own+row.ForeignSpend, "drift", n, "cap", limit)
	}
	return int32(n), worst
}
