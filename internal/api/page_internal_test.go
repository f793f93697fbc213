package api

import (
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/oas"
)

// TestGather reads rows of these sizes in pages: each row is listed once, in order, and no page holds much more than it
// may.
func TestGather(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	sizes := make([]int, 300)
	for i := range sizes {
		sizes[i] = []int{1, mib, mib / 2}[i%3]
	}
	sizes[7] = 2 * pageBytes
	for _, limit := range []int{1, 10, 63, 64, 65, 299, 300, 50_000} {
		var got []int
		cursor := oas.OptString{}
		for pages := 0; ; pages++ {
			require.Less(t, pages, 301)
			p, err := pageOf("l", uuid.Nil, oas.NewOptInt(limit), oas.OptInt{}, cursor)
			require.NoError(t, err)
			from := 0
			if p.Key != "" {
				from, err = strconv.Atoi(p.Key)
				require.NoError(t, err)
			}
			rows, err := gather(&p, func(i int) int { return sizes[i] },
				func(last *int, skip, n int32) (rows []int, err error) {
					require.LessOrEqual(t, n, int32(rowsAtOnce))
					at := from + int(skip)
					if last != nil {
						at = *last + 1
					}
					for ; at < len(sizes) && len(rows) < int(n); at++ {
						rows = append(rows, at)
					}
					return rows, nil
				})
			require.NoError(t, err)
			list := listOf(p, rows, int64(len(sizes)), func(i int) string { return strconv.Itoa(i + 1) },
				func(i int) int { return i })
			require.NotEmpty(t, list.Items)
			require.LessOrEqual(t, len(list.Items), limit)
			held := 0
			for _, i := range list.Items[1:] {
				held += sizes[i]
			}
			assert.LessOrEqual(t, held, pageBytes)
			assert.Equal(t, limit, list.Limit)
			got = append(got, list.Items...)
			text, more := list.NextCursor.Get()
			if !more {
				break
			}
			cursor = oas.NewOptString(text)
		}
		require.Len(t, got, len(sizes), "limit %d", limit)
		for i, at := range got {
			require.Equal(t, i, at)
		}
	}
}
