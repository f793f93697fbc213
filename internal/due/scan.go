package due

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

const (
	// scanRows bounds one transaction of the scanner; when it comes back full, the next follows at once.
	scanRows    = 200
	scanTimeout = 10 * time.Second
)

// Run is the scanner: it starts what falls due until ctx ends. Any number of processes may run it. It survives the loss of
// the database and goes on when that is back.
func (s *Scheduler) Run(ctx context.Context) {
	kinds := s.names()
	ticker := time.NewTicker(s.opts.ScanEvery)
	defer ticker.Stop()
	failing := false
	for {
		n, err := s.scan(ctx, kinds)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			s.opts.Log.Error("due work cannot be looked for; trying again", "error", err)
		case err == nil && failing:
			s.opts.Log.Info("due work is looked for again")
		}
		failing = err != nil
		if n == scanRows {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.nudged:
		}
	}
}

// scan leases what is due, up to scanRows rows, and inserts the jobs in the same transaction.
func (s *Scheduler) scan(ctx context.Context, kinds []string) (started int, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := db.New().DueTake(ctx, tx, db.DueTakeParams{Kinds: kinds, MaxRows: scanRows})
		if err != nil {
			return fmt.Errorf("take due rows: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		jobs := make([]JobArgs, len(rows))
		for i, row := range rows {
			jobs[i] = JobArgs{DueKind: row.Kind, Key: row.Key, LeaseNo: row.LeaseNo}
		}
		started = len(jobs)
		return s.queue.Insert(ctx, tx, jobs)
	})
	if err != nil {
		return 0, err
	}
	return started, nil
}
