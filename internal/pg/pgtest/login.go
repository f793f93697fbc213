package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
)

// Login makes a database user with these attributes (those of CREATE ROLE), and returns its name and connections of it to the
// database of dsn, which admin is connected to. The user, and what it owns there, goes when the test ends.
func Login(t testing.TB, admin *pgxpool.Pool, dsn, attributes string) (name string, pool *pgxpool.Pool) {
	t.Helper()
	name = databasePrefix + strings.ToLower(rand.Text()[:16])
	password := rand.Text()
	run := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	run(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s' %s", name, password, attributes))
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: the address is no URL: %v", err)
	}
	u.User = url.UserPassword(name, password)
	t.Cleanup(func() {
		run("DROP OWNED BY " + name)
		run("DROP ROLE " + name)
	})
	if pool, err = pg.Open(context.Background(), u.String(), pg.Options{MaxConns: 3}); err != nil {
		t.Fatalf("pgtest: connect as %s: %v", name, err)
	}
	t.Cleanup(pool.Close)
	return name, pool
}
