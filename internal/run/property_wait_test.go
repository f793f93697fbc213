package run

import (
	"slices"

	"flowlane/internal/batch"

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
	rows, err := p.pool.Query(p.ctx, `SELECT no, coalesce(position, -1), slice_no, task_no FROM flow.wait WHERE batch_id = $1 ORDER BY no`, b.id)
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
		if r.position() == w.position || w.position == wholeSlice && !r.detached {
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

// checkWaits checks that what waits has its rows, each record once for each task, and that the waits of batches stay
// that are paused, and go that are over.
func (p *play) checkWaits(after string, b *modelBatch) {
	if b.closed() || b.paused {
		rows := p.waits(b)
		_, err := p.pool.Exec(p.ctx, "UPDATE flow.wait SET ends_at = began_at WHERE batch_id = $1 AND $2", b.id,
			b.closed())
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

// waits reports whether the task waits with a record.
func (t modelTask) waits(r *modelRecord) bool {
	return t.kind == "delay" || t.kind == "event" || t.kind == "delay_a" && r.a
}

// wait keeps the members of a slice together whose work was done, if they all wait for the same; else those that wait
// leave it.
func (s *modelSlice) wait(worked []*modelRecord) {
	var members []*modelRecord
	alike := true
	for _, r := range s.records {
		if !r.detached && slices.Contains(worked, r) {
			members = append(members, r)
			alike = alike && slices.Equal(r.held, members[0].held) && !r.beside
		}
	}
	for _, r := range members {
		r.detached = !alike && len(r.held) > 0
	}
}

// waited ends a wait of a task for the record: a time has come, or an event has not.
func (r *modelRecord) waited(task int) {
	t := r.slice.batch.plan[r.step][task]
	if !slices.Contains(r.held, task) {
		return // the record failed by another wait
	}
	r.held = slices.DeleteFunc(r.held, func(t int) bool { return t == task })
	k := [2]int{r.step, task}
	bad := t.kind == "event"
	if r.passed[k] = !bad || t.passes; !bad {
		r.outputs[k] = "waited"
	}
	r.settled[k]++
	if !r.passed[k] {
		if r.held = nil; !r.beside {
			r.leave()
			return
		}
		r.doom = batch.Failed
	}
	switch {
	case r.beside && r.allOver():
		r.stepOver(batch.EntryOK, false)
	case !r.beside && len(r.held) == 0:
		r.workOver()
	}
}

// held reports whether records of the batch wait.
func (b *modelBatch) held() bool {
	return slices.ContainsFunc(b.records(), func(r *modelRecord) bool { return r.end == "" && len(r.held) > 0 })
}
