package run

import (
	"fmt"
	"slices"
	"testing"

	"flowlane/internal/batch/query"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecords_KeyScanLimit: a page of records with a key ends where it has looked through as many as it may, and the
// pages together have all that there are, each once.
func TestRecords_KeyScanLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const records = 20_000
	rows := make([][]byte, records)
	var want []int64
	for i := range rows {
		rows[i] = fmt.Appendf(nil, `{"n":"k%d"}`, i%7001)
		if i%7001 == 3 {
			want = append(want, int64(i))
		}
	}
	doc := `{"key":"{{ input.n }}","steps":[{"id":"a","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]}`
	batch := w.startDoc(t, doc, rows)
	back := slices.Clone(want)
	slices.Reverse(back)
	for _, limit := range []int{1, 2, 10} {
		for _, scan := range []int64{1, 17_000, records} {
			for _, newest := range []bool{false, true} {
				want := want
				if newest {
					want = back
				}
				f := query.RecordFilter{BatchID: &batch, Key: "k3", ScanLimit: scan, Limit: limit, Newest: newest,
					Want: query.Want{Key: true}}
				got, ends := w.found(t, f)
				assert.Equal(t, want, got, "limit %d, scan %d, newest %t", limit, scan, newest)
				if newest && scan == 1 && limit == 2 { // the third one is behind where the page ends
					continue
				}
				assert.Equal(t, scan == 1 && limit == 10, len(ends) > 0, "limit %d, scan %d, newest %t: ends %v",
					limit, scan, newest, ends)
			}
		}
	}
}

// found are the positions that a list by key has, page by page, and those at which pages ended that had looked through
// enough.
func (w *world) found(t *testing.T, f query.RecordFilter) (got, ends []int64) {
	t.Helper()
	for more := true; more; {
		page, err := w.s.Records(w.ctx, w.org, f)
		require.NoError(t, err)
		assert.EqualValues(t, len(page.Records), page.Total)
		for _, r := range page.Records {
			assert.Equal(t, f.Key, r.Key)
			got = append(got, r.Position)
		}
		at := int64(0)
		if more = page.More; page.Stopped != "" {
			_, err := fmt.Sscanf(page.Stopped, f.BatchID.String()+".%d", &at)
			require.NoError(t, err)
			ends = append(ends, at)
		} else if more {
			at = got[len(got)-1]
		}
		f.BehindRun(*f.BatchID, at, 0)
	}
	return got, ends
}
