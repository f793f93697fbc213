package run

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// sending names a task of a record, whichever batch works on it.
type sending struct {
	root       uuid.UUID
	position   int64
	step, task int
}

func (r *modelRecord) position() int64 { return r.slice.first + int64(r.offset) }

func (r *modelRecord) sending(task int) sending {
	return sending{(*r.slice.batch.lineage)[0].id, r.position(), r.step, task}
}

// before reports whether an earlier batch did a task of the record's.
func (r *modelRecord) before(step, task int) bool {
	k := [2]int{step, task}
	return r.passed[k] && r.settled[k] == 0
}

// over reports whether the batch is: the calls of a cancelled one may still settle.
func (b *modelBatch) over() bool { return batch.BatchTerminal(b.state()) }

// at returns the batch's record at a position, nil if it has none.
func (b *modelBatch) at(position int64) *modelRecord {
	for _, r := range b.records() {
		if r.position() == position {
			return r
		}
	}
	return nil
}

// retrySome tries records of some batch again; false if none is left in any.
func (p *play) retrySome() bool {
	p.forget()
	for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}).Draw(p.t, "order") {
		if i < len(p.batches) && p.retry(p.batches[i]) {
			p.check("retry")
			return true
		}
	}
	return false
}

// retry starts the jobs of a batch again that have some statuses, and reports whether there were any.
func (p *play) retry(of *modelBatch) bool {
	all := []batch.Status{batch.Failed, batch.Rejected, batch.Unprocessed}
	n := rapid.IntRange(1, len(all)).Draw(p.t, "statuses")
	statuses := rapid.Permutation(all).Draw(p.t, "which")[:n]
	last := of.toRetry(statuses)
	b := &modelBatch{plan: of.plan, checked: of.checked, allowed: of.allowed, fresh: map[[2]int]bool{},
		lineage: of.lineage}
	err := pg.InTx(p.ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
		started, err := p.s.Retry(ctx, tx, RetryInput{OrgID: p.org, BatchID: of.id, Statuses: statuses})
		if err == nil {
			b.id = started.BatchID
			require.EqualValues(p.t, len(last), started.RecordCount)
		}
		return err
	})
	if len(last) == 0 {
		require.True(p.t, fault.Is(err, fault.Conflict), "%v", err)
		return false
	}
	require.NoError(p.t, err)
	in := make([]modelInput, 100)
	for _, r := range last {
		in[r.position()] = modelInput{r.a, r.z}
	}
	p.slices(p.t, b, in)
	records := b.records()
	require.Len(p.t, records, len(last))
	for i, r := range records {
		require.Equal(p.t, last[i].position(), r.position(), "positions stay")
		step := last[i].goesOn(r)
		r.slice.step, r.slice.began = step, step
		r.enter(step)
	}
	*b.lineage = append(*b.lineage, b)
	p.batches = append(p.batches, b)
	return true
}

// toRetry returns the records of certain statuses that can be tried again, each as the last batch left it, in order.
func (b *modelBatch) toRetry(statuses []batch.Status) (last []*modelRecord) {
	since := (*b.lineage)[slices.Index(*b.lineage, b)+1:]
	for _, r := range b.records() {
		if !slices.Contains(statuses, r.status()) {
			continue
		}
		left := true
		for _, newer := range since {
			if again := newer.at(r.position()); again != nil {
				r = again
				left = left && newer.over() && Retryable(r.status())
			}
		}
		if left {
			last = append(last, r)
		}
	}
	return last
}

// goesOn tells the record of a retry what came out well of the step at which this one stands, and returns the step at
// which it begins: where all of it did, the next one.
func (r *modelRecord) goesOn(again *modelRecord) int {
	plan := r.slice.batch.plan
	for i := range plan[r.step] {
		if !r.passed[[2]int{r.step, i}] {
			for j := range plan[r.step] {
				k := [2]int{r.step, j}
				if r.passed[k] {
					again.passed[k] = true
				}
			}
			return r.step
		}
	}
	if r.step == len(plan)-1 {
		return r.step
	}
	return r.step + 1
}

// checkOneEach checks that no record is worked on by two batches.
func (p *play) checkOneEach(after string) {
	open := map[sending]*modelRecord{}
	for _, b := range p.batches {
		for _, r := range b.records() {
			k := sending{root: (*b.lineage)[0].id, position: r.position()}
			if !batch.Terminal(r.status()) {
				require.Nil(p.t, open[k], "%v is worked on twice, after %s", r, after)
				open[k] = r
			}
		}
	}
}
