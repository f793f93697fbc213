package due

import (
	"context"
	"fmt"
	"math"
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

// scan leases what is due, up to scanRows rows, and inserts the jobs in the same transaction, but for what this process is handed over.
func (s *Scheduler) scan(ctx context.Context, kinds []string) (started int, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		asked := time.Now()
		rows, err := db.New().DueTake(ctx, tx, db.DueTakeParams{Kinds: kinds, MaxRows: scanRows})
		if err != nil {
			return fmt.Errorf("take due rows: %w", err)
		}
		jobs, err := s.retake(ctx, tx, kinds, scanRows-len(rows))
		if err != nil {
			return err
		}
		started = len(rows) + len(jobs)
		for _, row := range rows {
			k, err := s.kind(row.Kind)
			if err != nil {
				return err
			}
			if l := s.granted(k, JobArgs{row.Kind, row.Key, row.LeaseNo}, row.Failures, asked); !s.handOver(ctx, l) {
				jobs = append(jobs, l.job())
			}
		}
		if len(jobs) == 0 {
			return nil
		}
		return s.queue.Insert(ctx, tx, jobs)
	})
	if err != nil {
		return 0, err
	}
	return started, nil
}

// retake leases rows anew whose lease has ended. Those whose job still waits for a worker are left alone: a job goes by the age of its
// lease, so that a row with a newer one than the job which has waited longest has a job of its own. To begin those anew would send
// them to the end of the line, and where the line is longer than a lease nothing in it would ever begin.
func (s *Scheduler) retake(ctx context.Context, tx pgx.Tx, kinds []string, most int) ([]JobArgs, error) {
	if most == 0 {
		return nil, nil
	}
	q := db.New()
	lapsed, err := q.DueLapsed(ctx, tx, kinds)
	if err != nil {
		return nil, fmt.Errorf("look for leases that ended: %w", err)
	}
	if len(lapsed) == 0 {
		return nil, nil
	}
	oldest, err := s.queue.Oldest(ctx, tx, lapsed)
	if err != nil {
		return nil, fmt.Errorf("look for jobs that wait: %w", err)
	}
	floors := make([]int64, len(lapsed))
	for i, kind := range lapsed {
		floors[i] = math.MaxInt64
		if no, waits := oldest[kind]; waits {
			floors[i] = no
		}
	}
	rows, err := q.DueRetake(ctx, tx, db.DueRetakeParams{Kinds: lapsed, Floors: floors, MaxRows: int32(most)}) //nolint:gosec // at most scanRows
	if err != nil {
		return nil, fmt.Errorf("take rows whose lease ended: %w", err)
	}
	jobs := make([]JobArgs, len(rows))
	for i, row := range rows {
		jobs[i] = JobArgs{DueKind: row.Kind, Key: row.Key, LeaseNo: row.LeaseNo}
	}
	return jobs, nil
}
