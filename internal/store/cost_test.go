package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/pgtest"
)

type noWaker struct{}

func (noWaker) Wake(context.Context, pgx.Tx, string, string, time.Time) error { return nil }

// asked keeps the reads of a store's records.
type asked struct{ queries []pgx.TraceQueryStartData }

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "-- name: StoreRecords") {
		a.queries = append(a.queries, data)
	}
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestRecords_Cost: what a page costs does not depend on how deep it lies, and with filters on no more than on how many
// records pass them, wherever these stand.
func TestRecords_Cost(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	ctx, org := t.Context(), uuid.Must(uuid.NewV7())
	_, err := pool.Exec(ctx, "INSERT INTO flow.organization (id, name) VALUES ($1, 'Acme')", org)
	require.NoError(t, err)
	s := New(pool, noWaker{})
	_, err = s.Create(ctx, org, "me", "big", Config{Fields: []Field{{"half", "boolean"}, {"group", "integer"},
		{"late", "boolean"}, {"own", "string"}}, Layers: []string{"a"}})
	require.NoError(t, err)
	const n = 10_000
	for i := 0; i < n; i += MaxWrites {
		var w []Write
		for at := i; at < i+MaxWrites; at++ {
			j := at * 7919 % n // not in the order of the keys
			w = append(w, Write{Key: fmt.Sprintf("k%05d", j), Layer: "a",
				Values: json.RawMessage(fmt.Sprintf(`{"half":%t,"group":%d,"late":%t,"own":"o%d"}`, j%2 == 0, j%100,
					j >= n-n/10, j))})
		}
		_, err := s.Upsert(ctx, org, "me", "big", w)
		require.NoError(t, err)
	}
	_, err = pool.Exec(ctx, "VACUUM ANALYZE flow.store_record")
	require.NoError(t, err)

	cfg, a := pool.Config(), &asked{}
	cfg.ConnConfig.Tracer = a
	traced, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(traced.Close)
	s = New(traced, noWaker{})
	in, err := s.Get(ctx, org, "big")
	require.NoError(t, err)
	cost := func(q Query, wantRows int, wantTotal int64, filters ...string) (pages int) {
		t.Helper()
		var err error
		q.Terms, err = in.Filters(filters)
		require.NoError(t, err)
		a.queries, q.MaxRows = nil, 51
		rows, total, err := s.Records(ctx, in, q)
		require.NoError(t, err)
		assert.Len(t, rows, wantRows)
		assert.Equal(t, wantTotal, total)
		for _, asked := range a.queries {
			var text string
			require.NoError(t, pool.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+asked.SQL,
				asked.Args...).Scan(&text))
			var plans []struct{ Plan map[string]any }
			require.NoError(t, json.Unmarshal([]byte(text), &plans))
			pages += int(plans[0].Plan["Shared Hit Blocks"].(float64)) +
				int(plans[0].Plan["Shared Read Blocks"].(float64))
		}
		t.Logf("%v: %d pages", filters, pages)
		return pages
	}
	// Of a page of 51: its rows, and the way to them. Of 1,000 records that pass: those, and no others.
	const few, thousand = 100, 1500
	for _, q := range []Query{{}, {AfterKey: "k09000"}, {Desc: true}, {Desc: true, AfterKey: "k00900"},
		{ByUpdate: true}, {ByUpdate: true, Desc: true}} {
		assert.LessOrEqual(t, cost(q, 51, n), few, "%+v", q)
		cost(q, 51, n/2, "half=true") // what it costs is counting
	}
	for _, q := range []Query{{}, {Desc: true}, {ByUpdate: true}, {ByUpdate: true, Desc: true}} {
		assert.LessOrEqual(t, cost(q, 1, 1, "own=o9500"), few, "%+v", q)
		assert.LessOrEqual(t, cost(q, 0, 0, "own=none"), few, "%+v", q)
		assert.LessOrEqual(t, cost(q, 51, n/100, "group=7"), 5*few, "%+v", q)
		assert.LessOrEqual(t, cost(q, 0, 0, "half=true", "group=7"), few,
			"each is frequent, both together are not there: %+v", q)
		assert.LessOrEqual(t, cost(q, 51, n/10, "late=true"), thousand, "the last tenth: %+v", q)
	}
}
