package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
)

// TestEvent_OnceOverReplicas: of many events, caused side by side by transactions of which some roll back, each that
// happened starts one batch, and those that follow from each other start theirs in that order, while three processes
// decide them and lose their connections at any time.
func TestEvent_OnceOverReplicas(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	const causers, each = 8, 150
	flow := s.define(transformSteps)
	id := s.subscribe(listening(flow, event.RecordSetSealed, `"filter":"{{ payload.n % 10 != 9 }}"`,
		`"input_template":{"by":"{{ payload.by }}","n":"{{ payload.n }}"}`))
	for range 2 {
		s.worker()
	}
	killed := s.breakAt("EventDeliver%", "EventSubscriptionNote", "BatchesStart", "DefinitionForStart")
	org := uuid.MustParse(s.orgID(s.Key))
	var all sync.WaitGroup
	for by := range causers {
		all.Go(func() {
			for n := range each {
				err := pg.InTx(t.Context(), s.owner, func(ctx context.Context, tx pgx.Tx) error {
					err := event.Publish(ctx, tx, s.app.Scheduler, event.Event{OrgID: org, Kind: event.RecordSetSealed,
						Payload: map[string]int{"by": by, "n": n}})
					if err == nil && n%5 == 4 && n%10 != 9 {
						err = errTakenBack
					}
					return err
				})
				if !errors.Is(err, errTakenBack) {
					assert.NoError(t, err)
				}
			}
		})
	}
	all.Wait()
	var want []int
	for n := range each {
		if n%5 != 4 {
			want = append(want, n)
		}
	}
	s.subscription(id, causers*len(want), 0)
	got := map[int][]int{}
	for _, record := range s.heard(id) {
		var r struct{ By, N int }
		require.NoError(t, json.Unmarshal(record, &r))
		got[r.By] = append(got[r.By], r.N)
	}
	for by := range causers {
		assert.Equal(t, want, got[by], "events of causer %d", by)
	}
	assert.Positive(t, killed(), "no connection was lost: the test shows less than it should")
}

var errTakenBack = errors.New("taken back")

// breakAt ends connections that are in one of these queries or behind it, in a transaction, every now and then, and
// says how many so far. A % stands for the rest of a name.
func (s *stack) breakAt(queries ...string) (killed func() int) {
	s.t.Helper()
	for i, name := range queries {
		queries[i] = "-- name: " + name + " :%"
		if strings.HasSuffix(name, "%") {
			queries[i] = "-- name: " + name
		}
	}
	conn, err := pgx.Connect(s.t.Context(), s.owner.Config().ConnString())
	require.NoError(s.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	n, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil && n < 5 {
			var hit int
			err := conn.QueryRow(ctx,
				`SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database()
				AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND query LIKE ANY($1) ORDER BY random() LIMIT 1) x`, queries).Scan(&hit)
			if err != nil {
				return
			}
			n += hit
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Millisecond):
			}
		}
	}()
	end := sync.OnceFunc(func() {
		stop()
		<-done
		_ = conn.Close(context.WithoutCancel(s.t.Context()))
	})
	s.t.Cleanup(end)
	return func() int { end(); return n }
}
