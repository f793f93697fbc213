package torture_test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/due"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/vault"
	"flowlane/internal/run"
	"flowlane/internal/work"
	"flowlane/test/pgtest"
)

// unlimited are limits that no test reaches.
var unlimited = map[string]map[int]int64{"*": {60: 10_000_000, 3600: 100_000_000, 86400: 1_000_000_000}}

// kek is the key-encryption key of every process of a test.
var kek = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

// world is a database, a platform, and what a customer has set up; processes of the service come and go.
type world struct {
	*testing.T

	dsn   string
	pool  *pgxpool.Pool
	sim   *dialersim.Sim
	front *front
	// ahead is how far the platform's clock was moved, in nanoseconds.
	ahead atomic.Int64
	// url is the platform's address, through the front.
	url   string
	keys  *account.Service
	org   uuid.UUID
	key   string
	creds []uuid.UUID
	defs  *definition.Service
	runs  *run.Service
	holds *pause.Service
	// accounts are the platform's names of the accounts of creds.
	accounts []string
	random   *rand.Rand
	output   *output
	batches  []*liveBatch
	// late says that answers may come when others have their doubts already.
	late bool
	// stepped says that the clock of the database was set, and that of the platform was not.
	stepped bool
}

// setup makes a world with so many accounts on the platform.
func setup(t *testing.T, accounts int) *world {
	t.Helper()
	dsn, pool := pgtest.NewDatabase(t)
	return setupOn(t, dsn, pool, accounts)
}

func setupOn(t *testing.T, dsn string, pool *pgxpool.Pool, accounts int) *world {
	t.Helper()
	return setupSeeded(t, dsn, pool, accounts, uint64(time.Now().UnixNano()))
}

func setupSeeded(t *testing.T, dsn string, pool *pgxpool.Pool, accounts int, seed uint64) *world {
	t.Helper()
	t.Logf("seed %d", seed)
	w := &world{T: t, dsn: dsn, pool: pool, random: rand.New(rand.NewPCG(seed, 1))}
	w.sim = dialersim.New(dialersim.Options{Seed: seed, KeepWindows: true,
		Clock: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }})
	w.front = &front{sim: w.sim, random: rand.New(rand.NewPCG(seed, 2))}
	server := httptest.NewUnstartedServer(w.front)
	_ = server.Listener.Close()
	server.Listener = narrowListener(t)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		w.sim.Close()
		server.Close()
	})
	w.url = server.URL
	w.output = newOutput(t)
	w.watchCalls()

	cat := must(catalog.Load(catalog.Options{BaseURLs: map[string]string{"dialer": w.url}}))
	sender := provider.NewSender(provider.Options{AllowHosts: []string{strings.TrimPrefix(w.url, "http://")}})
	box := must(vault.New(must(vault.LoadKEK(kek, ""))))
	creds := credential.New(credential.Deps{Pool: pool, Vault: box, Catalog: cat, Prober: sender, Now: time.Now})
	w.defs = definition.New(pool, cat)
	// The kinds are only named here, so that starting a batch can wake them: nobody works in this process.
	sched := due.New(pool, must(work.NewQueue(pool)), due.Options{})
	for _, kind := range []string{run.DueDispatch, dispatch.DueReconcile, run.DueSlices, run.DueRelease,
		pause.DueExpiry} {
		sched.Register(kind, lease, 1, func(context.Context, *due.Lease) (time.Time, error) { return time.Time{}, nil })
	}
	router := &dispatch.Router{Catalog: cat, BulkInFlight: 4, SmallInFlight: 64}
	w.runs = run.New(pool, definition.NewPlans(cat, 1<<20), router, sched, rand.Float64)
	w.holds = pause.New(pool, w.runs, sched)

	w.keys = must(account.New(account.Config{Pool: pool,
		HashKeys: [][]byte{must(box.Root(t.Context(), pool)).Derive("api-key")}, Random: crand.Reader, Now: time.Now,
		Log: slog.Default()}))
	w.org, w.key = w.join("Acme")
	for i := range accounts {
		name := fmt.Sprintf("acme%d", i)
		w.sim.SetAccount(name, dialersim.AccountSettings{Limits: unlimited})
		c := must(creds.Create(t.Context(), w.org, "test", credential.Input{Name: name, PlatformID: "dialer",
			AuthMethod: "basic_auth",
			Secret:     fmt.Appendf(nil, `{"username":%q,"password":"x"}`, name)}))
		w.accounts, w.creds = append(w.accounts, name), append(w.creds, c.ID)
	}
	return w
}

