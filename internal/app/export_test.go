package app

import "context"

// Housekeep is one turn of housekeeping.
func (a *App) Housekeep(ctx context.Context) error {
	_, err := a.housekeep(ctx, nil)
	return err
}
