package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

const (
	// sweeping is the kind of the one due row that has lost work found.
	sweeping = "sweep"
	// sweepEvery is how often. It is what a lost wake-up costs, while there are fewer than sweepMost budgets and
	// batches with open work.
	sweepEvery = 30 * time.Second
	// sweepMost bounds the budgets, or batches, that one sweep looks at; the next one begins behind them.
	sweepMost = 10_000
)

// sweptKinds are the kinds of due rows that the sweep misses, in the order in which it wakes them.
var sweptKinds = []string{run.DueDispatch, dispatch.DueReconcile, run.DueSlices, run.DueWait}

// sweeper finds work that nobody is going to do: it is ready, and has no due row. There should be none.
type sweeper struct {
	mu sync.Mutex
	// after is where the last sweep stopped, by kind.
	after map[string]string
}

// swept is a key that was looked at.
type swept struct {
	kind, key string
	lost      bool
}

// sweep wakes work that was lost, counts it, and says so.
func (a *App) sweep(ctx context.Context, l *due.Lease) (time.Time, error) {
	a.sweeper.mu.Lock()
	defer a.sweeper.mu.Unlock()
	return time.Time{}, pg.InTx(ctx, a.Pool, func(ctx context.Context, tx pgx.Tx) error {
		found, now, err := a.sweeper.find(ctx, tx)
		if err != nil {
			return err
		}
		after := map[string]string{}
		for _, f := range found {
			if !f.lost {
				after[f.kind] = f.key
				continue
			}
			if err := a.Scheduler.Wake(ctx, tx, f.kind, f.key, time.Time{}); err != nil {
				return err //nolint:wrapcheck // says everything
			}
			pg.AfterCommit(ctx, func() {
				a.metrics.swept.WithLabelValues(f.kind).Inc()
				a.cfg.Log.Warn("work was ready that nobody was to do; it is woken", "kind", f.kind, "key", f.key)
			})
		}
		pg.AfterCommit(ctx, func() { a.sweeper.after = after })
		return l.Finish(ctx, tx, now.Add(sweepEvery))
	})
}

// find asks for what is lost, all in one round trip. Of a kind with more than is looked at, what is not lost comes
// last: it says where to go on.
func (s *sweeper) find(ctx context.Context, tx pgx.Tx) (found []swept, now time.Time, err error) {
	byKind := map[string][]swept{}
	budgets := func(kind, domain, bucket string, lost bool) {
		byKind[kind] = append(byKind[kind], swept{kind, run.DispatchKey(domain, bucket), lost})
	}
	batches := func(kind string, id uuid.UUID, lost bool) {
		byKind[kind] = append(byKind[kind], swept{kind, id.String(), lost})
	}
	q := db.New()
	err = pg.QueryBatch(ctx, tx, func(tx pg.DB) error {
		domain, bucket, _ := strings.Cut(s.after[run.DueDispatch], "\n")
		rows, err := q.SweepQueues(ctx, tx, db.SweepQueuesParams{AfterDomain: domain, AfterBucket: bucket,
			Most: sweepMost})
		for _, r := range rows {
			budgets(run.DueDispatch, r.Domain, r.Bucket, r.Lost)
		}
		return err
	}, func(tx pg.DB) error {
		domain, bucket, _ := strings.Cut(s.after[dispatch.DueReconcile], "\n")
		rows, err := q.SweepCalls(ctx, tx, db.SweepCallsParams{AfterDomain: domain, AfterBucket: bucket,
			Most: sweepMost})
		for _, r := range rows {
			budgets(dispatch.DueReconcile, r.Domain, r.Bucket, r.Lost)
		}
		return err
	}, func(tx pg.DB) error {
		rows, err := q.SweepSlices(ctx, tx, db.SweepSlicesParams{After: s.id(run.DueSlices), Most: sweepMost})
		for _, r := range rows {
			batches(run.DueSlices, r.BatchID, r.Lost)
		}
		return err
	}, func(tx pg.DB) error {
		rows, err := q.SweepWaits(ctx, tx, db.SweepWaitsParams{After: s.id(run.DueWait), Most: sweepMost})
		for _, r := range rows {
			batches(run.DueWait, r.BatchID, r.Lost)
		}
		return err
	}, func(tx pg.DB) (err error) {
		now, err = q.ClockNow(ctx, tx)
		return err
	})
	if err != nil {
		return nil, now, fmt.Errorf("look for work that nobody is to do: %w", err)
	}
	for _, kind := range sweptKinds {
		found = append(found, byKind[kind]...)
	}
	return found, now, nil
}

// id is the batch at which the last sweep of a kind stopped.
func (s *sweeper) id(kind string) uuid.UUID {
	id, err := uuid.Parse(s.after[kind])
	if err != nil {
		return uuid.Nil
	}
	return id
}
