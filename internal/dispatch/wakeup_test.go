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

	"flowlane/internal/dispatch"
	"flowlane/internal/pg/pgtest"
	"flowlane/internal/provider"
	"flowlane/internal/provider/dialersim"
	"flowlane/internal/run"
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

// A record whose time comes after a pass has found nothing ready, and before it finds out when something will be, goes out.
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
			if status, counts := b.await(id); status != run.BatchCompleted {
				t.Errorf("batch ended %s with %+v", status, counts)
			}
			if n := looks.Load(); n > 0 {
				t.Errorf("the time was to come after %d more looks: the test shows nothing", n)
			}
			b.once("l", dialersim.KindModify, 10)
		})
	}
}
