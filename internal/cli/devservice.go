package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"flowlane/internal/pg"
)

// serviceRole is by whom the development service connects to its own Postgres, as one elsewhere should: it owns nothing.
const serviceRole = "flowlane_service"

// serviceDSN migrates the database at owner, an address of its owner, and returns the address for a service, with the
// same password.
func serviceDSN(ctx context.Context, owner string) (string, error) {
	address, err := url.Parse(owner)
	if err != nil {
		return "", fmt.Errorf("read the address of the database: %w", err)
	}
	pool, err := pg.Open(ctx, owner, pg.Options{MaxConns: 1})
	if err != nil {
		return "", fmt.Errorf("connect to the database: %w", err)
	}
	defer pool.Close()
	if err := pg.Migrate(ctx, pool); err != nil {
		return "", fmt.Errorf("migrate the database: %w", err)
	}
	if err := pg.GrantRuntime(ctx, pool, serviceRole); err != nil {
		return "", err //nolint:wrapcheck // says everything
	}
	password, _ := address.User.Password()
	login := "ALTER ROLE " + serviceRole + " LOGIN PASSWORD '" + strings.ReplaceAll(password, "'", "''") + "'"
	if _, err := pool.Exec(ctx, login); err != nil {
		return "", fmt.Errorf("let the service in: %w", err)
	}
	address.User = url.UserPassword(serviceRole, password)
	return address.String(), nil
}
