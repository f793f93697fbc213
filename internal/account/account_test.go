package account_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg/pgtest"
)

type bundle struct {
	pool  *pgxpool.Pool
	svc   *account.Service
	org   account.Org
	clock *clock
}

// clock is moved by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

var hashKey = bytes.Repeat([]byte{7}, 32)

func setup(t *testing.T) bundle {
	t.Helper()
	pool := pgtest.New(t)
	b := bundle{pool: pool, clock: &clock{at: time.Unix(1_700_000_000, 0)}}
	b.svc = service(t, b, hashKey)
	var err error
	if b.org, err = account.CreateOrg(t.Context(), pool, "Acme"); err != nil {
		t.Fatal(err)
	}
	return b
}

// service returns another replica over the same database.
func service(t *testing.T, b bundle, hashKeys ...[]byte) *account.Service {
	t.Helper()
	svc, err := account.New(account.Config{
		Pool: b.pool, HashKeys: hashKeys, Random: rand.Reader, Now: b.clock.now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

func (b bundle) key(t *testing.T, expires *time.Time) (string, db.FlowApiKey) {
	t.Helper()
	text, row, err := b.svc.CreateKey(t.Context(), b.pool, account.NewKey{OrgID: b.org.ID, Name: "test", ExpiresAt: expires})
	if err != nil {
		t.Fatal(err)
	}
	return text, row
}

func mustFail(t *testing.T, svc *account.Service, key, why string) {
	t.Helper()
	if c, err := svc.Authenticate(t.Context(), key); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("%s: got caller %+v, error %v", why, c, err)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, row := b.key(t, nil)

	got, err := b.svc.Authenticate(t.Context(), text)
	want := account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID, KeyID: row.ID, Role: account.Admin}
	if err != nil || got != want {
		t.Fatalf("caller %+v, error %v, want %+v", got, err, want)
	}
	if row.LastFour != text[len(text)-4:] || row.CreatedBy != b.org.AccountID || bytes.Contains(row.Hash, []byte(text)) {
		t.Errorf("row %+v", row)
	}

	var used *time.Time
	if err := b.pool.QueryRow(t.Context(), `SELECT last_used_at FROM flow.api_key WHERE id = $1`, row.ID).Scan(&used); err != nil || used == nil {
		t.Errorf("last use %v, error %v", used, err)
	}

	other := service(t, b, bytes.Repeat([]byte{8}, 32))
	foreign, _, err := other.CreateKey(t.Context(), b.pool, account.NewKey{OrgID: b.org.ID, Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	mustFail(t, b.svc, foreign, "a well-formed key under another hash key")
	mustFail(t, b.svc, "flow_nonsense", "nonsense")
}

func TestAuthenticate_OldHashKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, _ := b.key(t, nil)
	changed := service(t, b, bytes.Repeat([]byte{9}, 32), hashKey)
	if _, err := changed.Authenticate(t.Context(), text); err != nil {
		t.Errorf("a key from before the change of the hash key: %v", err)
	}
}

func TestAuthenticate_RevokedStopsWithinASecond(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, row := b.key(t, nil)
	other := service(t, b, hashKey)
	for _, svc := range []*account.Service{b.svc, other} {
		if _, err := svc.Authenticate(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.svc.RevokeKey(t.Context(), b.org.ID, row.ID); err != nil {
		t.Fatal(err)
	}
	mustFail(t, b.svc, text, "the replica that revoked it, at once")
	b.clock.advance(time.Second)
	mustFail(t, other, text, "another replica, a second later")
}

func TestAuthenticate_Expired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	soon := time.Now().Add(time.Hour)
	text, _ := b.key(t, &soon)
	if _, err := b.svc.Authenticate(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	pgtest.MoveClock(t, b.pool, 2*time.Hour)
	b.clock.advance(time.Second)
	mustFail(t, b.svc, text, "an expired key")
	_, _, err := b.svc.CreateKey(t.Context(), b.pool, account.NewKey{OrgID: b.org.ID, Name: "x", ExpiresAt: &soon})
	if !fault.Is(err, fault.Unprocessable) {
		t.Errorf("creating a key that has expired: %v", err)
	}
}

func TestAuthenticate_SuspendedOrganization(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, _ := b.key(t, nil)
	if _, err := b.pool.Exec(t.Context(), `UPDATE flow.organization SET status = 'suspended' WHERE id = $1`, b.org.ID); err != nil {
		t.Fatal(err)
	}
	mustFail(t, b.svc, text, "a key of a suspended organization")
}

func TestRevokeKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, row := b.key(t, nil)
	if err := b.svc.RevokeKey(t.Context(), uuid.New(), row.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's key: %v", err)
	}
	revokedAt := func() (at *time.Time) {
		if err := b.pool.QueryRow(t.Context(), `SELECT revoked_at FROM flow.api_key WHERE id = $1`, row.ID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	if at := revokedAt(); at != nil {
		t.Fatalf("revoked at %v by another organization", at)
	}
	for range 2 {
		if err := b.svc.RevokeKey(t.Context(), b.org.ID, row.ID); err != nil {
			t.Fatal(err)
		}
	}
	if revokedAt() == nil {
		t.Error("not revoked")
	}
}

func TestCreateKey_UnknownOrganization(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, _, err := b.svc.CreateKey(t.Context(), b.pool, account.NewKey{OrgID: uuid.New(), Name: "x"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("error %v", err)
	}
}

func TestFromContext_WithoutCallerPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("an unsecured operation got a caller")
		}
	}()
	account.FromContext(context.Background())
}
