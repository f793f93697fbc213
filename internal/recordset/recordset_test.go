package recordset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
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
	"flowlane/internal/pg/pgtest"
)

// chunkBody is a chunk of rows named from..to-1.
func chunkBody(index, from, to int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"chunk_index":%d,"records":[`, index)
	for i := from; i < to; i++ {
		if i > from {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"%d","n":%d}`, i, i)
	}
	b.WriteString("]}")
	return b.Bytes()
}

func (b *bundle) create(t *testing.T, chunkSize int) Manifest {
	t.Helper()
	m, err := b.Create(b.ctx, b.org, chunkSize, nil)
	require.NoError(t, err)
	return m
}

func (b *bundle) send(t *testing.T, id uuid.UUID, body []byte) ChunkResult {
	t.Helper()
	r, err := b.Append(b.ctx, b.org, id, body)
	require.NoError(t, err)
	return r
}

// allRows reads every row of a set through its pages.
func (b *bundle) allRows(t *testing.T, id uuid.UUID) []string {
	t.Helper()
	rows, err := b.pool.Query(b.ctx, "SELECT first FROM flow.page WHERE set_id = $1 ORDER BY first", id)
	require.NoError(t, err)
	firsts, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	pages, err := ReadPages(b.ctx, b.pool, id, firsts)
	require.NoError(t, err)
	var out []string
	for i := range pages {
		require.Equal(t, int64(len(out)), pages[i].First, "positions have no gap")
		texts, err := pages[i].Rows()
		require.NoError(t, err)
		for _, r := range texts {
			out = append(out, string(r))
		}
		pages[i].Release()
	}
	return out
}

func requireConflict(t *testing.T, err error, detail string) {
	t.Helper()
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Equal(t, fault.Conflict, f.Code)
	require.Equal(t, detail, f.Detail)
}

func TestCreate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	meta := `{"b":1.50,"a":{"x":1e400}}`
	m, err := b.Create(b.ctx, b.org, 0, []byte(meta))
	require.NoError(t, err)
	assert.Equal(t, MaxChunkSize, int(m.ChunkSize))
	assert.Equal(t, meta, m.Metadata)
	assert.Equal(t, db.FlowRecordSetStatusOpen, m.Status)
	assert.Equal(t, woken{ExpiryKind, m.ID.String(), *m.StagingExpiresAt}, *b.wake)
	assert.InDelta(t, Staging.Seconds(), m.StagingExpiresAt.Sub(m.CreatedAt).Seconds(), 1)

	got, err := b.Get(b.ctx, b.org, m.ID)
	require.NoError(t, err)
	assert.Equal(t, m, got)
	_, err = b.Get(b.ctx, b.addOrg(t), m.ID)
	assert.True(t, fault.Is(err, fault.NotFound))
	for _, size := range []int{-1, MaxChunkSize + 1} {
		_, err = b.Create(b.ctx, b.org, size, nil)
		assert.True(t, fault.Is(err, fault.Unprocessable), size)
	}
}

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
	assert.Equal(t, ContentHash([]Digest{HashRows(want[:300]), HashRows(want[300:600]), HashRows(want[600:])}), *sealed.ContentHash)
}

