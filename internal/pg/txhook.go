package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// TxHook is what a caller adds to the transaction of a domain method: it comes last, with what the method made, and its
// error rolls everything back.
type TxHook[T any] func(ctx context.Context, tx pgx.Tx, made T) error

// RunHooks runs what callers added to a transaction.
func RunHooks[T any](ctx context.Context, tx pgx.Tx, made T, hooks []TxHook[T]) error {
	for _, a := range hooks {
		if err := a(ctx, tx, made); err != nil {
			return err
		}
	}
	return nil
}
