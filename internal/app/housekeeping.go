package app

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/due"
	"flowlane/internal/pg"
)

const (
	// housekeeping is the kind of the one due row that has old rows deleted.
	housekeeping = "housekeeping"
	// housekeepEvery is how often; the first time is a minute after a start, when there is more to do than that.
	housekeepEvery = time.Hour
	housekeepFirst = time.Minute
	// housekeepRows bounds one statement, housekeepTurn one turn of the handler.
	housekeepRows = 1000
	housekeepTurn = 5 * time.Second
	// auditRetention is how long audit rows are kept unless the operator says otherwise; the database deletes none that is younger
	// than leastAuditRetention.
	auditRetention      = 400 * 24 * time.Hour
	leastAuditRetention = 30 * 24 * time.Hour
	// callRetention is how long exchanges are kept unless the operator says otherwise.
	callRetention      = 7 * 24 * time.Hour
	leastCallRetention = time.Hour
)

// retain says how long what is only kept for a while is kept where the operator does not, and refuses what is too short.
func (cfg *Config) retain() error {
	cfg.AuditRetention = cmp.Or(cfg.AuditRetention, auditRetention)
	cfg.CallRetention = cmp.Or(cfg.CallRetention, callRetention)
	switch {
	case cfg.AuditRetention < leastAuditRetention:
		return fmt.Errorf("the audit log would be kept for %s: set FLOWLANE_AUDIT_RETENTION to %s or more",
			cfg.AuditRetention, leastAuditRetention)
	case cfg.CallRetention < leastCallRetention:
		return fmt.Errorf("calls would be kept for %s: set FLOWLANE_CALL_RETENTION to %s or more, or FLOWLANE_KEEP_CALLS to none",
			cfg.CallRetention, leastCallRetention)
	}
	return nil
}

// planUpkeep makes sure that the rows of housekeeping and of the sweep are there; an earlier time stays.
func (a *App) planUpkeep(ctx context.Context) error {
	return pg.InTx(ctx, a.Pool, func(ctx context.Context, tx pgx.Tx) error {
		now, err := db.New().ClockNow(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		if err := a.Scheduler.Wake(ctx, tx, housekeeping, "all", now.Add(housekeepFirst)); err != nil {
			return err //nolint:wrapcheck // says everything
		}
		return a.Scheduler.Wake(ctx, tx, sweeping, "all", now.Add(sweepEvery))
	})
}

// housekeep deletes what is only kept for a while, in bounded steps.
func (a *App) housekeep(ctx context.Context, _ *due.Lease) (time.Time, error) {
	q := db.New()
	steps := []func(context.Context, db.DBTX, int32) (int64, error){
		q.HousekeepLedger, q.HousekeepRolling, q.HousekeepCalls, q.HousekeepBackoffs, q.HousekeepIdempotencyKeys, q.HousekeepUsage, q.HousekeepFires, a.Webhooks.Housekeep, q.HousekeepWebhooks, q.HousekeepArrivals,
		q.HousekeepRefusedStarts, q.HousekeepChains, q.HousekeepSessions,
		a.housekeepExchanges,
		func(ctx context.Context, tx db.DBTX, most int32) (int64, error) {
			return q.HousekeepAudit(ctx, tx, db.HousekeepAuditParams{KeepSeconds: a.cfg.AuditRetention.Seconds(), MaxRows: most})
		},
	}
	began := time.Now()
	for _, step := range steps {
		for {
			n, err := step(ctx, a.Pool, housekeepRows)
			if err != nil {
				return time.Time{}, fmt.Errorf("delete old rows: %w", err)
			}
			if n < housekeepRows {
				break
			}
			if time.Since(began) > housekeepTurn {
				return due.Now(), nil
			}
		}
	}
	now, err := q.ClockNow(ctx, a.Pool)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return now.Add(housekeepEvery), nil
}

// housekeepExchanges deletes what calls sent and were answered that were made long ago. The time stands in their ids.
func (a *App) housekeepExchanges(ctx context.Context, conn db.DBTX, most int32) (int64, error) {
	q := db.New()
	now, err := q.ClockNow(ctx, conn)
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	var before uuid.UUID
	binary.BigEndian.PutUint64(before[:], uint64(now.Add(-a.cfg.CallRetention).UnixMilli())<<16)
	return q.HousekeepExchanges(ctx, conn, db.HousekeepExchangesParams{Before: before, MaxRows: most}) //nolint:wrapcheck // by the caller
}
