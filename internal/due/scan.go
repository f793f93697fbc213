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
	// scannedMost bounds what a process takes into the line of a kind that it has not made due itself: the rest become
	// jobs, which processes with less to do take.
	scannedMost = 64
	// scanApart is the least time between two scans that nobody asked for at once.
	scanApart = 20 * time.Millisecond
)

// Run is the scanner: it starts what falls due until ctx ends. Any number of processes may run it. It survives the loss
// of the database and goes on when that is back.
func (s *Scheduler) Run(ctx context.Context) {
	kinds := s.names()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing, whole := false, true
	next := time.Now()
	for {
		n, in, err := s.scan(ctx, kinds, whole)
		if whole {
			next = time.Now().Add(min(in, s.opts.ScanEvery))
			if err == nil {
				err = s.keepWaiting(ctx)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			s.opts.Log.Error("due work cannot be looked for; trying again", "error", err)
		case err == nil && failing:
			s.opts.Log.Info("due work is looked for again")
		}
		failing = err != nil
		if n < scanRows {
			whole = s.await(ctx, timer, next) || !time.Now().Before(next)
		}
	}
}

// await waits until it is time to look again: at the latest at the time given, sooner where work falls due before, but
// not at once again, so that what falls due together is taken together. It returns false where somebody has just made
// work due.
func (s *Scheduler) await(ctx context.Context, timer *time.Timer, at time.Time) (whole bool) {
	soonest := time.Now().Add(min(scanApart, s.opts.ScanEvery))
	for {
		if at.Before(soonest) {
			at = soonest
		}
		timer.Reset(time.Until(at))
		select {
		case <-ctx.Done():
			return true
		case <-timer.C:
			return true
		case sooner := <-s.sooner:
			if sooner.IsZero() {
				return false
			}
			if sooner.Before(at) {
				at = sooner
			}
		}
	}
}

// scan leases what is due, up to scanRows rows, and inserts the jobs in the same transaction, but for what this process
// does itself. A whole one looks first, which is all that an idle process does, and also takes over leases that have
// ended; next is how long until more falls due then.
func (s *Scheduler) scan(ctx context.Context, kinds []string, whole bool) (started int, next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	var lapsed []string
	if whole {
		look, err := db.New().DueLook(ctx, s.pool, kinds)
		if err != nil {
			return 0, s.opts.ScanEvery, fmt.Errorf("look for what is due: %w", err)
		}
		lapsed, next = look.Lapsed, time.Duration(look.Seconds*float64(time.Second))
		if next > 0 && len(lapsed) == 0 {
			return 0, next, nil
		}
	}
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		asked := time.Now()
		rows, err := db.New().DueTake(ctx, tx, db.DueTakeParams{Kinds: kinds, MaxRows: scanRows})
		if err != nil {
			return fmt.Errorf("take due rows: %w", err)
		}
		started = len(rows)
		var jobs []JobArgs
		if len(lapsed) > 0 && started < scanRows {
			if jobs, err = s.retake(ctx, tx, lapsed, scanRows-started); err != nil {
				return err
			}
			started += len(jobs)
		}
		most := map[string]int{}
		for _, row := range rows {
			k, err := s.kind(row.Kind)
			if err != nil {
				return err
			}
			if _, begun := most[row.Kind]; !begun {
				most[row.Kind] = scannedMost - s.local.waiting(row.Kind)
			}
			l := s.granted(k, JobArgs{row.Kind, row.Key, row.LeaseNo}, row.Failures, asked)
			if most[row.Kind]--; most[row.Kind] < 0 || !s.runLocally(ctx, l) {
				jobs = append(jobs, l.job())
			}
		}
		if len(jobs) == 0 {
			return nil
		}
		return s.queue.Insert(ctx, tx, jobs)
	})
	if err != nil {
		return 0, s.opts.ScanEvery, err
	}
	if started > 0 {
		next = 0 // there may be more; not where a lease has ended whose job waits, which is left alone
	}
	return started, next, nil
}

// retake leases rows anew whose lease has ended. Those whose job still waits for a worker are left alone: a job goes by
// the age of its lease, so that a row with a newer one than the job which has waited longest has a job of its own. To
// begin those anew would send them to the end of the line, and where the line is longer than a lease nothing in it
// would ever begin.
func (s *Scheduler) retake(ctx context.Context, tx pgx.Tx, lapsed []string, most int) ([]JobArgs, error) {
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
	rows, err := db.New().DueRetake(ctx, tx, db.DueRetakeParams{
		Kinds: lapsed, Floors: floors, MaxRows: int32(most), //nolint:gosec // at most scanRows
	})
	if err != nil {
		return nil, fmt.Errorf("take rows whose lease ended: %w", err)
	}
	jobs := make([]JobArgs, len(rows))
	for i, row := range rows {
		jobs[i] = JobArgs{DueKind: row.Kind, Key: row.Key, LeaseNo: row.LeaseNo}
	}
	return jobs, nil
}
