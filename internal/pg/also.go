package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Also is what a caller adds to the transaction of a domain method: it comes last, with what the method made, and its
// error rolls everything back.
type Also[T any] func(ctx context.Context, tx pgx.Tx, made T) error

// Do runs what callers added to a transaction.
func Do[T any](ctx context.Context, tx pgx.Tx, made T, also []Also[T]) error {
	for _, a := range also {
		if err := a(ctx, tx, made); err != nil {
			return err
		}
	}
	return nil
}
