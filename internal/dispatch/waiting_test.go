package dispatch_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/pg"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

// use makes a credential of another account of the platform, which the bundle's flows use from now on.
func (b *bundle) use(name string) {
	b.t.Helper()
	b.sim.SetAccount(name, dialersim.AccountSettings{Limits: unlimited})
	c := must(b.creds.Create(b.t.Context(), b.org, "test", credential.Input{Name: name, PlatformID: "dialer",
		AuthMethod: "basic_auth",
		Secret:     fmt.Appendf(nil, `{"username":%q,"password":"x"}`, name)}))
	b.cred, b.tenancy = c.ID, *c.TenancyID
}

// lose leaves a call of the account as a process does that is gone, and returns its id.
func (b *bundle) lose() uuid.UUID {
	b.t.Helper()
	return b.loseIn(0)
}

// loseIn is lose of a call that may be under way for a while still.
func (b *bundle) loseIn(left time.Duration) uuid.UUID {
	b.t.Helper()
	id := uuid.New()
	_, err := b.pool.Exec(b.t.Context(),
		`INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check,
			claimed_at, send_before, counts_in)
		SELECT $1, org_id, domain, bucket, lane, action_id, 'intent', 'gone', 0, '', '{}', 'none', flow.clock(),
			flow.clock() + make_interval(secs => $3), '{}'
		FROM flow.call WHERE domain = $2 AND bucket = 'upload' LIMIT 1`, id, b.tenancy, left.Seconds())
	require.NoError(b.t, err)
	at := time.Time{}
	if left > 0 {
		at = time.Now().Add(left)
	}
	require.NoError(b.t, pg.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return b.due.Wake(ctx, tx, dispatch.DueReconcile, run.DispatchKey(b.tenancy, "upload"), at)
	}))
	return id
}

// However many accounts of an organization have lookups that get no answer, those of another get theirs, and lost calls
// are found, of those accounts, too.
func TestWaitingTakesNoPlace_Lookups(t *testing.T) {
	t.Parallel()
	const slow = 20
	b := setup(t, dispatch.Options{Timeout: 10 * time.Minute, ReconcileMargin: 100 * time.Millisecond})
	var mu sync.Mutex
	asked, goOn := map[string]bool{}, make(chan struct{})
	t.Cleanup(func() { close(goOn) })
	hold := func(request []byte) func() {
		if list := bytes.Index(request, []byte("slow")); list >= 0 && !bytes.Contains(request, []byte("/upload")) {
			mu.Lock()
			asked[string(request[list:list+6])] = true
			mu.Unlock()
			<-goOn
		}
		return func() {}
	}
	b.watch.Store(&hold)
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Count: slow + 1})
	var id uuid.UUID
	for i := range slow {
		b.use(fmt.Sprintf("slow%d", i))
		id = b.start(b.define(listsFlow), 1, func(int) string { return fmt.Sprintf(`{"id":"slow%02d"}`, i) })
	}
	b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
		mu.Lock()
		defer mu.Unlock()
		return len(asked) == slow
	})
	found := []uuid.UUID{b.lose()}
	b.join("Quick")
	id = b.start(b.define(listsFlow), 1, plainRow)
	if status, counts := b.await(id); status != batch.BatchCompleted || counts.Accepted != 1 {
		t.Errorf("batch ended %s with %+v", status, counts)
	}
	found = append(found, b.lose())
	b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
		return b.count("SELECT count(*) FROM flow.call WHERE id = ANY($1) AND state = 'unresolved'",
			found) == len(found)
	})
	if n := b.count("SELECT count(*) FROM flow.call WHERE state = 'unknown'"); n != slow {
		t.Errorf("the outcomes of %d calls are unknown, want %d: their lookups hang", n, slow)
	}
}

