package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Planned has every query planned for its own arguments. That is for queries with optional filters: Postgres keeps one
// plan for all arguments of a prepared statement, and the one that fits all of them uses no filter to find its rows.
type Planned struct{ Pool DB }

// Query queries.
func (p Planned) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.Pool.Query(ctx, sql, planned(args)...) //nolint:wrapcheck // stands for the pool's own
}

// QueryRow queries for one row.
func (p Planned) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.Pool.QueryRow(ctx, sql, planned(args)...)
}

// Exec executes.
func (p Planned) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return p.Pool.Exec(ctx, sql, planned(args)...) //nolint:wrapcheck // stands for the pool's own
}

// CopyFrom copies.
func (p Planned) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource) (int64, error) {
	return p.Pool.CopyFrom(ctx, table, columns, rows) //nolint:wrapcheck // stands for the pool's own
}

// PlannedTx is Planned in a transaction.
type PlannedTx struct{ pgx.Tx }

// Query queries.
func (p PlannedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.Tx.Query(ctx, sql, planned(args)...) //nolint:wrapcheck // stands for the transaction's own
}

// QueryRow queries for one row.
func (p PlannedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.Tx.QueryRow(ctx, sql, planned(args)...)
}

// Exec executes.
func (p PlannedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return p.Tx.Exec(ctx, sql, planned(args)...) //nolint:wrapcheck // stands for the transaction's own
}

func planned(args []any) []any { return append([]any{pgx.QueryExecModeCacheDescribe}, args...) }
