package dispatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
	"flowlane/internal/forecast"
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

// bundle is the whole stack but HTTP: Postgres, River, the dispatcher, and a simulated platform over real HTTP.
type bundle struct {
	t       *testing.T
	pool    *pgxpool.Pool
	sim     *dialersim.Sim
	simURL  string
	org     uuid.UUID
	cred    uuid.UUID
	defs    *definition.Service
	runs    *run.Service
	heads   *forecast.Service
	creds   *credential.Service
	disp    *dispatch.Dispatcher
	due     *due.Scheduler
	tenancy string
	moved   time.Duration
	// watch, where it is set, is called with the address and the body of each request to the platform; what it returns
	// is called after the answer.
	watch *atomic.Pointer[func(request []byte) (after func())]
}

// serve is the platform, with whoever watches it.
func (b *bundle) serve(w http.ResponseWriter, r *http.Request) {
	if watch := b.watch.Load(); watch != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		defer (*watch)(append([]byte(r.URL.String()), body...))()
	}
	b.sim.ServeHTTP(w, r)
}

// unlimited are limits that no test reaches.
var unlimited = map[string]map[int]int64{"*": {60: 1_000_000, 3600: 10_000_000, 86400: 100_000_000}}

func setup(t *testing.T, opts dispatch.Options) *bundle {
	t.Helper()
	return setupWith(t, opts, func(*catalog.Catalog) {})
}

// setupWith is setup with a catalog of the test's own.
func setupWith(t *testing.T, opts dispatch.Options, change func(*catalog.Catalog)) *bundle {
	t.Helper()
	return setupSender(t, opts, change, provider.Options{})
}

// setupSender is setupWith with a sender of the test's own, which reaches the simulated platform beside what it names.
func setupSender(t *testing.T, opts dispatch.Options, change func(*catalog.Catalog), out provider.Options) *bundle {
	t.Helper()
	return setupPool(t, pgtest.New(t), opts, change, out)
}

// setupPool is setupSender on a pool of the test's own.
func setupPool(t *testing.T, pool *pgxpool.Pool, opts dispatch.Options, change func(*catalog.Catalog),
	out provider.Options) *bundle {
	t.Helper()
	b := &bundle{t: t, pool: pool, sim: dialersim.New(dialersim.Options{Seed: 1}),
		watch: &atomic.Pointer[func(request []byte) (after func())]{}}
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(server.Close)
	b.simURL = server.URL
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: unlimited})
	ctx := t.Context()
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cat := must(catalog.Load(catalog.Options{BaseURLs: map[string]string{"dialer": server.URL}}))
	change(cat)
	kek := must(vault.LoadKEK("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", ""))
	out.AllowHosts = append(out.AllowHosts, strings.TrimPrefix(server.URL, "http://"))
	sender := provider.NewSender(out)
	b.defs = definition.New(b.pool, cat)
	b.heads = forecast.New(b.pool, cat, definition.NewPlans(cat, 1<<20))
	sched := due.New(b.pool, must(work.NewQueue(b.pool)), due.Options{Log: log})
	creds := credential.New(credential.Deps{Pool: b.pool, Vault: must(vault.New(kek)), Catalog: cat, Prober: sender,
		Now: time.Now, Due: sched,
		AllowHosts: out.AllowHosts})
	b.creds = creds
	router := &dispatch.Router{Catalog: cat, BulkInFlight: dispatch.BulkInFlight, SmallInFlight: dispatch.SmallInFlight}
	b.runs = run.New(b.pool, definition.NewPlans(cat, 1<<20), router, sched, rand.Float64)
	opts.Log = log
	clock := due.NewClock(b.pool, log)
	b.disp = dispatch.New(dispatch.Deps{Pool: b.pool, Runs: b.runs, Catalog: cat, Credentials: creds, Sender: sender,
		Due: sched, Clock: clock, Random: rand.Float64}, opts)
	sched.Register(run.DueDispatch, 5*time.Second, 8, b.disp.Pass, due.Rechecks(), due.Grouped(dispatch.BudgetGroup))
	sched.Register(dispatch.DueReconcile, 5*time.Second, 4, b.disp.Reconcile, due.Rechecks(),
		due.Grouped(dispatch.BudgetGroup))
	sched.Register(dispatch.DueCounters, 5*time.Second, 4, b.disp.Counters)
	sched.Register(run.DueSlices, 5*time.Second, 4, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		for {
			more, err := b.runs.Work(ctx, uuid.MustParse(l.Key))
			if err != nil || !more {
				return time.Time{}, err
			}
		}
	})
	sched.Register(run.DueRelease, 5*time.Second, 1, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		return time.Time{}, pg.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
			return b.runs.Release(ctx,
				tx, uuid.MustParse(l.Key))
		})
	})
	sched.Register(run.DuePacing, 5*time.Second, 1, func(ctx context.Context,
		l *due.Lease) (next time.Time, err error) {
		err = pg.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
			next, err = b.runs.Tick(ctx, tx, uuid.MustParse(l.Key))
			return err
		})
		return next, err
	})
	b.due = sched
	runner := must(work.New(b.pool, sched, work.Options{Log: log}))
	if err := runner.Start(ctx); err != nil {
		t.Fatal(err)
	}
	b.runs.ClaimBy(b.disp)
	b.disp.Open()
	var watching sync.WaitGroup
	watch, stopWatching := context.WithCancel(ctx)
	watching.Go(func() {
		clock.Run(watch, b.disp.ClockStepped, func(ctx context.Context) error {
			return sched.ClockStepped(ctx,
				dispatch.DueReconcile)
		})
	})
	t.Cleanup(func() {
		stopWatching()
		watching.Wait()
		stop, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if err := runner.Stop(stop); err != nil {
			t.Errorf("stop: %v", err)
		}
		b.disp.Shutdown(stop)
	})
	b.join("Acme")
	return b
}

