package account_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/test/pgtest"
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
	text, row, err := b.svc.CreateKey(t.Context(), b.pool, account.NewKey{OrgID: b.org.ID, Name: "test",
		ExpiresAt: expires})
	if err != nil {
		t.Fatal(err)
	}
	return text, row
}

func mustFail(t *testing.T, svc *account.Service, key, why string) {
	t.Helper()
	if c, err := svc.Authenticate(t.Context(), key, netip.Addr{}); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("%s: got caller %+v, error %v", why, c, err)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, row := b.key(t, nil)

	got, err := b.svc.Authenticate(t.Context(), text, netip.Addr{})
	want := account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID, KeyID: row.ID,
		Grant: account.Grant{Role: account.Admin}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("caller %+v, error %v, want %+v", got, err, want)
	}
	if row.LastFour != text[len(text)-4:] || row.CreatedBy != b.org.AccountID || bytes.Contains(row.Hash,
		[]byte(text)) {
		t.Errorf("row %+v", row)
	}

	var used *time.Time
	if err := b.pool.QueryRow(t.Context(), `SELECT last_used_at FROM flow.api_key WHERE id = $1`,
		row.ID).Scan(&used); err != nil || used == nil {
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
	if _, err := changed.Authenticate(t.Context(), text, netip.Addr{}); err != nil {
		t.Errorf("a key from before the change of the hash key: %v", err)
	}
}

func TestAuthenticate_RevokedStopsWithinASecond(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, row := b.key(t, nil)
	other := service(t, b, hashKey)
	for _, svc := range []*account.Service{b.svc, other} {
		if _, err := svc.Authenticate(t.Context(), text, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.svc.RevokeKey(t.Context(), b.org.ID, row.ID, false, 1); err != nil {
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
	if _, err := b.svc.Authenticate(t.Context(), text, netip.Addr{}); err != nil {
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
	if _, err := b.pool.Exec(t.Context(), `UPDATE flow.organization SET status = 'suspended' WHERE id = $1`,
		b.org.ID); err != nil {
		t.Fatal(err)
	}
	mustFail(t, b.svc, text, "a key of a suspended organization")
}

func TestRevokeKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, row := b.key(t, nil)
	if _, err := b.svc.RevokeKey(t.Context(), uuid.New(), row.ID, false, 1); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's key: %v", err)
	}
	revokedAt := func() (at *time.Time) {
		if err := b.pool.QueryRow(t.Context(), `SELECT revoked_at FROM flow.api_key WHERE id = $1`,
			row.ID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	if at := revokedAt(); at != nil {
		t.Fatalf("revoked at %v by another organization", at)
	}
	for range 2 {
		if _, err := b.svc.RevokeKey(t.Context(), b.org.ID, row.ID, false, 1); err != nil {
			t.Fatal(err)
		}
	}
	if revokedAt() == nil {
		t.Error("not revoked")
	}
}

// made is a key that another one makes; tx is where.
func (b bundle) made(t *testing.T, tx db.DBTX, maker uuid.UUID) (text string, id uuid.UUID) {
	t.Helper()
	text, row, err := b.svc.CreateKey(t.Context(), tx, account.NewKey{OrgID: b.org.ID, Name: "made",
		CreatedByKey: maker})
	if err != nil {
		t.Fatal(err)
	}
	return text, row.ID
}

// TestRevokeKey_Cascade: a revoked key's whole offspring stops within a second on every replica.
func TestRevokeKey_Cascade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, root := b.key(t, nil)
	other := service(t, b, hashKey)
	var texts []string
	for maker, i := root.ID, 0; i < 3; i++ {
		text, id := b.made(t, b.pool, maker)
		texts, maker = append(texts, text), id
		for _, svc := range []*account.Service{b.svc, other} {
			if _, err := svc.Authenticate(t.Context(), text, netip.Addr{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := b.svc.RevokeKey(t.Context(), b.org.ID, root.ID, true, 2)
	if err != nil || got.Total != 3 || len(got.Made) != 2 || got.Made[0].Status != "revoked" {
		t.Errorf("revoked %+v, error %v", got, err)
	}
	for _, text := range texts {
		mustFail(t, b.svc, text, "the replica that revoked it, at once")
	}
	b.clock.advance(time.Second)
	for _, text := range texts {
		mustFail(t, other, text, "another replica, a second later")
	}
	_, _, err = b.svc.CreateKey(t.Context(), b.pool, account.NewKey{OrgID: b.org.ID, Name: "late",
		CreatedByKey: root.ID})
	if !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a revoked key made another: %v", err)
	}
}

// TestRevokeKey_Race: a key that is being made while its maker is revoked is revoked with it.
func TestRevokeKey_Race(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, root := b.key(t, nil)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	text, _ := b.made(t, tx, root.ID)
	revoked := make(chan error, 1)
	go func() {
		_, err := b.svc.RevokeKey(t.Context(), b.org.ID, root.ID, true, 1)
		revoked <- err
	}()
	for waiting := false; !waiting && len(revoked) == 0; {
		err := b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-revoked; err != nil {
		t.Fatal(err)
	}
	mustFail(t, b.svc, text, "a key that was made meanwhile")
}

// TestAuthenticate_LastUse: where a key comes from is noted at most once a minute.
func TestAuthenticate_LastUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, row := b.key(t, nil)
	first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, use := range []struct {
		after      time.Duration
		from, want netip.Addr
	}{
		{0, first, first}, {0, second, first}, {50 * time.Second, second, first}, {20 * time.Second, second, second},
		{2 * time.Minute, netip.Addr{}, netip.Addr{}},
	} {
		pgtest.MoveClock(t, b.pool, use.after)
		b.clock.advance(time.Second)
		if _, err := b.svc.Authenticate(t.Context(), text, use.from); err != nil {
			t.Fatal(err)
		}
		var at *netip.Addr
		if err := b.pool.QueryRow(t.Context(), `SELECT last_used_address FROM flow.api_key WHERE id = $1`,
			row.ID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		if got := at != nil; got != use.want.IsValid() || got && *at != use.want {
			t.Errorf("used by %v after %v, noted %v, want %v", use.from, use.after, at, use.want)
		}
	}
}

func TestCreateKey_UnknownOrganization(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, _, err := b.svc.CreateKey(t.Context(), b.pool, account.NewKey{OrgID: uuid.New(), Name: "x"}); !fault.Is(err,
		fault.NotFound) {
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
