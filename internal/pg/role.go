package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// makeRole makes a role that cannot log in, unless it is there. Another database of the server may be migrated at the
// same time, and roles belong to the server. Error: one for which IsRefused holds where this user may not make roles.
func makeRole(ctx context.Context, db DB, role string) error {
	_, err := db.Exec(ctx, "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" NOLOGIN")
	if err != nil && !isThere(err) {
		return fmt.Errorf("make the role %s: %w", role, err)
	}
	return nil
}

// IsRefused reports whether err is that the database user lacks a right.
func IsRefused(err error) bool {
	pe, ok := asPg(err)
	return ok && pe.Code == "42501"
}

// isThere tells that what was to be made is there by now.
func isThere(err error) bool {
	pe, ok := asPg(err)
	return ok && (pe.Code == "42710" || pe.Code == "23505")
}