// join makes an organization with a credential of the account, for which the bundle speaks from now on.
func (b *bundle) join(name string) {
	b.t.Helper()
	b.org = must(account.CreateOrg(b.t.Context(), b.pool, name)).ID
	c := must(b.creds.Create(b.t.Context(), b.org, "test", credential.Input{Name: "sim", PlatformID: "dialer",
		AuthMethod: "basic_auth",
		Secret:     []byte(`{"username":"acme","password":"x"}`)}))
	b.cred = c.ID
	if c.TenancyID == nil {
		b.t.Fatal("the credential was not identified")
	}
	b.tenancy = *c.TenancyID
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (b *bundle) exec(statements ...string) {
	b.t.Helper()
	for _, sql := range statements {
		if _, err := b.pool.Exec(b.t.Context(), sql); err != nil {
			b.t.Fatal(err)
		}
	}
}

// task is a task of a definition under test; CRED stands for the credential.
func (b *bundle) define(steps string) uuid.UUID {
	b.t.Helper()
	var doc definition.Document
	steps = strings.ReplaceAll(steps, "CRED", b.cred.String())
	if err := json.Unmarshal([]byte(`{"steps":`+steps+`}`), &doc); err != nil {
		b.t.Fatal(err)
	}
	d, err := b.defs.Create(b.t.Context(), b.org, "test", definition.Draft{Name: "flow", Status: "active",
		Document: doc})
	if err != nil {
		b.t.Fatal(err)
	}
	return d.ID
}

// startIn is start in a lane.
func (b *bundle) startIn(lane *db.FlowLane, def uuid.UUID, n int, row func(i int) string) uuid.UUID {
	b.t.Helper()
	return b.start(def, n, row, func(in *run.StartInput) { in.Lane = lane })
}

// start starts a batch of n records made by row.
func (b *bundle) start(def uuid.UUID, n int, row func(i int) string, change ...func(*run.StartInput)) uuid.UUID {
	b.t.Helper()
	in := run.StartInput{OrgID: b.org, DefinitionID: def, Version: 1, TriggerType: run.TriggerAPICall}
	for _, c := range change {
		c(&in)
	}
	records := make([][]byte, n)
	for i := range records {
		records[i] = []byte(row(i))
	}
	in.Source.Records = records
	var id uuid.UUID
	err := pg.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		s, err := b.runs.Start(ctx, tx, in)
		if err != nil {
			return err
		}
		id = s.BatchID
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func plainRow(i int) string { return fmt.Sprintf(`{"id":"k%d","n":%d}`, i, i) }

// await polls until the batch is over, and returns its status and counts.
func (b *bundle) await(id uuid.UUID) (batch.BatchStatus, db.FlowBatchCount) {
	b.t.Helper()
	return b.awaitUntil(id, func(s batch.BatchStatus, _ db.FlowBatchCount) bool { return batch.BatchTerminal(s) })
}

func (b *bundle) awaitUntil(id uuid.UUID, done func(batch.BatchStatus, db.FlowBatchCount) bool) (batch.BatchStatus,
	db.FlowBatchCount) {
	b.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		row, err := db.New().BatchGet(b.t.Context(), b.pool, db.BatchGetParams{ID: id, OrgID: b.org})
		if err != nil {
			b.t.Fatal(err)
		}
		if done(row.FlowBatchCount.Status, row.FlowBatchCount) {
			return row.FlowBatchCount.Status, row.FlowBatchCount
		}
		select {
		case <-deadline:
			b.t.Fatalf("batch %s is still %s: %+v", id, row.FlowBatchCount.Status, row.FlowBatchCount)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// once checks that every key arrived exactly once.
func (b *bundle) once(list string, kind dialersim.Kind, n int) {
	b.t.Helper()
	got := b.sim.ArrivalsOf("", list, kind)
	if len(got) != n {
		b.t.Errorf("%d keys arrived in %s, want %d", len(got), list, n)
	}
	for k, c := range got {
		if c != 1 {
			b.t.Errorf("%s arrived %d times in %s", k, c, list)
		}
	}
}

// minutePasses moves the clocks of the platform and of the database to the fifth second of the next minute. Nothing may
// be under way: what is sent in one minute would arrive in another.
func (b *bundle) minutePasses() {
	b.t.Helper()
	now := time.Now().Add(b.moved)
	b.pass(now.Truncate(time.Minute).Add(65 * time.Second).Sub(now))
}

// pass moves the clocks of the platform and of the database ahead.
func (b *bundle) pass(ahead time.Duration) {
	b.t.Helper()
	b.moved += ahead
	b.sim.SetAccount("acme", dialersim.AccountSettings{ClockOffsetMS: ref(b.moved.Milliseconds())})
	pgtest.MoveClock(b.t, b.pool, ahead)
}

func ref[T any](v T) *T { return &v }
