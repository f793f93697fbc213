package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CustomPlan has every query planned for its own arguments. That is for queries with optional filters: Postgres keeps a
// generic plan for all arguments of a prepared statement, which uses no filter to find its rows.
type CustomPlan struct{ Pool DB }

// Query queries.
func (p CustomPlan) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.Pool.Query(ctx, sql, withCustomPlan(args)...) //nolint:wrapcheck // stands for the pool's own
}

// QueryRow queries for one row.
func (p CustomPlan) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.Pool.QueryRow(ctx, sql, withCustomPlan(args)...)
}

// Exec executes.
func (p CustomPlan) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return p.Pool.Exec(ctx, sql, withCustomPlan(args)...) //nolint:wrapcheck // stands for the pool's own
}

// CopyFrom copies.
func (p CustomPlan) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource) (int64, error) {
	return p.Pool.CopyFrom(ctx, table, columns, rows) //nolint:wrapcheck // stands for the pool's own
}

// CustomPlanTx is CustomPlan in a transaction.
type CustomPlanTx struct{ pgx.Tx }

// Query queries.
func (p CustomPlanTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.Tx.Query(ctx, sql, withCustomPlan(args)...) //nolint:wrapcheck // stands for the transaction's own
}

// QueryRow queries for one row.
func (p CustomPlanTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.Tx.QueryRow(ctx, sql, withCustomPlan(args)...)
}

// Exec executes.
func (p CustomPlanTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return p.Tx.Exec(ctx, sql, withCustomPlan(args)...) //nolint:wrapcheck // stands for the transaction's own
}

func withCustomPlan(args []any) []any { return append([]any{pgx.QueryExecModeCacheDescribe}, args...) }
