package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// emptyChoices calls do after a look at what is ready that found nothing, however it was asked.
type emptyChoices struct{ do func() }

type sqlKey struct{}

func (e *emptyChoices) found(sql string, rows int64) {
	if rows == 0 && strings.Contains(sql, "-- name: QueueChoose ") {
		e.do()
	}
}

func (e *emptyChoices) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, sqlKey{}, d.SQL)
}

func (e *emptyChoices) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	sql, _ := ctx.Value(sqlKey{}).(string)
	e.found(sql, d.CommandTag.RowsAffected())
}

func (e *emptyChoices) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (e *emptyChoices) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	e.found(d.SQL, d.CommandTag.RowsAffected())
}

func (e *emptyChoices) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// passEnds calls do once, when a pass is about to end: what it goes by is read, and it has not waited for who wakes it.
type passEnds struct {
	armed atomic.Bool
	do    func()
}

func (p *passEnds) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "-- name: DueGate ") && p.armed.CompareAndSwap(true, false) {
		p.do()
	}
	return ctx
}

func (p *passEnds) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestWakeAgain: a margin that is raised while a pass ends, because the margin was spent, lets work go at once and not
// when the window is over.
func TestWakeAgain(t *testing.T) {
	t.Parallel()
	own := pgtest.New(t)
	ends := &passEnds{}
	cfg := own.Config()
	cfg.ConnConfig.Tracer = ends
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))
	t.Cleanup(pool.Close)
	b := setupPool(t, pool, dispatch.Options{}, asIs, provider.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"*": {60: 1000, 3600: 1000,
		86400: 20}}})
	b.refresh()
	must(b.disp.SetMargin(t.Context(), b.org, b.tenancy, "modify", 50))
	ends.do = func() { must(b.disp.SetMargin(t.Context(), b.org, b.tenancy, "modify", 100)) }
	def := b.define(modifies)
	b.await(b.start(def, 10, plainRow))
	b.eventually(`SELECT NOT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch')`)
	ends.armed.Store(true)
	if status, counts := b.await(b.start(def, 5, plainRow)); status != batch.BatchCompleted {
		t.Errorf("batch ended %s with %+v", status, counts)
	}
	if ends.armed.Load() {
		t.Error("no pass ended: the test shows nothing")
	}
}

// A record whose time comes after a pass has found nothing ready, and before it finds out when something will be, goes
// out.
func TestReadyBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	for _, look := range []int64{1, 2} {
		t.Run(fmt.Sprint(look), func(t *testing.T) {
			t.Parallel()
			own := pgtest.New(t)
			var looks atomic.Int64
			looks.Store(look + 1000) // until the test begins
			cfg := own.Config()
			cfg.ConnConfig.Tracer = &emptyChoices{func() {
				if looks.Add(-1) == 0 {
					pgtest.MoveClock(t, own, 2*time.Hour)
				}
			}}
			pool := must(pgxpool.NewWithConfig(t.Context(), cfg))
			t.Cleanup(pool.Close)
			b := setupPool(t, pool, dispatch.Options{}, asIs, provider.Options{})
			def := b.define(flowOf(modify("m", "l", `{"n":1}`)))
			looks.Store(look)
			id := b.startBroken(def, "UPDATE flow.part SET ready_at = flow.clock() + interval '1 hour' WHERE batch_id = $1")
			if status, counts := b.await(id); status != batch.BatchCompleted {
				t.Errorf("batch ended %s with %+v", status, counts)
			}
			if n := looks.Load(); n > 0 {
				t.Errorf("the time was to come after %d more looks: the test shows nothing", n)
			}
			b.once("l", dialersim.KindModify, 10)
		})
	}
}
