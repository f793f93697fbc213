package recordset

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/pg"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	meta := `{"b":1.50,"a":{"x":1e400}}`
	m, err := b.Create(b.ctx, b.org, 0, []byte(meta))
	require.NoError(t, err)
	assert.Equal(t, MaxChunkSize, int(m.ChunkSize))
	assert.Equal(t, meta, m.Metadata)
	assert.Equal(t, Open, m.Status)
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

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []uuid.UUID
	for range 5 {
		ids = append(ids, b.create(t, 10).ID)
	}
	_, err := b.Seal(b.ctx, b.org, ids[3], 0)
	require.NoError(t, err)
	sealed := Sealed
	all := listing.Created(nil, nil)
	every, two := Filter{Created: all}, listing.Page{Range: all, MaxRows: 2}
	for _, c := range []struct {
		filter Filter
		page   listing.Page
		want   []uuid.UUID
		total  int64
	}{
		{every, listing.Page{Range: all, MaxRows: 5}, ids, 5},
		{every, two, ids[:2], 5},
		{every, listing.Page{Range: all, MaxRows: 2, Skip: 3}, ids[3:], 5},
		{every, two.Behind(ids[1]), ids[2:4], 5},
		{Filter{Created: all, Status: &sealed}, two, ids[3:4], 1},
		{every, listing.Page{Range: all, MaxRows: 2, Skip: 9}, nil, 5},
	} {
		items, err := b.List(b.ctx, b.org, c.filter, c.page)
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
	items, err := b.List(b.ctx, other, every, listing.Page{Range: all, MaxRows: 5})
	require.NoError(t, err)
	total, err := b.Count(b.ctx, other, every)
	require.NoError(t, err)
	assert.Empty(t, items)
	assert.Zero(t, total)
}

func TestAddInline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rows := [][]byte{[]byte(`{"a": 1.0}`), []byte(`{"big":"` + strings.Repeat("x", 3*pageBytes) + `"}`), []byte(`{}`)}
	for pages, rows := range map[int][][]byte{3: rows, 1: {rows[0], rows[2]}} {
		var setID uuid.UUID
		require.NoError(t, pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			setID, err = AddInline(ctx, tx, rows)
			return err
		}))
		sheet := OneSheet(rows)
		assert.Equal(t, pages == 1, sheet != nil)
		if sheet != nil {
			same, err := sheet.Page().Rows()
			require.NoError(t, err)
			assert.Equal(t, rows, same)
		}
		got := b.allRows(t, setID)
		require.Len(t, got, len(rows))
		for i := range rows {
			assert.Equal(t, string(rows[i]), got[i])
		}
		var stored int
		require.NoError(t, b.pool.QueryRow(b.ctx, "SELECT count(*) FROM flow.page WHERE set_id = $1",
			setID).Scan(&stored))
		assert.Equal(t, pages, stored)
		_, err := Pages{}.Read(b.ctx, b.pool, setID, []int64{0, 17})
		require.Error(t, err, "a page that is not there")
	}
}

func TestStatusGuard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 10)
	for _, sql := range []string{
		"UPDATE flow.record_set SET status = 'consumed', batch_id = id, content_hash = '', sealed_at = now(), " +
			"expected_count = 0, staging_expires_at = NULL WHERE id = $1",
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
