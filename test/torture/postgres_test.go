package torture_test

import (
	"context"
	"testing"
	"time"

	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
)

// The database is stopped and started again during a run: in order, and as in a crash, after which it recovers what was
// committed. The processes of the service stay.
func TestPostgresRestart(t *testing.T) {
	t.Parallel()
	options := devpg.Options{DataDir: t.TempDir()}
	server := must(devpg.Start(t.Context(), options))
	defer func() { _ = server.Stop(context.Background()) }()
	pool := must(pg.Open(t.Context(), server.DSN(), pg.Options{MaxConns: 10}))
	defer pool.Close()
	if err := pg.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	dsn := server.DSN()
	w := setupOn(t, dsn, pool, 3)
	w.late = true
	w.front.delay = 20 * time.Millisecond
	s := newStorm(w).withPhoneCalls()
	p := w.serve(patient).ready(w)
	restarts := 2 + kills(t)/50
	for i := range restarts {
		s.keep(30, w.between(time.Second, 2*time.Second))
		ctx, cancel := context.WithCancel(context.Background())
		if i%2 == 1 {
			cancel() // out of time from the start: it ends at once
		}
		if err := server.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		pass(t.Context(), w.between(0, time.Second))
		server = must(devpg.Start(t.Context(), options))
		if server.DSN() != dsn {
			t.Fatal("the server has another address now")
		}
		pool.Reset()
		w.until("the database answers", 60*time.Second, func() bool { return pool.Ping(t.Context()) == nil })
	}
	s.check(2 * time.Minute)
	select {
	case <-p.ended:
		t.Error("the process has ended")
	default:
		p.kill()
	}
	sum := w.tally()
	t.Logf("%d restarts of Postgres, %d of them as in a crash; %d batches, %d records, %d calls", restarts, restarts/2,
		len(w.batches), s.records, sum.Calls)
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries", sum.Unknown, sum.Found,
		sum.NotFound, sum.Retries)
}
