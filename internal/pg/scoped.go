package pg

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is what the parts of the service ask: a pool of pgx, or a Scoped one.
type Pool interface {
	DB
	Beginner
	Batcher
	Acquire(ctx context.Context) (*pgxpool.Conn, error)
}

type orgKey struct{}

// WithOrg has a Scoped pool show what runs with this context the rows of one organization alone.
func WithOrg(ctx context.Context, org uuid.UUID) context.Context {
	return context.WithValue(ctx, orgKey{}, org)
}

// AsWorker takes that back: for what a request has to know beyond its organization, and for queries whose index
// row-level security bars. Before the policy has passed a row Postgres asks an index only for conditions whose
// operators are known to tell nothing of rows; those of enums and arrays are not.
func AsWorker(ctx context.Context) context.Context { return context.WithValue(ctx, orgKey{}, nil) }

// Scoped is a pool on which what runs with a context of WithOrg runs in RequestRole, for its organization; all else as
// the user of the pool. The role is set with the statement, or with the beginning of its transaction, in the same round
// trip, and ends with it: behind a pooler of transactions the server is then somebody else's.
type Scoped struct {
	pool *pgxpool.Pool
	on   bool
}

// NewScoped returns a Scoped pool of which requests run in RequestRole where that is set up (RowSecurityAdvice tells),
// else as the user of the pool.
func NewScoped(ctx context.Context, pool *pgxpool.Pool) (*Scoped, error) {
	s, err := readRowSecurity(ctx, pool)
	return &Scoped{pool: pool, on: s.Roles && s.Member && s.Tables}, err
}

const (
	// setScope is for statements of which Postgres keeps the plan, setScopePlanned for those of CustomPlan.
	setScope        = "select set_config('role', '" + RequestRole + "', true), set_config('flow.org', $1, true)"
	setScopePlanned = setScope + ", set_config('plan_cache_mode', 'force_custom_plan', true)"
)

// org is the organization for which a statement runs.
func (s *Scoped) org(ctx context.Context) (uuid.UUID, bool) {
	org, is := ctx.Value(orgKey{}).(uuid.UUID)
	return org, is && s.on
}

// begin is what comes behind the beginning of a transaction.
func (s *Scoped) begin(ctx context.Context) string {
	org, is := s.org(ctx)
	if !is {
		return ""
	}
	return "; set local role " + RequestRole + "; set local flow.org = '" + org.String() + "'"
}

// errBeginQuery keeps transactions from beginning in the wrong role.
var errBeginQuery = errors.New("pg: a scoped transaction begins with a query")

// BeginTx begins a transaction by the query of its options; InTx is the usual way.
func (s *Scoped) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	if opts.BeginQuery == "" {
		return nil, errBeginQuery
	}
	opts.BeginQuery += s.begin(ctx)
	return s.pool.BeginTx(ctx, opts) //nolint:wrapcheck // stands for the pool's own
}

// Acquire returns a connection, on which everything runs as the user of the pool.
func (s *Scoped) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	return s.pool.Acquire(ctx) //nolint:wrapcheck // stands for the pool's own
}

// SendBatch sends statements together.
func (s *Scoped) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	org, is := s.org(ctx)
	if !is {
		return s.pool.SendBatch(ctx, b)
	}
	return s.send(ctx, setScope, org, b.QueuedQueries)
}

// send sends statements behind the one that sets their scope, whose result is read: an error of it comes with the
// others.
func (s *Scoped) send(ctx context.Context, scope string, org uuid.UUID, queries []*pgx.QueuedQuery) pgx.BatchResults {
	var b pgx.Batch
	b.Queue(scope, org.String())
	b.QueuedQueries = slices.Concat(b.QueuedQueries, queries)
	results := s.pool.SendBatch(ctx, &b)
	_, _ = results.Exec()
	return results
}

// Query queries.
func (s *Scoped) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	org, is := s.org(ctx)
	if !is {
		return s.pool.Query(ctx, sql, args...) //nolint:wrapcheck // stands for the pool's own
	}
	scope := setScope
	if len(args) > 0 && args[0] == pgx.QueryExecModeCacheDescribe { // a batch has one mode for all
		scope, args = setScopePlanned, args[1:]
	}
	results := s.send(ctx, scope, org, []*pgx.QueuedQuery{{SQL: sql, Arguments: args}})
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return rows, err //nolint:wrapcheck // stands for the pool's own
	}
	return &scopedRows{Rows: rows, results: results}, nil
}

// QueryRow queries for one row.
func (s *Scoped) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := s.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// Exec executes.
func (s *Scoped) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := s.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err() //nolint:wrapcheck // stands for the pool's own
}

// CopyFrom copies; not for a request: Postgres copies into no table that it secures.
func (s *Scoped) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource) (int64, error) {
	if _, is := s.org(ctx); is {
		return 0, errCopy
	}
	return s.pool.CopyFrom(ctx, table, columns, rows) //nolint:wrapcheck // stands for the pool's own
}

// scopedRows are the rows of the last statement of a batch. The connection is free, and a change committed, once both
// have been closed.
type scopedRows struct {
	pgx.Rows

	results pgx.BatchResults
	err     error
	closed  bool
}

// Next goes to the next row.
func (r *scopedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close gives up what was not read.
func (r *scopedRows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.Rows.Close()
	r.err = r.results.Close()
}

// Err returns what became of the statement.
func (r *scopedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err //nolint:wrapcheck // stands for the pool's own
	}
	return r.err
}
