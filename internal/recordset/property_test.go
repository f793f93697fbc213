package recordset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Any rows, in any order of chunks, with any chunk sent again, come back byte for byte, and the hash depends on the
// rows alone.
func TestProperty_Upload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(1, 7).Draw(rt, "chunk_size")
		rows := rapid.SliceOfN(anyRow(), 1, 40).Draw(rt, "rows")
		var bodies []string
		var digests []Digest
		for at := 0; at < len(rows); at += size {
			part := rows[at:min(at+size, len(rows))]
			bodies = append(bodies, fmt.Sprintf(`{"chunk_index":%d,"records":[%s]}`, len(bodies),
				strings.Join(part, ",")))
			var raw [][]byte
			for _, r := range part {
				raw = append(raw, []byte(r))
			}
			digests = append(digests, HashRows(raw))
		}
		m := b.create(t, size)
		order := rapid.Permutation(indexes(len(bodies))).Draw(rt, "order")
		sent := map[int]bool{}
		for _, i := range order {
			again := rapid.SampledFrom(order).Draw(rt, "again")
			for _, k := range []int{i, again} {
				r, err := b.Append(b.ctx, b.org, m.ID, []byte(bodies[k]))
				require.NoError(rt, err)
				require.Equal(rt, sent[k], r.Replay)
				sent[k] = true
			}
		}
		sealed, err := b.Seal(b.ctx, b.org, m.ID, int64(len(rows)))
		require.NoError(rt, err)
		require.Equal(rt, ContentHash(digests), *sealed.ContentHash)
		require.Equal(rt, rows, b.allRows(t, m.ID))
		require.NoError(rt, b.Delete(b.ctx, b.org, m.ID))
	})
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Large pages: rows around the bounds of a page.
func TestAppend_PageBounds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	row := func(n int) string { return `{"x":"` + strings.Repeat("a", n-8) + `"}` }
	for name, rows := range map[string][]string{
		"one huge":       {row(4 << 20)},
		"huge in a row":  {row(100), row(1 << 20), row(100), row(pageBytes), row(pageBytes - 1), row(8)},
		"just 64 KiB":    {row(pageBytes/2 - 1), row(pageBytes/2 - 1), row(pageBytes / 2), row(pageBytes / 2)},
		"251 small rows": strings.Fields(strings.Repeat("{} ", pageRows+1)),
	} {
		m := b.create(t, len(rows))
		b.send(t, m.ID, []byte(`{"chunk_index":0,"records":[`+strings.Join(rows, ",")+`]}`))
		require.Equal(t, rows, b.allRows(t, m.ID), name)
		var most, bytes int
		require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT max(rows), coalesce(max(raw_bytes) FILTER (WHERE rows > 1), 0)
			FROM flow.page WHERE set_id = $1`, m.ID).Scan(&most, &bytes))
		require.LessOrEqual(t, most, pageRows)
		require.LessOrEqual(t, bytes, pageBytes+3*pageRows)
	}
}
