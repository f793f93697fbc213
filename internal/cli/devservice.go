package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"

	"flowlane/internal/pg"
)

// serviceRole is by whom the development service connects to its own Postgres, as one elsewhere should: it owns
// nothing.
const serviceRole = "flowlane_service"

// serviceDSN migrates the database at owner, an address of its owner, and returns the address for a service. Its
// password follows from the owner's, as several starts need the same one, and does not tell it.
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
	secret, _ := address.User.Password()
	sum := sha256.Sum256([]byte(serviceRole + "\n" + secret))
	password := hex.EncodeToString(sum[:])
	login := "ALTER ROLE " + serviceRole + " LOGIN PASSWORD '" + password + "'"
	if _, err := pool.Exec(ctx, login); err != nil {
		return "", fmt.Errorf("let the service in: %w", err)
	}
	address.User = url.UserPassword(serviceRole, password)
	return address.String(), nil
}

// confirm refuses a database that was restored, unless it is said that it may go on.
func (d *dev) confirm(ctx context.Context) error {
	pool, err := pg.Open(ctx, d.DatabaseURL, pg.Options{MaxConns: 1, Pooled: d.Pooled && d.postgres == nil})
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer pool.Close()
	why, err := pg.Moved(ctx, pool, d.Trust)
	switch {
	case err != nil || why == "":
		return err //nolint:wrapcheck // says everything
	case !d.Restored:
		return fmt.Errorf("the database is not the one on which Flowlane ran last, %s: start with --confirm-restore "+
			"to go on with it; what waits there is sent then", why)
	}
	return pg.Confirm(ctx, pool, nil) //nolint:wrapcheck // says everything
}
