package tenant_test

import (
	"regexp"
	"testing"

	"github.com/google/uuid"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/tenant"
	"flowlane/test/pgtest"
)

// golden is the id of account 1001 of the platform dialer.
const golden = "dialer-21ad9dccb2aacd2a"

func TestTenancyID(t *testing.T) {
	t.Parallel()
	id := tenant.TenancyID("dialer", "1001")
	if id != tenant.TenancyID("dialer", "1001") || !regexp.MustCompile(`^dialer-[0-9a-f]{16}$`).MatchString(id) {
		t.Errorf("id = %q", id)
	}
	// The ledger hangs on the id: it must never come out differently.
	if id != golden {
		t.Errorf("id = %q, once it was %q", id, golden)
	}
	if id == tenant.TenancyID("dialer", "1002") || tenant.TenancyID("a", "b1") == tenant.TenancyID("ab", "1") {
		t.Error("two accounts have one id")
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	account := tenant.Account{PlatformID: "dialer", Number: "1001", Name: "Acme", TimeZone: "Europe/Berlin"}
	id, err := tenant.Keep(t.Context(), pool, account)
	if err != nil || id != tenant.TenancyID("dialer", "1001") {
		t.Fatalf("id = %q, %v", id, err)
	}
	account.Name, account.TimeZone = "Acme Ltd", "Local"
	if again, err := tenant.Keep(t.Context(), pool, account); err != nil || again != id {
		t.Fatalf("id = %q, %v", again, err)
	}
	var name, zone string
	if err := pool.QueryRow(t.Context(), "SELECT account_name, time_zone FROM flow.domain").Scan(&name,
		&zone); err != nil || name != "Acme Ltd" || zone != "UTC" {
		t.Errorf("name %q, zone %q, %v", name, zone, err)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE flow.domain SET account_number = '9'"); err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.Keep(t.Context(), pool, account); err == nil {
		t.Error("an id moved to another account")
	}
}

// TestCreate_Ids: the ledger hangs on these ids, too.
func TestCreate_Ids(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	org := uuid.MustParse("0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11")
	if _, err := pool.Exec(t.Context(), "INSERT INTO flow.organization (id, name) VALUES ($1, 'Org')",
		org); err != nil {
		t.Fatal(err)
	}
	entries, err := catalog.Load(catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	number := "77"
	for want, in := range map[string]tenant.Input{
		"dialer-3e3bdc57c02640db": {PlatformID: "dialer", Label: "Sandbox", Number: &number},
		"dialer-6bcc1c4bf78d2c71": {PlatformID: "dialer", Label: "Sandbox"},
	} {
		made, err := tenant.New(pool, entries).Create(t.Context(), org, in)
		if err != nil || made.ID != want || !made.Manual {
			t.Errorf("tenant = %+v, %v; once its id was %s", made, err, want)
		}
	}
}
