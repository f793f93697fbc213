package run

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// modelWait is a row of flow.wait; its position is -1 where a slice waits.
type modelWait struct {
	no, position int64
	slice        int32
	task         int
}

func (p *play) waits(b *modelBatch) (out []modelWait) {
	rows, err := p.pool.Query(p.ctx, `SELECT no, coalesce(position, -1), coalesce(slice_no, (SELECT slice_no FROM flow.job j WHERE j.batch_id = w.batch_id AND j.position = w.position)), task_no
		FROM flow.wait w WHERE batch_id = $1 ORDER BY no`, b.id)
	require.NoError(p.t, err)
	defer rows.Close()
	for rows.Next() {
		var w modelWait
		require.NoError(p.t, rows.Scan(&w.no, &w.position, &w.slice, &w.task))
		out = append(out, w)
	}
	require.NoError(p.t, rows.Err())
	return out
}

// of returns the records that a wait holds.
func (w modelWait) of(b *modelBatch) (out []*modelRecord) {
	for _, r := range b.slices[w.slice].records {
		if r.position() == w.position || w.position == wholeSlice && !r.apart {
			out = append(out, r)
		}
	}
	return out
}

// endWaits lets the time of some waits come, of all where it is kind.
func (p *play) endWaits(b *modelBatch, kind bool) {
	var over []modelWait
	var nos []int64
	for _, w := range p.waits(b) {
		if kind || rapid.Bool().Draw(p.t, "over") {
			over, nos = append(over, w), append(nos, w.no)
		}
	}
	_, err := p.pool.Exec(p.ctx, "UPDATE flow.wait SET ends_at = began_at WHERE no = ANY($1)", nos)
	require.NoError(p.t, err)
	more, next, err := p.s.EndWaits(p.ctx, b.id)
	require.NoError(p.t, err)
	require.False(p.t, more)
	require.Equal(p.t, len(p.waits(b)) == 0, next.IsZero(), "when the next wait is over")
	for _, w := range over {
		for _, r := range w.of(b) {
			r.waited(w.task)
		}
	}
	for _, s := range b.slices {
		s.advance()
	}
}

// checkWaits checks that what waits has its rows, each record once for each task, and that the waits of batches stay that are paused,
// and go that are over.
func (p *play) checkWaits(after string, b *modelBatch) {
	if b.closed() || b.paused {
		rows := p.waits(b)
		_, err := p.pool.Exec(p.ctx, "UPDATE flow.wait SET ends_at = began_at WHERE batch_id = $1 AND $2", b.id, b.closed())
		require.NoError(p.t, err)
		_, _, err = p.s.EndWaits(p.ctx, b.id)
		require.NoError(p.t, err)
		if !b.closed() {
			require.Equal(p.t, rows, p.waits(b), "waits of a paused batch")
			return
		}
		require.Empty(p.t, p.waits(b), "waits after %s", after)
		return
	}
	held := map[*modelRecord][]int{}
	for _, w := range p.waits(b) {
		of := w.of(b)
		require.NotEmpty(p.t, of, "a wait of nobody, after %s", after)
		for _, r := range of {
			held[r] = append(held[r], w.task)
		}
	}
	for _, r := range b.records() {
		slices.Sort(held[r])
		want := r.held
		if r.end != "" {
			want = nil
		}
		require.ElementsMatch(p.t, want, held[r], "what %v waits for, after %s", r, after)
	}
}

// held reports whether records of the batch wait.
func (b *modelBatch) held() bool {
	return slices.ContainsFunc(b.records(), func(r *modelRecord) bool { return r.end == "" && len(r.held) > 0 })
}
