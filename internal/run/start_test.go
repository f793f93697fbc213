package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/definition"
	"flowlane/internal/pg"
)

// TestStart_Remembers: who starts a batch knows of it what others read, once it is there, and nothing of one that is
// not.
func TestStart_Remembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	def := w.define(t, modelPlan{{{kind: "transform"}}}, -1, false)
	abort := errors.New("abort")
	for name, c := range map[string]struct {
		metadata string
		end      error
		kept     bool
	}{
		"none":        {"", nil, true},
		"some":        {`{"b": 1.50, "a":"x"}`, nil, true},
		"large":       {`{"a":"` + strings.Repeat("x", remembered) + `"}`, nil, false},
		"rolled back": {"", abort, false},
	} {
		in := StartInput{OrgID: w.org, DefinitionID: def, Version: 1, Source: Source{Records: [][]byte{[]byte(`{}`)}},
			TriggerType: TriggerAPICall}
		if c.metadata != "" {
			in.Metadata = []byte(c.metadata)
		}
		var id uuid.UUID
		err := pg.InTx(w.ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error {
			out, err := w.s.Start(ctx, tx, in)
			if err != nil {
				return err
			}
			id = out.BatchID
			assert.Nil(t, w.s.batches.get(id), name)
			return c.end
		})
		require.ErrorIs(t, err, c.end)
		kept := w.s.batches.get(id)
		require.Equal(t, c.kept, kept != nil, name)
		if !c.kept {
			continue
		}
		if in.Metadata != nil {
			in.Metadata[0] = '!' // it belongs to the request
		}
		read, err := New(w.pool, definition.NewPlans(w.cat, 0), w, w, nil).Batch(w.ctx, w.pool, id)
		require.NoError(t, err)
		open := func(b *Batch) []*Records {
			recs, err := w.s.Open(w.ctx, w.pool, b, []SliceRef{{}}, 0, nil)
			require.NoError(t, err)
			return recs
		}
		want := open(read)[0].Rows
		_, err = w.pool.Exec(w.ctx, `WITH paged AS (DELETE FROM flow.page WHERE set_id = $1)
			UPDATE flow.batch SET page = NULL, page_bytes = NULL WHERE id = $1`,
			kept.PageSet) // it need not be read again
		require.NoError(t, err)
		one, other := open(kept)[0], open(kept)[0]
		assert.Equal(t, want, one.Rows)
		assert.NotSame(t, one.page, other.page, "each reader has its own, which it releases")
		read.Plan, kept.Plan, kept.page = nil, nil, nil
		assert.Equal(t, read, kept, name)
	}
}

// TestStart_Page: a small page stands with its batch, a larger one by itself, and both are read alike.
func TestStart_Page(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	def := w.define(t, modelPlan{{{kind: "transform"}}}, -1, false)
	noise := make([]byte, pageInRow)
	_, _ = rand.Read(noise) // never fails
	for pages, record := range []string{`{"a": 1.50}`, fmt.Sprintf(`{"a":"%x"}`, noise)} {
		records := [][]byte{[]byte(record), []byte(`{}`)}
		var id uuid.UUID
		require.NoError(t, pg.InTx(w.ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error {
			out, err := w.s.Start(ctx, tx, StartInput{OrgID: w.org, DefinitionID: def, Version: 1,
				Source: Source{Records: records}, TriggerType: TriggerAPICall})
			if err == nil {
				id = out.BatchID
			}
			return err
		}))
		elsewhere := New(w.pool, definition.NewPlans(w.cat, 0), w, w, nil)
		b, err := elsewhere.Batch(w.ctx, w.pool, id)
		require.NoError(t, err)
		recs, err := elsewhere.Open(w.ctx, w.pool, b, []SliceRef{{}}, 0, nil)
		require.NoError(t, err)
		assert.Equal(t, records, recs[0].Rows)
		var found int
		require.NoError(t, w.pool.QueryRow(w.ctx, "SELECT count(*) FROM flow.page WHERE set_id = $1",
			b.PageSet).Scan(&found))
		assert.Equal(t, pages, found)
	}
}
