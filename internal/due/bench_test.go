package due_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/internal/work"
	"flowlane/test/pgtest"
)

// BenchmarkWake measures from before the transaction that wakes to the start of the handler.
func BenchmarkWake(b *testing.B) {
	ctx := context.Background()
	pool := pgtest.New(b)
	queue, err := work.NewQueue(pool)
	if err != nil {
		b.Fatal(err)
	}
	s := due.New(pool, queue, due.Options{})
	started := make(chan time.Time)
	s.Register(kind, time.Minute, 4, func(context.Context, *due.Lease) (time.Time, error) {
		started <- time.Now()
		return time.Time{}, nil
	})
	runner, err := work.New(pool, s, work.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := runner.Start(ctx); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = runner.Stop(ctx) }()
	var took []time.Duration
	for b.Loop() {
		asked := time.Now()
		err := pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			return s.Wake(ctx, tx, kind, "k",
				due.Now())
		})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-started).Sub(asked))
	}
	slices.Sort(took)
	for _, share := range []int{50, 90, 99} {
		b.ReportMetric(float64(took[len(took)*share/100].Microseconds())/1000, "p"+string(rune('0'+share/10))+
			string(rune('0'+share%10))+"-ms")
	}
}
