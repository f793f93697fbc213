package pg

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// endTimeout bounds the end of a transaction, which goes on when the caller has gone: a commit that is cut leaves an
// outcome that somebody has to find out.
const endTimeout = 10 * time.Second

// readCommitted begins a transaction.
const readCommitted = "begin isolation level read committed"

// Beginner starts transactions: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs do in one read-committed transaction: committed when do returns nil, rolled back when it returns an error
// or panics. Nothing is retried. The error of do comes back as it is; CommitUnknown tells whether a failed commit may
// have happened all the same.
func InTx(ctx context.Context, pool Beginner, do func(ctx context.Context, tx pgx.Tx) error) error {
	return inTx(ctx, pool, readCommitted, do)
}

// withGenericPlan has Postgres keep the plans of a transaction's statements: each connection plans a statement once,
// whatever its arguments. That is for statements that find their rows by keys. An array of one or two keys is else
// planned anew each time, because it looks cheaper than one of an unknown number; that takes longer than to run it, and
// finds the same plan. One that was made while a table was small must go by an index, too. A key that all rows of a
// statement share must come with each of them: as a constant it has the plan of a small table read all of its rows.
//
// An index is read entry by entry, not for a bitmap: only so Postgres marks entries of rows that are gone. Of queues
// most rows are, and were all read again each time, which took ten times as long.
const withGenericPlan = "set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off; " +
	"set local enable_bitmapscan = off"

// InTxGenericPlan is InTx with plans that Postgres keeps: see withGenericPlan.
func InTxGenericPlan(ctx context.Context, pool Beginner, do func(ctx context.Context, tx pgx.Tx) error) error {
	return inTx(ctx, pool, readCommitted+"; "+withGenericPlan, do)
}

// InTxShared is InTxGenericPlan for work of several who do not know each other: a statement fails that waits for a lock
// for longer than a second, so that they do not wait for whom one of them waits for.
func InTxShared(ctx context.Context, pool Beginner, do func(ctx context.Context, tx pgx.Tx) error) error {
	return inTx(ctx, pool, readCommitted+"; "+withGenericPlan+"; set local lock_timeout = '1s'", do)
}

// Snapshot runs do in one transaction that only reads, and sees everything as it was at its first statement: for
// answers that put together what several statements found.
func Snapshot(ctx context.Context, pool Beginner, do func(ctx context.Context, tx pgx.Tx) error) error {
	return inTx(ctx, pool, "begin isolation level repeatable read read only", do)
}

func inTx(ctx context.Context, pool Beginner, sql string, do func(ctx context.Context, tx pgx.Tx) error) error {
	tx, release, err := beginTx(ctx, pool, sql)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	var then after
	ctx = context.WithValue(ctx, afterKey{}, &then)
	committing, committed := false, false
	defer func() {
		if !committing {
			rollback(ctx, tx)
			release()
		}
		for _, do := range then.ends {
			do(committed)
		}
	}()
	if err := do(ctx, tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("before commit: %w", err)
	}
	committing = true
	err = commit(ctx, tx)
	release()
	committed = err == nil
	if err == nil || CommitUnknown(err) {
		for _, do := range then.dos {
			do()
		}
	}
	return err
}

// after is what comes after a transaction: dos after its commit, ends whatever became of it.
type after struct {
	dos  []func()
	ends []func(committed bool)
}

type afterKey struct{}

// AfterCommit calls do once the transaction is committed, or may be, that InTx runs with this context; never where
// there is none. So do must be something that is only faster than finding out: a process can end before it. It must not
// wait.
func AfterCommit(ctx context.Context, do func()) {
	if then, ok := ctx.Value(afterKey{}).(*after); ok {
		then.dos = append(then.dos, do)
	}
}

// AtEnd calls do once the transaction is over that InTx runs with this context, and says whether it is certainly
// committed. It returns false, and calls nothing, where there is no such transaction. do must not wait. It knows
// nothing of savepoints, which nobody here uses: what is rolled back to one would pass for committed.
func AtEnd(ctx context.Context, do func(committed bool)) bool {
	then, ok := ctx.Value(afterKey{}).(*after)
	if ok {
		then.ends = append(then.ends, do)
	}
	return ok
}

// onCommit is told how long commits take.
var onCommit atomic.Pointer[func(took time.Duration)]

// OnCommit has observe called with how long each commit of this process took, from asking for it to its answer,
// whatever that was. It must be quick. The last one counts.
func OnCommit(observe func(took time.Duration)) { onCommit.Store(&observe) }

func commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	// Asked before: what pgx says afterwards about a connection that broke does not tell whether the commit was sent.
	open := !tx.Conn().IsClosed()
	if observe := onCommit.Load(); observe != nil {
		defer func(began time.Time) { (*observe)(time.Since(began)) }(time.Now())
	}
	if err := tx.Commit(ctx); err != nil {
		return &commitError{err: err, tried: open}
	}
	return nil
}

// rollback gives the connection back clean; one that cannot be rolled back is closed by the pool, which ends the
// transaction as well.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// commitError marks an error as that of a commit; tried tells that there was a connection to send it on.
type commitError struct {
	err   error
	tried bool
}

func (e *commitError) Error() string { return "commit: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

func asCommit(err error) (*commitError, bool) {
	var c *commitError
	return c, errors.As(err, &c)
}