func TestAppend_SameIndex(t *testing.T) {
	t.Parallel()
	first := `{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":1e2}]}`
	for name, c := range map[string]struct {
		body   string
		replay bool
	}{
		"same bytes":           {first, true},
		"white space and keys": {`{"records":[ { "c":[1,2,{"d":null}] , "b":"x","a":1 },{"n":1e2}],"chunk_index":0}`, true},
		"number spelling":      {`{"chunk_index":0,"records":[{"a":1.00,"b":"x","c":[10e-1,2,{"d":null}]},{"n":100}]}`, true},
		"escapes":              {`{"chunk_index":0,"records":[{"\u0061":1,"b":"\u0078","c":[1,2,{"d":null}]},{"n":1e2}]}`, true},
		"index spelled apart":  {`{"chunk_index":0.0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":1e2}]}`, true},
		"another value":        {`{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":101}]}`, false},
		"a string, no number":  {`{"chunk_index":0,"records":[{"a":"1","b":"x","c":[1,2,{"d":null}]},{"n":1e2}]}`, false},
		"one key more":         {`{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]},{"n":1e2,"m":0}]}`, false},
		"one row less":         {`{"chunk_index":0,"records":[{"a":1,"b":"x","c":[1,2,{"d":null}]}]}`, false},
		"rows turned":          {`{"chunk_index":0,"records":[{"n":1e2},{"a":1,"b":"x","c":[1,2,{"d":null}]}]}`, false},
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
	bodies := [][]byte{chunkBody(0, 0, 1000), chunkBody(0, 0, 1000), chunkBody(0, 0, 1000), chunkBody(0, 1, 1001), chunkBody(1, 0, 1000), chunkBody(1, 0, 1000)}
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

// A chunk that meets a seal is either counted by it or refused.
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
		_, err = b.q.RecordSetSeal(ctx, tx, db.RecordSetSealParams{OrgID: b.org, ID: m.ID, ContentHash: "sha256:00", StagingSeconds: 60})
		require.NoError(t, err)
		return nil
	}))
	requireConflict(t, <-failed, "Record set is not open")
	require.Eventually(t, func() bool { return len(b.allRows(t, m.ID)) == 10 }, 10*time.Second, time.Millisecond)
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

func TestSeal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chunks   [][3]int
		expected int64
		detail   string
	}{
		"empty":        {nil, 0, ""},
		"one full":     {[][3]int{{0, 0, 10}}, 10, ""},
		"short last":   {[][3]int{{0, 0, 10}, {1, 10, 11}}, 11, ""},
		"too few":      {[][3]int{{0, 0, 10}}, 35, "expected_count is 35 but 10 records were received; missing chunk_index: 1-3"},
		"none":         {nil, 5, "expected_count is 5 but 0 records were received; missing chunk_index: 0"},
		"too many":     {[][3]int{{0, 0, 10}}, 9, "expected_count is 9 but 10 records were received"},
		"gaps":         {[][3]int{{1, 0, 10}, {5, 0, 10}}, 20, "missing chunk_index: 0, 2-4"},
		"short middle": {[][3]int{{0, 0, 10}, {1, 0, 3}, {2, 0, 10}}, 23, "only the last chunk may hold fewer than 10 records; short chunk_index: 1"},
		"all at once": {[][3]int{{0, 0, 3}, {2, 0, 10}}, 50, "expected_count is 50 but 13 records were received; missing chunk_index: 1, 3-4; " +
			"only the last chunk may hold fewer than 10 records; short chunk_index: 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.create(t, 10)
			for _, k := range c.chunks {
				b.send(t, m.ID, chunkBody(k[0], k[1], k[2]))
			}
			sealed, err := b.Seal(b.ctx, b.org, m.ID, c.expected)
			if c.detail != "" {
				requireConflict(t, err, "Record set cannot be sealed: "+c.detail)
				after, err := b.Get(b.ctx, b.org, m.ID)
				require.NoError(t, err)
				assert.Equal(t, db.FlowRecordSetStatusOpen, after.Status)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, db.FlowRecordSetStatusSealed, sealed.Status)
			assert.Equal(t, c.expected, *sealed.ExpectedCount)
			assert.InDelta(t, Staging.Seconds(), sealed.StagingExpiresAt.Sub(*sealed.SealedAt).Seconds(), 1)
			again, err := b.Seal(b.ctx, b.org, m.ID, c.expected)
			require.NoError(t, err)
			assert.Equal(t, sealed, again)
			_, err = b.Seal(b.ctx, b.org, m.ID, c.expected+1)
			requireConflict(t, err, fmt.Sprintf("Record set is already sealed with %d records, not %d", c.expected, c.expected+1))
		})
	}
}

func (b *bundle) consume(orgID, id uuid.UUID) (n int64, err error) {
	err = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		n, err = Consume(ctx, tx, orgID, id, uuid.New())
		return err
	})
	return n, err
}

