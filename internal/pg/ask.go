package pg

import (
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Ask puts one question to db and takes its answer: a generated query, and what is done with its rows.
type Ask func(db DB) error

// Batcher sends statements together: a transaction, or a pool, whose statements are then one transaction.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Together puts several questions, in order, in one round trip. Each is a statement of its own, and sees what those
// before it have done and waited for. What one of them does with its answer must not depend on the others.
func Together(ctx context.Context, db Batcher, asks ...Ask) error {
	return new(Pipeline).Send(ctx, db, asks...)
}

// Kept is Together with plans that Postgres keeps: see InTxKept.
func Kept(ctx context.Context, db Batcher, asks ...Ask) error {
	return Together(ctx, db, append([]Ask{keepPlans(ctx)}, asks...)...)
}

// keepPlans does what keep does, in the transaction that statements without one are that go together.
func keepPlans(ctx context.Context) Ask {
	return func(db DB) error {
		var set string
		return db.QueryRow(ctx, `SELECT set_config('plan_cache_mode', 'force_generic_plan', true) || set_config('enable_seqscan', 'off', true)`).Scan(&set)
	}
}

var (
	errAskedTwice = errors.New("pg: one question at a time")
	errCopy       = errors.New("pg: COPY cannot be pipelined")
	errNotAsked   = errors.New("pg: the question was not put")
)

// asked is an Ask under way. It runs up to its question, and goes on once there is an answer.
type asked struct {
	wait func() bool
	sql  string
	args []any
	rows pgx.Rows
	// put tells that there is a question, failed why it has no answer, err what came of the Ask.
	put         bool
	failed, err error
}

// begin runs an Ask up to its question; goOn does the rest, and end gives up what has not gone on.
func begin(do Ask) (a *asked, goOn, end func()) {
	a = &asked{failed: errNotAsked}
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		a.wait = func() bool { return yield(struct{}{}) }
		a.err = do(a)
	})
	next()
	return a, func() { next() }, stop
}

// Query waits for the answer.
func (a *asked) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	if a.put {
		return nil, errAskedTwice
	}
	a.put, a.sql, a.args = true, sql, args
	if !a.wait() {
		return nil, a.failed
	}
	return a.rows, nil
}

// QueryRow waits for the answer.
func (a *asked) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := a.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// Exec waits for the answer.
func (a *asked) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := a.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err() //nolint:wrapcheck // stands for the transaction's own
}

// CopyFrom is not for questions: it is a conversation of its own.
func (a *asked) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, errCopy
}

// oneRow is what pgx gives for a query of one row.
type oneRow struct {
	rows pgx.Rows
	err  error
}

// Scan scans the row.
func (r oneRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err //nolint:wrapcheck // stands for the transaction's own
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err //nolint:wrapcheck // stands for the transaction's own
	}
	r.rows.Close()
	return r.rows.Err() //nolint:wrapcheck // stands for the transaction's own
}
