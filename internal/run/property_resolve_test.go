package run

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/pg"
)

// doubtful returns the records of a batch that a person could resolve.
func (b *modelBatch) doubtful() (out []*modelRecord) {
	for _, r := range b.records() {
		if slices.ContainsFunc(r.tasks, func(at place) bool { return at == doubted || at == lost }) {
			out = append(out, r)
		}
	}
	return out
}

// resolve settles one record as a person says, whatever else its calls carry.
func (p *play) resolve(b *modelBatch) {
	r := rapid.SampledFrom(b.doubtful()).Draw(p.t, "record")
	kinds := []string{"accepted", "rejected", "requeue"}
	if b.closed() {
		kinds = kinds[:2]
	}
	kind := rapid.SampledFrom(kinds).Draw(p.t, "resolution")
	position := r.slice.first + int64(r.offset)
	var after []func()
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error {
		after = nil
		c, err := p.s.Begin(ctx, tx, b.id)
		if err != nil {
			return err
		}
		doubts, err := c.Isolate(ctx, p.org, b.id, position)
		if err != nil {
			return err
		}
		open := 0
		for _, at := range r.tasks {
			if at == doubted || at == lost {
				open++
			}
		}
		require.Len(p.t, doubts, open, "tasks of %v in doubt", r)
		var results []Result
		for _, d := range doubts {
			task, outcome := int(d.Part.TaskNo), batch.EntryOK
			require.Equal(p.t, placeStatus[r.tasks[task]], d.From, "where task %d of %v is", task, r)
			result := Result{Part: d.Part, From: d.From, CallID: d.CallID, EndedAt: c.Now}
			switch {
			case kind == "requeue":
				outcome = batch.EntryRetry
			case kind == "rejected" && p.plan[r.step][task].kind == "upload":
				outcome = batch.EntryRejected
			case kind == "rejected":
				outcome = batch.EntryFailed
			}
			if outcome != batch.EntryOK {
				result.Exceptions = []Exception{{Offset: r.offset, Kind: outcome, Error: &batch.JobError{Code: "x"}}}
			}
			results = append(results, result)
			after = append(after, func() { r.settle(task, outcome, "", true) })
		}
		if err := c.Settle(ctx, results); err != nil {
			return err
		}
		return c.Apply(ctx)
	})
	for _, f := range after {
		f()
	}
}

// wantResolvable makes sure that only what is in doubt can be resolved, and that others are told where their job
// stands.
func (p *play) wantResolvable(b *modelBatch) {
	in := b.doubtful()
	for _, r := range b.records() {
		if slices.Contains(in, r) {
			continue
		}
		err := pg.InTx(p.ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
			c, err := p.s.Begin(ctx, tx, b.id)
			if err == nil {
				_, err = c.Isolate(ctx, p.org, b.id, r.slice.first+int64(r.offset))
			}
			return err
		})
		require.ErrorContains(p.t, err, "Job is "+string(r.status())+";", "%v", r)
		return
	}
}
