package vault_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/platform/vault"
	"flowlane/test/pgtest"
)

func root(t *testing.T, v *vault.Vault, pool *pgxpool.Pool) vault.Root {
	t.Helper()
	r, err := v.Root(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVault_Root(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	first := root(t, open(t, key(t, 1)), pool)
	if again := root(t, open(t, key(t, 1)), pool); first != again {
		t.Error("the second start has another root key")
	}
	if other := root(t, open(t, key(t, 1)), pgtest.New(t)); first == other {
		t.Error("two installations have one root key")
	}
	if bytes.Equal(first.Derive("api-key"), first.Derive("cursor")) || len(first.Derive("cursor")) != 32 {
		t.Error("two purposes gave one key, or not 32 bytes")
	}
	var stored []byte
	if err := pool.QueryRow(t.Context(), "SELECT wrapped FROM flow.root_key").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, key(t, 2)).Root(t.Context(), pool); err == nil || !strings.Contains(err.Error(),
		vault.KEKVariable) {
		t.Errorf("another key-encryption key: %v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v", first, first, first); text != "[redacted] [redacted] [redacted]" {
		t.Errorf("printed: %s", text)
	}
}

// TestVault_Rewrap replaces the key-encryption key while processes with the old one, both, and the new one read and
// write.
func TestVault_Rewrap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := root(t, b.vault, b.pool)
	orgs := []uuid.UUID{b.org, b.addOrg(t), b.addOrg(t)}
	secret := uuid.New()
	b.put(t, orgs[0], secret, "of the old key")
	b.put(t, orgs[1], uuid.New(), "of another organization")

	both, err := vault.New(key(t, 1), key(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	next, err := vault.New(key(t, 2), key(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	b.vault = next
	late := uuid.New()
	b.put(t, orgs[2], late, "of the new key")
	b.vault = both
	b.mustGet(t, orgs[2], late, "of the new key", 1)

	for i, want := range []int{3, 0} { // the root and two organizations, then nothing
		n, err := next.Rewrap(t.Context(), b.pool)
		if err != nil || n != want {
			t.Errorf("run %d: %d keys, %v; want %d", i+1, n, err, want)
		}
	}
	b.mustGet(t, orgs[0], secret, "of the old key", 1)
	b.vault = open(t, key(t, 2))
	b.mustGet(t, orgs[0], secret, "of the old key", 1)
	b.mustGet(t, orgs[2], late, "of the new key", 1)
	if after := root(t, b.vault, b.pool); after != before {
		t.Error("the root key changed: API keys would not be known any more")
	}
	old := open(t, key(t, 1))
	if _, _, err := old.Get(t.Context(), b.pool, orgs[0], secret); err == nil {
		t.Error("the old key still opens secrets")
	}
	if _, err := old.Root(t.Context(), b.pool); err == nil {
		t.Error("the old key still opens the root key")
	}
	if _, err := old.Rewrap(t.Context(), b.pool); err == nil || !strings.Contains(err.Error(), vault.OtherKEKVariable) {
		t.Errorf("rewrap without the key that opens: %v", err)
	}
}

func TestVault_RotateAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, ids := b.addOrg(t), []uuid.UUID{uuid.New(), uuid.New()}
	b.put(t, b.org, ids[0], "a")
	b.put(t, other, ids[1], "b")
	before := b.keyset(t)
	if n, err := b.vault.RotateAll(t.Context(), b.pool); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if bytes.Equal(before, b.keyset(t)) {
		t.Error("the keyset did not change")
	}
	b.mustGet(t, b.org, ids[0], "a", 1)
	b.mustGet(t, other, ids[1], "b", 1)
}
