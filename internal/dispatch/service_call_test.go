package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/internal/dispatch"
	"flowlane/internal/due"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider/dialersim"
)

// queries makes the day the only window of queries that binds, and one that does not end meanwhile.
func (b *bundle) queries(limit int64) {
	b.t.Helper()
	b.daily(1000)
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"query": {60: 10_000,
		3600: 10_000, 86400: limit}}})
	b.refresh()
}

// metered is the stack of a platform that counts questions about accounts as queries.
func metered(t *testing.T) *bundle {
	t.Helper()
	b := setupWith(t, dispatch.Options{}, func(cat *catalog.Catalog) {
		p, _ := cat.Platform("dialer")
		p.Account.Whoami.Spends, p.Account.Counters.Spends = "query", "query"
	})
	for _, account := range []string{"acme", "new"} {
		b.sim.SetAccount(account, dialersim.AccountSettings{AlsoSpends: map[string][]string{"whoami": {"query"},
			"counters": {"query"}}})
	}
	// the platform did not count yet when the credential was made
	b.exec("DELETE FROM flow.ledger", "DELETE FROM flow.call")
	return b
}

// reading is a lease of the due row that has the counters read.
func (b *bundle) reading() *due.Lease { return &due.Lease{Kind: dispatch.DueCounters, Key: b.tenancy} }

var (
	accepted = []byte(`{"username":"acme","password":"x"}`)
	another  = []byte(`{"username":"new","password":"x"}`)
)

func input(secret []byte) credential.Input {
	return credential.Input{Name: "c", PlatformID: "dialer", AuthMethod: "basic_auth", Secret: secret}
}

// TestServiceCalls_Agree: what the service asks on its own counts in the ledger as it does at the platform, and for no
// credential.
func TestServiceCalls_Agree(t *testing.T) {
	t.Parallel()
	b := metered(t)
	b.queries(1000) // reads twice
	spent := b.counted("query")[86400]
	b.same("query", spent)
	require.Positive(t, spent)
	agree := func(more int64, what string) {
		t.Helper()
		spent += more
		b.same("query", spent)
		shares := must(b.heads.Attribution(t.Context(), b.org, b.tenancy)).Buckets["query"][86400]
		require.Len(t, shares, 1, what)
		require.False(t, shares[0].CredentialID.Valid, what)
		require.EqualValues(t, spent, shares[0].Calls, what)
	}
	require.True(t, must(b.creds.Test(t.Context(), b.org, b.cred)).Success)
	agree(1, "a test")
	b.refresh()
	agree(1, "a reading")
	require.True(t, must(b.creds.Try(t.Context(), b.org, input(accepted))).Success)
	agree(1, "a test of what is not stored")
	must(b.creds.Replace(t.Context(), b.org, b.cred, input(accepted)))
	agree(1, "a rotation")
	b.sim.AddFault(dialersim.Fault{Kind: "status", Status: 502, Operation: "whoami", Accept: true})
	require.False(t, must(b.creds.Test(t.Context(), b.org, b.cred)).Success)
	agree(1, "nobody knows whether it counted")
	b.sim.SetAccount("acme", dialersim.AccountSettings{Suspended: ref(true)})
	require.Equal(t, "PERMISSION_DENIED", must(b.creds.Test(t.Context(), b.org, b.cred)).Failure)
	agree(0, "a refusal")
	b.sim.SetAccount("acme", dialersim.AccountSettings{Suspended: ref(false)})
	b.pass(20 * time.Second)
	b.refresh()
	agree(1, "a reading that holds all before it")
	require.Zero(t, must(b.heads.Attribution(t.Context(), b.org, b.tenancy)).Buckets["upload"][86400][0].Calls)
}

// TestServiceCalls_Exhausted: a budget that is spent stops neither tests nor readings, which alone can tell that it has
// room again; what the provider refuses for that is not debited.
func TestServiceCalls_Exhausted(t *testing.T) {
	t.Parallel()
	b := metered(t)
	b.queries(1000)
	spent := b.counted("query")[86400]
	b.exec(`UPDATE flow.ledger SET foreign_spend = 1000, unsure = 1000 WHERE bucket = 'query'`)
	require.True(t, must(b.creds.Test(t.Context(), b.org, b.cred)).Success)
	b.same("query", spent+1)
	b.pass(20 * time.Second)
	b.refresh()
	b.same("query", spent+2)
	require.Equal(t, int(spent+2), ref(b.used(b.heads, "query")[86400]).Used(), "the reading set it right")
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"query": {86400: spent + 2}}})
	tested := must(b.creds.Test(t.Context(), b.org, b.cred))
	require.Equal(t, []any{false, "RATE_LIMITED"}, []any{tested.Success, tested.Failure})
	b.same("query", spent+2)
}

// TestServiceCalls_Idle: an account that was only asked about itself is left alone.
func TestServiceCalls_Idle(t *testing.T) {
	t.Parallel()
	b := metered(t)
	b.refresh()
	require.Nil(t, must(b.heads.Headroom(t.Context(), b.org, b.tenancy)).AsOf, "nothing was dispatched")
	for range 2 {
		next := must(b.disp.Counters(t.Context(), b.reading()))
		require.True(t, next.IsZero(), "next at %s", next)
	}
	b.await(b.start(b.define(hundreds), 100, plainRow))
	b.pass(20 * time.Second)
	next := must(b.disp.Counters(t.Context(), b.reading()))
	require.Greater(t, next.Sub(time.Now().Add(b.moved)), 5*time.Minute, "only the readings themselves are young")
}

// TestServiceCalls_NewAccount: an account that the first answer names has that answer in its ledger, in its own time
// zone.
func TestServiceCalls_NewAccount(t *testing.T) {
	t.Parallel()
	b := metered(t)
	b.sim.SetAccount("new", dialersim.AccountSettings{Limits: unlimited, TimeZone: "Asia/Kathmandu"})
	require.True(t, must(b.creds.Try(t.Context(), b.org, input(another))).Success)
	c := must(b.creds.Create(t.Context(), b.org, "test", input(another)))
	b.tenancy = *c.TenancyID
	require.Equal(t, 2, b.count(`SELECT max(own) FROM flow.ledger WHERE bucket = 'query' AND window_seconds = 86400 AND domain = '`+b.tenancy+`'`))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM flow.budget WHERE time_zone = 'Asia/Kathmandu' AND domain = '`+
		b.tenancy+`'`))
}
