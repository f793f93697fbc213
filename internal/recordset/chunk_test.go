package recordset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

func TestAppend_AnyOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 300)
	assert.Equal(t, ChunkResult{m.ID, 1, 300, 300, 300, false}, b.send(t, m.ID, chunkBody(1, 300, 600)))
	assert.Equal(t, ChunkResult{m.ID, 2, 7, 7, 307, false}, b.send(t, m.ID, chunkBody(2, 600, 607)))
	assert.Equal(t, ChunkResult{m.ID, 0, 300, 300, 607, false}, b.send(t, m.ID, chunkBody(0, 0, 300)))
	assert.Equal(t, ChunkResult{m.ID, 1, 300, 0, 607, true}, b.send(t, m.ID, chunkBody(1, 300, 600)))
	sealed, err := b.Seal(b.ctx, b.org, m.ID, 607)
	require.NoError(t, err)
	assert.EqualValues(t, 3, sealed.ChunkCount)

	var want [][]byte
	for i := range 607 {
		want = append(want, fmt.Appendf(nil, `{"id":"%d","n":%d}`, i, i))
	}
	rows := b.allRows(t, m.ID)
	require.Len(t, rows, 607)
	for i := range want {
		require.Equal(t, string(want[i]), rows[i])
	}
	assert.Equal(t, ContentHash([]Digest{HashRows(want[:300]), HashRows(want[300:600]), HashRows(want[600:])}),
		*sealed.ContentHash)
}

func TestAppend_SameIndex(t *testing.T) {
	t.Parallel()
	first := `{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":1e2}]}`
	for name, c := range map[string]struct {
		body   string
		replay bool
	}{
		"same bytes": {first, true},
		"white space and keys": {`{"records":[ { "c":[1,2,{"d":null}] , "b":"x","a":1 },{"n":1e2}],"chunk_index":0}`,
			true},
		"number spelling": {`{"chunk_index":0,"records":[{"a":1.00,"b":"x","c":[10e-1,2,{"d":null}]},{"n":100}]}`,
			true},
		"escapes": {`{"chunk_index":0,"records":[{"\u0061":1,"b":"\u0078","c":[1,2,{"d":null}]},{"n":1e2}]}`, true},
		"index spelled apart": {`{"chunk_index":0.0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":1e2}]}`,
			true},
		"another value": {`{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":101}]}`, false},
		"a string, no number": {`{"chunk_index":0,"records":[{"a":"1","b":"x","c":[1,2,{"d":null}]},{"n":1e2}]}`,
			false},
		"one key more": {`{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":1e2,"m":0}]}`,
			false},
		"one row less": {`{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]}]}`, false},
		"rows turned":  {`{"chunk_index":0,"records":[{"n":1e2},{"a":1,"b":"x","c":[1,2,{"d":null}]}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.create(t, 2)
			b.send(t, m.ID, []byte(first))
			r, err := b.Append(b.ctx, b.org, m.ID, []byte(c.body))
			if c.replay {
				require.NoError(t, err)
				assert.Equal(t, ChunkResult{m.ID, 0, 2, 0, 2, true}, r)
			} else {
				requireConflict(t, err, "Chunk 0 was already received with other records")
			}
			after, err := b.Get(b.ctx, b.org, m.ID)
			require.NoError(t, err)
			assert.EqualValues(t, 2, after.ReceivedCount)
			assert.EqualValues(t, 1, after.ChunkCount)
		})
	}
}

func TestAppend_SameIndexAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 1000)
	bodies := [][]byte{chunkBody(0, 0, 1000), chunkBody(0, 0, 1000), chunkBody(0, 0, 1000), chunkBody(0, 1, 1001),
		chunkBody(1, 0, 1000), chunkBody(1, 0, 1000)}
	var wg sync.WaitGroup
	results := make([]ChunkResult, len(bodies))
	errs := make([]error, len(bodies))
	for i := range bodies {
		wg.Go(func() { results[i], errs[i] = b.Append(b.ctx, b.org, m.ID, bodies[i]) })
	}
	wg.Wait()
	var inserted, conflicts int
	for i := range bodies {
		inserted += results[i].Inserted
		if errs[i] != nil {
			requireConflict(t, errs[i], "Chunk 0 was already received with other records")
			conflicts++
		}
	}
	assert.Equal(t, 2000, inserted)
	assert.Contains(t, []int{1, 3}, conflicts, "one of two contents won")
	_, err := b.Seal(b.ctx, b.org, m.ID, 2000)
	require.NoError(t, err)
	assert.Len(t, b.allRows(t, m.ID), 2000)
}

func TestAppend_WhileSealed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 10)
	b.send(t, m.ID, chunkBody(0, 0, 10))
	failed := make(chan error, 1)
	require.NoError(t, pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := b.q.RecordSetLock(ctx, tx, db.RecordSetLockParams{OrgID: b.org, ID: m.ID})
		require.NoError(t, err)
		go func() {
			_, err := b.Append(b.ctx, b.org, m.ID, chunkBody(1, 10, 20))
			failed <- err
		}()
		require.Eventually(t, func() bool {
			var waiting bool
			err := b.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock' AND query LIKE '%RecordSetReceive%')`).Scan(&waiting)
			return err == nil && waiting
		}, 10*time.Second, time.Millisecond, "the chunk waits for the seal")
		_, err = b.q.RecordSetSeal(ctx, tx, db.RecordSetSealParams{OrgID: b.org, ID: m.ID, ContentHash: "sha256:00",
			StagingSeconds: 60})
		require.NoError(t, err)
		return nil
	}))
	requireConflict(t, <-failed, "Record set is not open")
	require.Eventually(t, func() bool { return len(b.allRows(t, m.ID)) == 10 }, 60*time.Second, time.Millisecond)
}

func TestAppend_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 10)
	_, err := b.Append(b.ctx, b.addOrg(t), m.ID, chunkBody(0, 0, 10))
	assert.True(t, fault.Is(err, fault.NotFound))
	_, err = b.Append(b.ctx, b.org, uuid.New(), chunkBody(0, 0, 10))
	assert.True(t, fault.Is(err, fault.NotFound))
	b.send(t, m.ID, chunkBody(0, 0, 10))
	_, err = b.Seal(b.ctx, b.org, m.ID, 10)
	require.NoError(t, err)
	for _, body := range [][]byte{chunkBody(0, 0, 10), chunkBody(1, 10, 12)} {
		_, err = b.Append(b.ctx, b.org, m.ID, body)
		requireConflict(t, err, "Record set is not open")
	}
}

func TestAppend_GivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 20000)
	gaveUp := errors.New("gave up")
	failed := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO flow.page (set_id, first, rows, raw_bytes, body) VALUES ($1, 0, 1, 1, '')",
			m.ID)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = b.Append(short, b.org, m.ID, chunkBody(0, 0, 20000))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return gaveUp
	})
	require.ErrorIs(t, failed, gaveUp)
	assert.Equal(t, 20000, b.send(t, m.ID, chunkBody(0, 0, 20000)).Inserted)
	assert.Len(t, b.allRows(t, m.ID), 20000)
}