func TestConsume(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 10)
	b.send(t, m.ID, chunkBody(0, 0, 4))
	_, err := b.consume(b.org, m.ID)
	requireConflict(t, err, "Record set is not sealed")
	_, err = b.Seal(b.ctx, b.org, m.ID, 4)
	require.NoError(t, err)
	_, err = b.consume(b.addOrg(t), m.ID)
	assert.True(t, fault.Is(err, fault.NotFound))

	failed := errors.New("a start that fails")
	err = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := Consume(ctx, tx, b.org, m.ID, uuid.New())
		return errors.Join(err, failed)
	})
	require.ErrorIs(t, err, failed)
	n, err := b.consume(b.org, m.ID)
	require.NoError(t, err, "a start that failed leaves the set sealed")
	assert.EqualValues(t, 4, n)
	_, err = b.consume(b.org, m.ID)
	requireConflict(t, err, "Record set is already consumed")
	requireConflict(t, b.Delete(b.ctx, b.org, m.ID), "Record set is already consumed")

	pgtest.MoveClock(t, b.pool, 10*Staging)
	got, err := b.Get(b.ctx, b.org, m.ID)
	require.NoError(t, err, "a consumed set does not expire")
	assert.Nil(t, got.StagingExpiresAt)
	_, err = b.expire(m.ID)
	require.NoError(t, err)
	assert.Len(t, b.allRows(t, m.ID), 4)
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m, other := b.create(t, 10), b.create(t, 10)
	b.send(t, m.ID, chunkBody(0, 0, 10))
	b.send(t, other.ID, chunkBody(0, 0, 10))
	assert.True(t, fault.Is(b.Delete(b.ctx, b.addOrg(t), m.ID), fault.NotFound))
	require.NoError(t, b.Delete(b.ctx, b.org, m.ID))
	assert.True(t, fault.Is(b.Delete(b.ctx, b.org, m.ID), fault.NotFound))
	b.requireNothing(t, m.ID)
	assert.Len(t, b.allRows(t, other.ID), 10)
}

