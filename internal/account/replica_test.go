package account_test

import (
	"crypto/rand"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// TestAuthenticate_EveryReplicaWithinASecond keeps a key in use on a second replica, with a pool and a memory of its
// own, and measures how long it goes on working there.
func TestAuthenticate_EveryReplicaWithinASecond(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, r replicas) time.Time{
		"Revoked": func(t *testing.T, r replicas) time.Time {
			if _, err := r.first.RevokeKey(t.Context(), r.org.ID, r.caller.KeyID, false, 1); err != nil {
				t.Fatal(err)
			}
			return time.Now()
		},
		"Expired": func(t *testing.T, r replicas) (at time.Time) {
			err := r.pool.QueryRow(t.Context(),
				`UPDATE flow.api_key SET expires_at = clock_timestamp() + interval '0.2 s' WHERE id = $1 RETURNING expires_at`,
				r.caller.KeyID).Scan(&at)
			if err != nil {
				t.Fatal(err)
			}
			return at
		},
		"Suspended": func(t *testing.T, r replicas) time.Time {
			if _, err := r.pool.Exec(t.Context(), `UPDATE flow.organization SET status = 'suspended' WHERE id = $1`,
				r.org.ID); err != nil {
				t.Fatal(err)
			}
			return time.Now()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serveReplicas(t)
			ended := end(t, r)
			for {
				_, err := r.second.Authenticate(t.Context(), r.key, netip.Addr{})
				late := time.Since(ended)
				if fault.Is(err, fault.Unauthenticated) {
					if late < 0 {
						t.Errorf("refused %v too early", -late)
					}
					t.Logf("worked elsewhere for %v", late)
					return
				}
				if err != nil || late > time.Second {
					t.Fatalf("%v after its end the key still works elsewhere; error %v", late, err)
				}
			}
		})
	}
}

// replicas are two processes' worth of the service over one database; the second knows the key already.
type replicas struct {
	pool          *pgxpool.Pool
	first, second *account.Service
	org           account.Org
	key           string
	caller        account.Caller
}

func serveReplicas(t *testing.T) (r replicas) {
	t.Helper()
	dsn, pool := pgtest.NewDatabase(t)
	other, err := pg.Open(t.Context(), dsn, pg.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	replica := func(pool *pgxpool.Pool) *account.Service {
		svc, err := account.New(account.Config{
			Pool: pool, HashKeys: [][]byte{hashKey}, Random: rand.Reader, Now: time.Now,
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return svc
	}
	r.pool, r.first, r.second = pool, replica(pool), replica(other)
	if r.org, err = account.CreateOrg(t.Context(), pool, "Acme"); err != nil {
		t.Fatal(err)
	}
	if r.key, _, err = r.first.CreateKey(t.Context(), pool, account.NewKey{OrgID: r.org.ID, Name: "test"}); err != nil {
		t.Fatal(err)
	}
	if r.caller, err = r.second.Authenticate(t.Context(), r.key, netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	return r
}
