package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecords_KeyReach: a page of records with a key ends where it has looked through as many as it may, and the pages together have
// all that there are, each once.
func TestRecords_KeyReach(t *testing.T) {
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
	for _, limit := range []int{1, 2, 10} {
		for _, reach := range []int64{1, 17_000, records} {
			var got, ends []int64
			f := RecordFilter{BatchID: &batch, Key: "k3", KeyReach: reach, Limit: limit, Want: Want{Key: true}}
			for more := true; more; {
				page, err := w.s.Records(w.ctx, w.org, f)
				require.NoError(t, err)
				assert.EqualValues(t, len(page.Records), page.Total)
				for _, r := range page.Records {
					assert.Equal(t, "k3", r.Key)
					got = append(got, r.Position)
				}
				if f.FromBatch, more = batch, page.More; page.Stopped != "" {
					_, err := fmt.Sscanf(page.Stopped, batch.String()+".%d", &f.FromPosition)
					require.NoError(t, err)
					ends = append(ends, f.FromPosition)
				} else if more {
					f.FromPosition = got[len(got)-1]
				}
				f.FromPosition++
			}
			assert.Equal(t, want, got, "limit %d, reach %d", limit, reach)
			assert.Equal(t, reach == 1 && limit == 10, len(ends) > 0, "limit %d, reach %d: ends %v", limit, reach, ends)
		}
	}
}
