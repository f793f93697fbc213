package recordset

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/internal/fault"
	"flowlane/test/pgtest"
)

// woken is a Waker that keeps what it was asked for.
type woken struct {
	kind, key string
	at        time.Time
}

func (w *woken) Wake(_ context.Context, _ pgx.Tx, kind, key string, at time.Time) error {
	*w = woken{kind, key, at}
	return nil
}

// bundle is a database with one organization.
type bundle struct {
	*Service
	ctx  context.Context
	pool *pgxpool.Pool
	org  uuid.UUID
	wake *woken
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{ctx: t.Context(), pool: pgtest.New(t), wake: &woken{}}
	b.Service = New(b.pool, b.wake, nil)
	b.org = b.addOrg(t)
	return b
}

func (b *bundle) addOrg(t testing.TB) uuid.UUID {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	_, err = b.pool.Exec(b.ctx, "INSERT INTO flow.organization (id, name) VALUES ($1, 'test')", id)
	require.NoError(t, err)
	return id
}

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

func (b *bundle) allRows(t *testing.T, id uuid.UUID) []string {
	t.Helper()
	rows, err := b.pool.Query(b.ctx, "SELECT first FROM flow.page WHERE set_id = $1 ORDER BY first", id)
	require.NoError(t, err)
	firsts, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	pages, err := Pages{}.Read(b.ctx, b.pool, id, firsts)
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

func (b *bundle) requireNothing(t *testing.T, id uuid.UUID) {
	t.Helper()
	var left int
	require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT (SELECT count(*) FROM flow.record_set WHERE id = $1)
		+ (SELECT count(*) FROM flow.record_chunk WHERE record_set_id = $1) + (SELECT count(*) FROM flow.page WHERE set_id = $1)`, id).Scan(&left))
	require.Zero(t, left)
}
