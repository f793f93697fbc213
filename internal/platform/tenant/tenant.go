// Package tenant owns the provider accounts (Domains) that credentials authenticate to: their ids, what the provider
// says about them, and what each organization calls them. It promises that an account that its provider identified has
// one id, whichever organization asks, that one which an organization named is nobody else's, and that an id never
// changes its account. Of credentials it knows only that they are bound; it makes no call.
package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
	_ "time/tzdata" // the zones of accounts must be known wherever the binary runs

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// idDigits is the number of hex digits after the platform.
const idDigits = 16

// Account is an account as its provider describes it.
type Account struct {
	PlatformID string
	// Number is the provider's own number of the account, never empty.
	Number string
	// Name is for people; may be empty.
	Name string
	// TimeZone is the IANA name of the zone that the account's windows follow.
	TimeZone string
	// Private: the platform is the organization's own, so that nobody shares the account.
	Private bool
	// AnsweredIn is how long the provider took to say so.
	AnsweredIn time.Duration
}

// TenancyID returns the id of an account that its provider has identified: "<platform_id>-" and 16 hex digits. It is
// the same for every organization, so that they share one ledger.
func TenancyID(platformID, accountNumber string) string {
	sum := sha256.Sum256([]byte("account\x00" + platformID + "\x00" + accountNumber))
	return platformID + "-" + hex.EncodeToString(sum[:])[:idDigits]
}

// manualID returns the id of an account that an organization names: always the same, and never another organization's.
func manualID(orgID uuid.UUID, in Input) string {
	name := "label\x00" + in.Label
	if in.Number != nil {
		name = "number\x00" + *in.Number
	}
	sum := sha256.Sum256([]byte("named\x00" + in.PlatformID + "\x00" + orgID.String() + "\x00" + name))
	return in.PlatformID + "-" + hex.EncodeToString(sum[:])[:idDigits]
}

// Label is how an account is shown to people: its name, else its number.
func Label(name, number string) string {
	if name != "" {
		return name
	}
	return number
}

// Zone returns the first of the names that is a known time zone, UTC if none is.
func Zone(names ...string) string {
	for _, name := range names {
		if name == "" || name == "Local" {
			continue
		}
		if _, err := time.LoadLocation(name); err == nil {
			return name
		}
	}
	return "UTC"
}

// Keep stores what the provider said about an account and returns the account's tenancy id.
func Keep(ctx context.Context, q db.DBTX, account Account) (string, error) {
	id := TenancyID(account.PlatformID, account.Number)
	kept, err := db.New().TenantDomainKeep(ctx, q, db.TenantDomainKeepParams{
		TenancyID: id, PlatformID: account.PlatformID, AccountNumber: &account.Number, AccountName: account.Name,
		TimeZone:   Zone(account.TimeZone),
		AnsweredIn: account.AnsweredIn.Seconds(),
	})
	if err != nil {
		return "", fmt.Errorf("store account %s: %w", id, err)
	}
	if kept != 1 {
		return "", fmt.Errorf("store account %s: the id belongs to another account", id)
	}
	return id, nil
}
