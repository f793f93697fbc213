package app

import "context"

// Housekeep is one turn of housekeeping.
func (a *App) Housekeep(ctx context.Context) error {
	_, err := a.housekeep(ctx, nil)
	return err
}

// HousekeepExchanges is one step of it.
func (a *App) HousekeepExchanges(ctx context.Context, most int32) (int64, error) {
	return a.housekeepExchanges(ctx, a.Pool, most)
}
