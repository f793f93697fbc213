package pg

import (
	"context"
	"errors"
	"slices"
	"strings"

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

// scope is for which organization something runs, and whether it sees what others have, too.
type scope struct {
	org      uuid.UUID
	asWorker bool
}

// WithOrg has a Scoped pool show what runs with this context the rows of one organization alone, and refuse it once the
// organization goes to another cell: MovedTo holds for the error.
func WithOrg(ctx context.Context, org uuid.UUID) context.Context {
	return context.WithValue(ctx, orgKey{}, scope{org: org})
}

// AsWorker has all rows be shown: for what a request has to know beyond its organization, and for queries whose index
// row-level security bars. Before the policy has passed a row Postgres asks an index only for conditions whose
// operators are known to tell nothing of rows; those of arrays are not. It is refused all the same once the
// organization goes.
func AsWorker(ctx context.Context) context.Context {
	in, is := ctx.Value(orgKey{}).(scope)
	if !is {
		return ctx
	}
	in.asWorker = true
	return context.WithValue(ctx, orgKey{}, in)
}

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
	// setScope comes before a statement. It fails where the organization goes to another cell, which it looks up before
	// the role is set: a plan that row-level security has had a part in is good for one role.
	setScope = "select " + stays + ", set_config('role', '" + RequestRole + "', true), set_config('flow.org', $1, true)"
	// mayRun is setScope for what sees all rows.
	mayRun = "select " + stays
	// planned comes behind one of them for statements of CustomPlan.
	planned = ", set_config('plan_cache_mode', 'force_custom_plan', true)"
)

// org is the organization of which alone a statement sees the rows.
func (s *Scoped) org(ctx context.Context) (uuid.UUID, bool) {
	in, is := ctx.Value(orgKey{}).(scope)
	return in.org, is && s.on && !in.asWorker
}

// setting is the statement that comes before others outside of a transaction; false for none.
func (s *Scoped) setting(ctx context.Context) (sql string, org uuid.UUID, is bool) {
	in, is := ctx.Value(orgKey{}).(scope)
	if sql = mayRun; s.on && !in.asWorker {
		sql = setScope
	}
	return sql, in.org, is
}

// begin is what comes behind the beginning of a transaction.
func (s *Scoped) begin(ctx context.Context) string {
	org, is := s.org(ctx)
	if !is {
		return ""
	}
	return "; set local role " + RequestRole + "; set local flow.org = '" + org.String() + "'"
}

// errBegin keeps transactions from beginning in the wrong role, and those that write from ending unseen (orgTx).
var errBegin = errors.New("pg: a scoped transaction that does not begin by InTx begins with a query, read only")

// BeginTx begins a transaction that only reads by the query of its options; InTx is the usual way.
func (s *Scoped) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	if !strings.Contains(opts.BeginQuery, "read only") {
		return nil, errBegin
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
	setting, org, is := s.setting(ctx)
	if !is {
		return s.pool.SendBatch(ctx, b)
	}
	return s.send(ctx, setting, org, b.QueuedQueries)
}

// send sends statements behind the one that sets their scope, whose result is read: an error of it comes with the
// others.
func (s *Scoped) send(ctx context.Context, setting string, org uuid.UUID, queries []*pgx.QueuedQuery) pgx.BatchResults {
	var b pgx.Batch
	b.Queue(setting, org.String())
	b.QueuedQueries = slices.Concat(b.QueuedQueries, queries)
	results := s.pool.SendBatch(ctx, &b)
	_, _ = results.Exec()
	return results
}

// Query queries.
func (s *Scoped) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	setting, org, is := s.setting(ctx)
	if !is {
		return s.pool.Query(ctx, sql, args...) //nolint:wrapcheck // stands for the pool's own
	}
	if len(args) > 0 && args[0] == pgx.QueryExecModeCacheDescribe { // a batch has one mode for all
		setting, args = setting+planned, args[1:]
	}
	results := s.send(ctx, setting, org, []*pgx.QueuedQuery{{SQL: sql, Arguments: args}})
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
