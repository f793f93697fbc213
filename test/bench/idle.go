package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"flowlane/internal/pg"
)

const (
	// idleFor is how long a process without work is watched. It is longer than a connection of Postgres may keep what
	// it counted to itself (10 s), which the same wait before it leaves out.
	idleFor = 20 * time.Second
	// noTransactions are those that watching takes by itself.
	noTransactions = 2
)

// idle watches a service that has nothing to do, and then a process of River alone that has one queue and no job.
func (b *smallBench) idle(ctx context.Context, _ int) ([]row, error) {
	rate, share, err := b.e.idle(ctx, b.h.s.pid)
	if err != nil {
		return nil, err
	}
	alone, err := spawn(ctx, b.e, roleRiver, dsnVariable+"="+b.e.dsn)
	if err != nil {
		return nil, err
	}
	_, raw, err := b.e.idle(ctx, alone.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%.1f transactions/s, %.2f %% of a core", rate, share)
	return []row{
		{what: "idle service, transactions", ours: text, ratio: rate, target: 5, most: true, unit: "a second"},
		{what: "idle service, processor", ours: text, raw: fmt.Sprintf("River alone %.2f %%", raw), ratio: share,
			target: 0.3,
			most:   true, unit: "%"},
	}, nil
}

// idle returns the transactions of all that use the database, a second, and the share of a core, in percent, of a
// process.
func (e *env) idle(ctx context.Context, pid int) (rate, share float64, err error) {
	look := func() (n int64, used time.Duration, err error) {
		const transactions = `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`
		if err := e.pool.QueryRow(ctx, transactions).Scan(&n); err != nil {
			return 0, 0, err
		}
		s, err := readStat(pid)
		return n, s.used, err
	}
	sleep(ctx, idleFor) // what there was to do before is done
	first, before, err := look()
	if err != nil {
		return 0, 0, err
	}
	sleep(ctx, idleFor)
	last, after, err := look()
	if err != nil {
		return 0, 0, err
	}
	lasted := idleFor.Seconds()
	return float64(last-first-noTransactions) / lasted, 100 * (after - before).Seconds() / lasted, nil
}

// runRiver is a process with a River client that has one queue, and no job.
func runRiver(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	pool, err := pg.Open(ctx, os.Getenv(dsnVariable), pg.Options{})
	if err != nil {
		return err
	}
	defer pool.Close()
	_, end, err := startRiver(ctx, &env{pool: pool})
	if err != nil {
		return err
	}
	defer end()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}
