package run

import (
	"context"
	"fmt"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
)

// compact joins the fragments of steps that came to their end: calls of one record each leave one for nearly every
// transaction, and readers open them all.
func (c *Change) compact(ctx context.Context) error {
	if len(c.over.SliceNos) == 0 {
		return nil
	}
	c.over.Keep, c.over.Most = fragmentsKept, joinedMost
	rows, err := c.s.q.FragmentsMany(ctx, c.tx, c.over)
	if err != nil {
		return fmt.Errorf("read fragments: %w", err)
	}
	in := db.FragmentInsertParams{}
	for _, r := range rows {
		plain := []byte{batch.EncodingPlain}
		for _, body := range r.Bodies {
			raw, err := batch.UnpackFragment(body)
			if err != nil {
				return err
			}
			if plain = append(plain, raw...); len(plain) > joinedMost {
				break
			}
		}
		if len(plain) > joinedMost {
			continue
		}
		err := c.s.q.FragmentDelete(ctx, c.tx, db.FragmentDeleteParams{BatchID: r.BatchID, SliceNo: r.SliceNo,
			StepNo: r.StepNo, TaskNo: r.TaskNo, Seqs: r.Seqs})
		if err != nil {
			return fmt.Errorf("delete joined fragments: %w", err)
		}
		in.BatchIds, in.SliceNos = append(in.BatchIds, r.BatchID), append(in.SliceNos, r.SliceNo)
		in.StepNos, in.TaskNos = append(in.StepNos, r.StepNo), append(in.TaskNos, r.TaskNo)
		in.Skipped, in.Bodies = append(in.Skipped, r.Skipped), append(in.Bodies, batch.PackFragment(plain))
	}
	if len(in.Bodies) == 0 {
		return nil
	}
	return fault.Wrap(c.s.q.FragmentInsert(ctx, c.tx, in), "insert joined fragments")
}

const (
	// fragmentsKept is how many fragments a slice's task may keep after its end; more are joined into one.
	fragmentsKept = 3
	// joinedMost is the size that a joined fragment may have, compressed or not: larger ones stay, so that readers and
	// writers have one piece of work in memory at a time.
	joinedMost = 4 << 20
)
