package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
)

// Login makes a database user with these attributes (those of CREATE ROLE), and returns its name and connections of it
// to the database of dsn, which admin is connected to. The user, and what it owns there, goes when the test ends.
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
	address := mustURL(t, withUser(t, dsn, name, password))
	if at := admin.Config().ConnConfig; Pooled() { // the pooler knows no such user
		address.Host = net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))
	}
	t.Cleanup(func() {
		run("DROP OWNED BY " + name)
		run("DROP ROLE " + name)
	})
	var err error
	if pool, err = pg.Open(context.Background(), address.String(), pg.Options{MaxConns: 3}); err != nil {
		t.Fatalf("pgtest: connect as %s: %v", name, err)
	}
	t.Cleanup(pool.Close)
	return name, pool
}

// RuntimeDSN returns the address of the database of dsn, which NewDatabase made, for the user by whom a service
// connects: one that has the rights of pg.GrantRuntime and owns nothing.
func RuntimeDSN(t testing.TB, dsn string) string {
	t.Helper()
	return withUser(t, dsn, runtimeUser, passwordOf(dsn))
}

// withUser puts another user into an address.
func withUser(t testing.TB, dsn, name, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: the address is no URL: %v", err)
	}
	u.User = url.UserPassword(name, password)
	return u.String()
}
