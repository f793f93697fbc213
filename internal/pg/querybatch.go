package pg

import (
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Query puts one question to db and takes its answer: a generated query, and what is done with its rows.
type Query func(db DB) error

// Batcher sends statements together: a transaction, or a pool, whose statements are then one transaction.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// QueryBatch puts several questions, in order, in one round trip. Each is a statement of its own, and sees what those
// before it have done and waited for. What one of them does with its answer must not depend on the others.
func QueryBatch(ctx context.Context, db Batcher, queries ...Query) error {
	return new(Pipeline).Send(ctx, db, queries...)
}

// GenericPlan is QueryBatch with plans that Postgres keeps: see InTxGenericPlan.
func GenericPlan(ctx context.Context, db Batcher, queries ...Query) error {
	return QueryBatch(ctx, db, append([]Query{keepPlans(ctx)}, queries...)...)
}

// keepPlans does what withGenericPlan does, in the transaction that statements without one are that go together.
func keepPlans(ctx context.Context) Query {
	return func(db DB) error {
		var set string
		return db.QueryRow(ctx,
			`SELECT set_config('plan_cache_mode', 'force_generic_plan', true)
				|| set_config('enable_seqscan', 'off', true)
				|| set_config('enable_bitmapscan', 'off', true)`).Scan(&set)
	}
}

var (
	errQueriedTwice = errors.New("pg: one question at a time")
	errCopy         = errors.New("pg: COPY cannot be pipelined")
	errNotSent      = errors.New("pg: the question was not put")
)

// pendingQuery is a Query under way. It runs up to its statement, and goes on once there is an answer.
type pendingQuery struct {
	wait func() bool
	sql  string
	args []any
	rows pgx.Rows
	// put tells that there is a statement, failed why it has no answer, err what came of the Query.
	put         bool
	failed, err error
}

// begin runs a Query up to its statement; goOn does the rest, and end gives up what has not gone on.
func begin(do Query) (a *pendingQuery, goOn, end func()) {
	a = &pendingQuery{failed: errNotSent}
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		a.wait = func() bool { return yield(struct{}{}) }
		a.err = do(a)
	})
	next()
	return a, func() { next() }, stop
}

// Query waits for the answer.
func (a *pendingQuery) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	if a.put {
		return nil, errQueriedTwice
	}
	a.put, a.sql, a.args = true, sql, args
	if !a.wait() {
		return nil, a.failed
	}
	return a.rows, nil
}

// QueryRow waits for the answer.
func (a *pendingQuery) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := a.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// Exec waits for the answer.
func (a *pendingQuery) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := a.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err() //nolint:wrapcheck // stands for the transaction's own
}

// CopyFrom is not for questions: it is a conversation of its own.
func (a *pendingQuery) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
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