// A call that is written down while its budget is looked into, which writes no due row then, is looked into once it can
// be lost.
func TestReconcile_WrittenMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{Timeout: 10 * time.Minute, ReconcileMargin: 100 * time.Millisecond})
	asked, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hold := func(request []byte) func() {
		if bytes.Contains(request, []byte("slow")) && !bytes.Contains(request, []byte("/upload")) {
			once.Do(func() { close(asked) })
			<-goOn
		}
		return func() {}
	}
	b.watch.Store(&hold)
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Count: 1})
	id := b.start(b.define(listsFlow), 1, func(int) string { return `{"id":"slow"}` })
	<-asked
	lost := b.loseIn(time.Second)
	close(goOn)
	if status, _ := b.await(id); status != batch.BatchCompleted {
		t.Errorf("batch ended %s", status)
	}
	b.eventually(fmt.Sprintf("SELECT EXISTS (SELECT FROM flow.call WHERE id = '%s' AND state = 'unresolved')", lost))
}

// However many lookups of an organization hang, those of another one that shares its account are asked.
func TestLookups_Shared(t *testing.T) {
	t.Parallel()
	const slow, atOnce, quick = 40, 16, "fleet"
	b := setup(t, dispatch.Options{Timeout: 10 * time.Minute, ReconcileMargin: 100 * time.Millisecond})
	var asked, before atomic.Int64
	goOn := make(chan struct{})
	t.Cleanup(func() { close(goOn) })
	hold := func(request []byte) func() {
		switch {
		case bytes.Contains(request, []byte("/upload")):
		case bytes.Contains(request, []byte("slow")):
			asked.Add(1)
			<-goOn
		case bytes.Contains(request, []byte(quick)):
			before.Store(asked.Load())
		}
		return func() {}
	}
	b.watch.Store(&hold)
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Count: slow + 1})
	id := b.start(b.define(listsFlow), slow, func(i int) string { return fmt.Sprintf(`{"id":"slow%02d"}`, i) })
	b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
		return asked.Load() >= atOnce && b.count("SELECT count(*) FROM flow.call WHERE state = 'unknown'") == slow
	})
	b.join("Quick")
	id = b.start(b.define(listsFlow), 1, func(int) string { return fmt.Sprintf(`{"id":%q}`, quick) })
	if status, counts := b.await(id); status != batch.BatchCompleted || counts.Accepted != 1 {
		t.Errorf("batch ended %s with %+v", status, counts)
	}
	if n := before.Load(); n != atOnce {
		t.Errorf("%d lookups had been begun before the other one, want %d: they hang for half a minute", n, atOnce)
	}
	if n := b.count("SELECT count(*) FROM flow.call WHERE state = 'unknown'"); n != slow {
		t.Errorf("the outcomes of %d calls are unknown, want %d: their lookups hang", n, slow)
	}
}

// However many providers do not tell their counters, a record of another account is sent meanwhile, whether they are
// asked because the last reading is old or because the budget is nearly spent.
func TestWaitingTakesNoPlace_Counters(t *testing.T) {
	t.Parallel()
	const silent, before = 20, 9 // nine calls of ten leave the last tenth
	for name, nearlySpent := range map[string]bool{"OldReading": false, "NearlySpent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, dispatch.Options{LookFor: time.Hour})
			var flows []uuid.UUID
			sent := 0
			for i := range silent {
				account := fmt.Sprintf("silent%d", i)
				b.use(account)
				flows = append(flows, b.define(listsFlow))
				if nearlySpent {
					b.sim.SetAccount(account,
						dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {60: 10_000, 3600: 10_000,
							86400: before + 1}}})
					b.refresh()
					b.await(b.start(flows[i], before, plainRow))
					sent += before
				}
			}
			pgtest.MoveClock(t, b.pool, 2*time.Second) // no reading holds any more
			for i, flow := range flows {
				b.sim.AddFault(dialersim.Fault{Kind: "hang", Account: fmt.Sprintf("silent%d", i), Operation: "counters",
					Count: 1000})
				b.start(flow, 1, func(int) string { return plainRow(before) })
			}
			b.join("Quick")
			id := b.start(b.define(listsFlow), 1, plainRow)
			if status, counts := b.await(id); status != batch.BatchCompleted || counts.Accepted != 1 {
				t.Errorf("batch ended %s with %+v", status, counts)
			}
			if n := b.count("SELECT count(*) FROM flow.call WHERE domain <> $1 AND records > 0", b.tenancy); n != sent {
				t.Errorf("%d calls were sent, want %d: the others wait", n, sent)
			}
		})
	}
}