// join makes an organization with an API key.
func (w *world) join(name string) (org uuid.UUID, key string) {
	w.Helper()
	org = must(account.CreateOrg(w.Context(), w.pool, name)).ID
	key, _, err := w.keys.CreateKey(w.Context(), w.pool, account.NewKey{OrgID: org, Name: "test"})
	if err != nil {
		w.Fatal(err)
	}
	return org, key
}

// everywhere changes every account of the platform.
func (w *world) everywhere(a dialersim.AccountSettings) {
	for _, name := range w.accounts {
		w.sim.SetAccount(name, a)
	}
}

// define makes a definition; CRED stands for the credential of an account, SIM for the platform's address.
func (w *world) define(account int, steps string) uuid.UUID {
	w.Helper()
	return w.defineFor(w.org, strings.NewReplacer("CRED", w.creds[account].String(), "SIM", w.url).Replace(steps))
}

// defineFor makes a definition of an organization.
func (w *world) defineFor(org uuid.UUID, steps string) uuid.UUID {
	w.Helper()
	var doc definition.Document
	if err := json.Unmarshal([]byte(`{"steps":`+steps+`}`), &doc); err != nil {
		w.Fatal(err)
	}
	d, err := w.defs.Create(w.Context(), org, "test", definition.Draft{Name: "flow", Status: "active", Document: doc})
	if err != nil {
		w.Fatal(err)
	}
	return d.ID
}

// batch is a batch that was started, and what must become of it.
type liveBatch struct {
	id      uuid.UUID
	org     uuid.UUID
	records int
	// accepted, rejected and completed are how many jobs must end so.
	accepted, rejected, completed int
	started                       time.Time
	// cancelled batches end with what was sent by then.
	cancelled bool
}

// start starts a batch of these records.
func (w *world) start(def uuid.UUID, records [][]byte, want liveBatch) *liveBatch {
	w.Helper()
	b := &want
	b.org, b.records, b.started = w.org, len(records), time.Now()
	err := pg.InTx(w.Context(), w.pool, func(ctx context.Context, tx pgx.Tx) error {
		s, err := w.runs.Start(ctx, tx, run.StartInput{OrgID: w.org, DefinitionID: def, Version: 1,
			Source:      run.Source{Records: records},
			TriggerType: run.TriggerAPICall})
		if err != nil {
			return err
		}
		b.id = s.BatchID
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	w.batches = append(w.batches, b)
	return b
}

func (w *world) status(b *liveBatch) (batch.BatchStatus, db.FlowBatchCount) {
	w.Helper()
	row, err := db.New().BatchGet(w.Context(), w.pool, db.BatchGetParams{ID: b.id, OrgID: b.org})
	if err != nil {
		w.Fatal(err)
	}
	row.FlowBatchCount.ChangeNo = 0 // how many changes it took is nobody's business
	return row.FlowBatchCount.Status, row.FlowBatchCount
}

// open returns how many batches are not over.
func (w *world) open() int {
	w.Helper()
	return w.count("SELECT count(*) FROM flow.batch_count WHERE status IN ('queued', 'running', 'paused')")
}

func (w *world) count(sql string, args ...any) (n int) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), sql, args...).Scan(&n); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return n
}

// until polls until the condition holds; where it does not, explain says more.
func (w *world) until(what string, waitLimit time.Duration, holds func() bool, explain ...func()) {
	w.Helper()
	deadline := time.After(waitLimit)
	for !holds() {
		select {
		case <-deadline:
			w.output.show(w.T)
			for _, f := range explain {
				f()
			}
			w.Fatalf("waited %s in vain until %s", waitLimit, what)
		case <-w.Context().Done():
			w.FailNow()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// between is a random duration.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.random.Int64N(int64(high-low)))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
