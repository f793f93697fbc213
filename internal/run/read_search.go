package run

import (
	"context"
	"flowlane/internal/batch"
)

// Keys of records are not stored: they follow from the flow and from records that never change, so that a batch costs
// the same with and without them. Whoever looks for one has the records read through.

// keys reports whether records of the batch have keys.
func (b *batchView) keys() bool { return b.plan.Key != nil }

// rowsOf returns the slices whose raw records must be read.
func (w Want) rowsOf(views []*sliceView) (out []*sliceView) {
	for _, v := range views {
		if w.Input || w.Key && v.batch.keys() {
			out = append(out, v)
		}
	}
	return out
}

// search lists those records of slices that have the key. Their rows are read first, because most slices have none.
func (w *walk) search(ctx context.Context, views []*sliceView) error {
	for len(views) > 0 && !w.more {
		for _, v := range views {
			v.needs = needs{own: noTraces, inherited: noTraces}
		}
		some, err := w.s.fitting(ctx, w.tx, views, true)
		if err != nil {
			return err
		}
		if err := w.searchSome(ctx, some); err != nil {
			return err
		}
		for _, v := range some {
			w.searched += int64(v.to - v.from)
		}
		last := some[len(some)-1]
		b, reached, on := last.batch, last.First+int64(last.to)-1, false
		if w.f.Newest {
			reached = last.First + int64(last.from)
			on = reached > 0
		} else {
			on = reached+1 < b.FlowBatch.RecordCount || b.retry()
		}
		if w.searched >= w.f.KeyReach && !w.more && on {
			w.more, w.stopped = true, batch.JobID(b.FlowBatch.ID, reached)
		}
		views = views[len(some):]
	}
	return nil
}

// searchSome is search where the rows of the slices fit into memory.
func (w *walk) searchSome(ctx context.Context, views []*sliceView) error {
	release, err := w.s.readInputs(ctx, w.tx, views)
	if err != nil {
		return err
	}
	defer release()
	var with []*sliceView
	for _, v := range views {
		if v.find(w.f.Key) {
			v.needs = w.f.Want.of(v.batch)
			with = append(with, v)
		}
	}
	for len(with) > 0 && !w.more {
		opened, err := w.s.openFitting(ctx, w.tx, with, false)
		if err != nil {
			return err
		}
		for _, v := range opened {
			if err := w.takeSlice(v); err != nil {
				return err
			}
		}
		with = with[len(opened):]
	}
	return nil
}

// find notes which records of the slice, between from and to, have a key; false where none has.
func (v *sliceView) find(key string) bool {
	is := v.batch.plan.Key.Is(key)
	for o := v.from; o < v.to; o++ {
		if is(v.rows[o]) {
			if v.keyed == nil {
				v.keyed = make([]bool, v.Records)
			}
			v.keyed[o] = true
		}
	}
	return v.keyed != nil
}
