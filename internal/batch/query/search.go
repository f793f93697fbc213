package query

import (
	"context"

	"flowlane/internal/batch"
)

// Keys of records are not stored: they follow from the flow and from records that never change, so that a batch costs
// the same with and without them. Whoever looks for one has the records read through.

// keys reports whether records of the batch have keys.
func (b *Batch) keys() bool { return b.Plan.Key != nil }

// rowsOf returns the slices whose raw records must be read.
func (w Want) rowsOf(views []*Slice) (out []*Slice) {
	for _, v := range views {
		if w.Input || w.Key && v.Batch.keys() {
			out = append(out, v)
		}
	}
	return out
}

// search lists those records of slices that have the key. Their rows are read first, because most slices have none.
func (w *recordScan) search(ctx context.Context, views []*Slice) error {
	for len(views) > 0 && !w.more {
		for _, v := range views {
			v.needs = Needs{Own: NoFragments, Inherited: NoFragments}
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
		b, reached, on := last.Batch, last.First+int64(last.to)-1, false
		if w.f.Newest {
			reached = last.First + int64(last.from)
			on = reached > 0
		} else {
			on = reached+1 < b.FlowBatch.RecordCount || b.retry()
		}
		if w.searched >= w.f.ScanLimit && !w.more && on {
			w.more, w.stopped = true, batch.JobID(b.FlowBatch.ID, reached)
		}
		views = views[len(some):]
	}
	return nil
}

// searchSome is search where the rows of the slices fit into memory.
func (w *recordScan) searchSome(ctx context.Context, views []*Slice) error {
	release, err := w.s.readInputs(ctx, w.tx, views)
	if err != nil {
		return err
	}
	defer release()
	var with []*Slice
	for _, v := range views {
		if v.find(w.f.Key) {
			v.needs = w.f.Want.of(v.Batch)
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
func (v *Slice) find(key string) bool {
	is := v.Batch.Plan.Key.Is(key)
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
