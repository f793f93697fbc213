package dispatch

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// reportedWindow names a window of a budget that answers tell of.
type reportedWindow struct {
	budgetKey
	seconds int
}

// learn takes over what an answer's headers tell of the windows that its call spent. A limit replaces that of the
// catalog, as one that was read with the counters does: it depends on the customer's plan. What is spent is raised to
// what the provider counted, and never lowered: an answer speaks of the time when it was written, and calls beside it
// may be in it or not. Limits that an owner has set stay, as they may be a part of what the provider gives: no more of
// them is left than of that. That it fails stops nobody.
func (d *Dispatcher) learn(ctx context.Context, p *outboundCall, answer *provider.Answer) {
	if p.meter == nil || len(answer.Header)+len(answer.Body) == 0 {
		return
	}
	for _, m := range p.meter.all() {
		for _, c := range provider.ReportedLimits(answer, m.rates) {
			if m.owned {
				limit := m.caps.All()[c.WindowSeconds]
				if c.Limit != limit && !provider.NamesWindow(answer, c.WindowSeconds) {
					continue // it may speak of a window that is over in a second, where the owner's lasts a day
				}
				c = provider.Counter{WindowSeconds: c.WindowSeconds, Value: limit - (c.Limit - c.Value)}
			}
			if err := d.learnWindow(ctx, m, c, answer.FinishedAt); err != nil && ctx.Err() == nil {
				d.opts.Log.Warn("take over what an answer tells of a budget", "domain", m.key.domain, "bucket",
					m.key.bucket, "error", err)
			}
		}
	}
}

func (d *Dispatcher) learnWindow(ctx context.Context, m *meter, c provider.Counter, answeredAt time.Time) error {
	k := reportedWindow{m.key, c.WindowSeconds}
	if last, known := d.reported.Load(k); c.Limit > 0 && (!known || last != c.Limit) {
		if err := d.putLimit(ctx, d.Pool, m, c); err != nil {
			return err
		}
		d.reported.Store(k, c.Limit)
	}
	plenty := c.Limit > 0 && (c.Limit-c.Value)*reportedScarce > c.Limit
	if c.Value <= 0 || plenty && !d.learned.due(k.String()+" "+strconv.Itoa(k.seconds), reportedEvery, answeredAt) {
		return nil
	}
	now, err := d.clock(ctx, d.Pool)
	if err != nil {
		return err
	}
	if m.rates.Rolls(c.WindowSeconds) {
		err = m.clampRolling(ctx, d.Pool, c, now)
	} else if start, end, ok := quota.Counted(now.Add(-m.skew-reportedWithin), now.Add(m.skew), c.WindowSeconds,
		m.loc); ok {
		_, err = d.q.LedgerClamp(ctx, d.Pool, db.LedgerClampParams{Domain: m.key.domain, Bucket: m.key.bucket,
			WindowSeconds: int32(c.WindowSeconds),
			StartsAt:      start, EndsAt: end, Observed: int32(c.Value)})
	}
	if err != nil {
		return fmt.Errorf("raise what is spent of %s: %w", m.key, err)
	}
	return nil
}

// What is spent is taken over from each answer where less than a fifth is left, else from one a second: it costs two
// statements.
const reportedScarce, reportedEvery = 5, time.Second

// reportedWithin is how old an answer may be when it is taken over: near the edge of a window nobody knows of which one
// it speaks.
const reportedWithin = time.Second