func (b *bundle) requireNothing(t *testing.T, id uuid.UUID) {
	t.Helper()
	var left int
	require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT (SELECT count(*) FROM flow.record_set WHERE id = $1)
		+ (SELECT count(*) FROM flow.record_chunk WHERE record_set_id = $1) + (SELECT count(*) FROM flow.page WHERE set_id = $1)`, id).Scan(&left))
	require.Zero(t, left)
}

func (b *bundle) expire(id uuid.UUID) (again time.Time, err error) {
	err = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		again, err = b.Expire(ctx, tx, id)
		return err
	})
	return again, err
}

func TestExpire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 1)
	pgtest.MoveClock(t, b.pool, Staging-time.Minute)
	for i := range reclaimPages + 1 {
		b.send(t, m.ID, chunkBody(i, i, i+1))
	}
	pgtest.MoveClock(t, b.pool, 2*time.Minute)
	again, err := b.expire(m.ID)
	require.NoError(t, err)
	now, err := b.Get(b.ctx, b.org, m.ID)
	require.NoError(t, err, "an accepted chunk starts the time anew")
	assert.Equal(t, *now.StagingExpiresAt, again)

	pgtest.MoveClock(t, b.pool, Staging)
	_, err = b.Get(b.ctx, b.org, m.ID)
	assert.True(t, fault.Is(err, fault.NotFound), "an expired set is gone before it is reclaimed")
	_, err = b.Append(b.ctx, b.org, m.ID, chunkBody(200, 0, 1))
	assert.True(t, fault.Is(err, fault.NotFound))
	_, err = b.Seal(b.ctx, b.org, m.ID, 0)
	assert.True(t, fault.Is(err, fault.NotFound))
	_, err = b.consume(b.org, m.ID)
	assert.True(t, fault.Is(err, fault.NotFound))
	total, err := b.Count(b.ctx, b.org, Filter{})
	require.NoError(t, err)
	assert.Zero(t, total)

	again, err = b.expire(m.ID)
	require.NoError(t, err)
	assert.False(t, again.IsZero(), "rows remain after one step")
	again, err = b.expire(m.ID)
	require.NoError(t, err)
	assert.Zero(t, again)
	b.requireNothing(t, m.ID)
	again, err = b.expire(m.ID)
	require.NoError(t, err)
	assert.Zero(t, again)
}

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []uuid.UUID
	for range 5 {
		ids = append(ids, b.create(t, 10).ID)
	}
	_, err := b.Seal(b.ctx, b.org, ids[3], 0)
	require.NoError(t, err)
	sealed := db.FlowRecordSetStatusSealed
	for _, c := range []struct {
		filter Filter
		want   []uuid.UUID
		total  int64
	}{
		{Filter{MaxRows: 5}, ids, 5},
		{Filter{MaxRows: 2}, ids[:2], 5},
		{Filter{MaxRows: 2, Skip: 3}, ids[3:], 5},
		{Filter{MaxRows: 2, After: ids[1]}, ids[2:4], 5},
		{Filter{MaxRows: 2, Status: &sealed}, ids[3:4], 1},
		{Filter{MaxRows: 2, Skip: 9}, nil, 5},
	} {
		items, err := b.List(b.ctx, b.org, c.filter)
		require.NoError(t, err)
		total, err := b.Count(b.ctx, b.org, c.filter)
		require.NoError(t, err)
		var got []uuid.UUID
		for _, m := range items {
			got = append(got, m.ID)
		}
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.total, total)
	}
	other := b.addOrg(t)
	items, err := b.List(b.ctx, other, Filter{MaxRows: 5})
	require.NoError(t, err)
	total, err := b.Count(b.ctx, other, Filter{})
	require.NoError(t, err)
	assert.Empty(t, items)
	assert.Zero(t, total)
}

func TestAddInline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var id uuid.UUID
	rows := [][]byte{[]byte(`{"a": 1.0}`), []byte(`{"big":"` + strings.Repeat("x", 3*pageBytes) + `"}`), []byte(`{}`)}
	require.NoError(t, pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		var n int64
		id, n, err = AddInline(ctx, tx, rows)
		assert.EqualValues(t, 3, n)
		return err
	}))
	got := b.allRows(t, id)
	require.Len(t, got, 3)
	for i := range rows {
		assert.Equal(t, string(rows[i]), got[i])
	}
	var pages int
	require.NoError(t, b.pool.QueryRow(b.ctx, "SELECT count(*) FROM flow.page WHERE set_id = $1", id).Scan(&pages))
	assert.Equal(t, 3, pages)
	_, err := ReadPages(b.ctx, b.pool, id, []int64{0, 17})
	require.Error(t, err, "a page that is not there")
}

func TestStatusGuard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 10)
	for _, sql := range []string{
		"UPDATE flow.record_set SET status = 'consumed', batch_id = id, content_hash = '', sealed_at = now(), expected_count = 0, staging_expires_at = NULL WHERE id = $1",
		"UPDATE flow.record_set SET chunk_size = 11 WHERE id = $1",
		"UPDATE flow.record_set SET status = 'sealed' WHERE id = $1",
	} {
		_, err := b.pool.Exec(b.ctx, sql, m.ID)
		require.Error(t, err, sql)
	}
	_, err := b.Seal(b.ctx, b.org, m.ID, 0)
	require.NoError(t, err)
	for _, sql := range []string{
		"UPDATE flow.record_set SET status = 'open', content_hash = NULL, sealed_at = NULL WHERE id = $1",
		"UPDATE flow.record_set SET received_count = 5, expected_count = 5 WHERE id = $1",
		"UPDATE flow.record_set SET content_hash = 'other' WHERE id = $1",
	} {
		_, err := b.pool.Exec(b.ctx, sql, m.ID)
		require.Error(t, err, sql)
	}
}

// A caller that gives up while its chunk waits for another upload of the same index leaves nothing, and hangs nowhere.
func TestAppend_GivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 20000)
	gaveUp := errors.New("gave up")
	failed := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO flow.page (set_id, first, rows, raw_bytes, body) VALUES ($1, 0, 1, 1, '')", m.ID)
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
