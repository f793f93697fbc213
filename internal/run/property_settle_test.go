package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"flowlane/internal/batch"

	"flowlane/internal/batch/query"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var standsAt = map[string]batch.Status{"intent": batch.Started, "unknown": batch.NeedsReconcile, "unresolved": batch.Unresolved}

// verdict is what becomes of one call in a settlement.
type verdict struct {
	call  *simCall
	what  string
	state string
}

// settle settles some calls in one change, as the dispatcher does: what is put back or doubted first, then the results.
func (p *play) settle(kind bool) {
	calls := p.calls(p.t, p.batches)
	var verdicts []verdict
	n := len(calls)
	if !kind {
		n = rapid.IntRange(1, min(4, len(calls))).Draw(p.t, "calls")
	}
	for range n {
		i := 0
		if !kind {
			i = rapid.IntRange(0, len(calls)-1).Draw(p.t, "call")
		}
		v := verdict{call: calls[i], what: "results", state: "settled"}
		if !kind {
			v.what = rapid.SampledFrom(verdictsOf(calls[i].state)).Draw(p.t, "verdict")
		}
		if s, ok := map[string]string{"requeue": "refused", "attempted": "refused", "doubt": "unknown",
			"abandon": "unresolved"}[v.what]; ok {
			v.state = s
		}
		verdicts = append(verdicts, v)
		calls = slices.Delete(calls, i, i+1)
	}
	var after []func()
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error {
		after = nil
		for _, v := range verdicts {
			if _, err := tx.Exec(ctx, "UPDATE flow.call SET state = $2 WHERE id = $1", v.call.id, v.state); err != nil {
				return err
			}
		}
		var ids []uuid.UUID
		for _, b := range p.batches {
			ids = append(ids, b.id)
		}
		begin := p.s.Begin
		if p.answered(ctx, verdicts) {
			begin = p.s.BeginAnswered
		}
		c, err := begin(ctx, tx, ids...)
		if err != nil {
			return err
		}
		for _, v := range verdicts {
			c.CallMoved(v.call.id, standsAt[v.call.state])
		}
		var results []Result
		for _, v := range verdicts {
			do, rs, err := p.apply(ctx, c, v, kind)
			if err != nil {
				return err
			}
			after, results = append(after, do...), append(results, rs...)
		}
		if err := c.Settle(ctx, results); err != nil {
			return err
		}
		return c.Apply(ctx)
	})
	for _, f := range after {
		f()
	}
	for _, v := range verdicts {
		p.each(v.call.parts, func(r *modelRecord, _ *batch.Part, _ int32) {
			r.slice.batch.touched = true
		})
	}
}

// answered reports whether nothing but results of calls is settled that can be counted, and has their parts named by
// their calls alone.
func (p *play) answered(ctx context.Context, verdicts []verdict) bool {
	for _, v := range verdicts {
		for i := range v.call.parts {
			b, err := p.s.Batch(ctx, p.pool, v.call.parts[i].BatchID)
			require.NoError(p.t, err)
			if v.what != "results" || v.call.state != "intent" || !Plain(b.Plan, &v.call.parts[i]) {
				return false
			}
		}
	}
	for _, v := range verdicts {
		for i := range v.call.parts {
			v.call.parts[i].ID = 0
		}
	}
	return true
}

func verdictsOf(state string) []string {
	switch state {
	case "intent":
		return []string{"results", "results", "results", "requeue", "attempted", "doubt"}
	case "unknown":
		return []string{"results", "requeue", "abandon"}
	}
	return []string{"results", "requeue"}
}

// apply does to a change what a verdict says. The model follows once the change is committed.
func (p *play) apply(ctx context.Context, c *Change, v verdict,
	kind bool) (after []func(), results []Result, err error) {
	from := standsAt[v.call.state]
	put := func(at place) {
		p.each(v.call.parts, func(r *modelRecord, part *batch.Part, _ int32) {
			after = append(after, func() {
				r.tasks[part.TaskNo] = at
				if at == waiting {
					r.slice.batch.fresh[[2]int{r.step, int(part.TaskNo)}] = !r.slice.batch.closed()
				}
			})
		})
	}
	switch v.what {
	case "requeue", "attempted":
		put(waiting)
		again := Requeueing{From: from, Attempted: v.what == "attempted"}
		if rapid.Bool().Draw(p.t, "why") {
			again.Why = &batch.JobError{Code: "later"}
		}
		return after, nil, c.Requeue(ctx, v.call.parts, again)
	case "doubt":
		put(doubted)
		return after, nil, c.MarkUnknown(ctx, v.call.parts)
	case "abandon":
		put(lost)
		return after, nil, c.MarkUnresolved(ctx, v.call.parts)
	}
	p.outputs++
	out := fmt.Sprint(p.outputs)
	for i := range v.call.parts {
		part := &v.call.parts[i]
		r := Result{Part: *part, From: from, CallID: v.call.id, StartedAt: c.Now, EndedAt: c.Now,
			Output: json.RawMessage(out)}
		p.each(v.call.parts[i:i+1], func(rec *modelRecord, part *batch.Part, o int32) {
			outcome, output := batch.EntryOK, out
			if !kind {
				outcome = p.outcome(part)
			}
			if outcome != batch.EntryOK {
				r.Exceptions = append(r.Exceptions, Exception{Offset: o, Kind: outcome, Error: &batch.JobError{Code: "x"},
					RetryAt: time.Time{}})
				output = ""
			}
			task := int(part.TaskNo)
			after = append(after, func() {
				// whose elements are told apart by the parts
				if outcome == batch.EntryOK && p.plan[part.StepNo][task].kind != "each" {
					p.accepted[rec.sending(task)] = true
				}
				rec.settle(task, outcome, output, true)
			})
		})
		results = append(results, r)
	}
	return after, results, nil
}

func (p *play) outcome(part *batch.Part) string {
	outcomes := []string{batch.EntryOK, batch.EntryOK, batch.EntryOK, batch.EntryFailed}
	if p.plan[part.StepNo][part.TaskNo].kind == "upload" {
		outcomes = append(outcomes, batch.EntryRejected)
	}
	if part.Attempt < 4 {
		outcomes = append(outcomes, batch.EntryRetry)
	}
	return rapid.SampledFrom(outcomes).Draw(p.t, "outcome")
}

// each calls f with the records of parts, in order.
func (p *play) each(parts []batch.Part, f func(r *modelRecord, part *batch.Part, offset int32)) {
	for i := range parts {
		part := &parts[i]
		b := p.batches[slices.IndexFunc(p.batches, func(b *modelBatch) bool { return b.id == part.BatchID })]
		for _, o := range part.Offsets() {
			f(b.record(part, o), part, o)
		}
	}
}

// checkFragments checks that every task of every record was settled exactly as often as it should be, and left its
// output.
func (p *play) checkFragments(b *modelBatch) {
	rows, err := p.pool.Query(p.ctx, "SELECT slice_no, step_no, task_no, body FROM flow.all_fragments WHERE batch_id = $1 ORDER BY seq", b.id)
	require.NoError(p.t, err)
	type key struct {
		r *modelRecord
		k [2]int
	}
	settled, outputs, skipped := map[key]int{}, map[key]string{}, map[[2]int]int64{}
	var no int32
	var step, task int
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&no, &step, &task, &body}, func() error {
		entries, err := decodeEntries(body)
		for i := range entries {
			for _, r := range b.slices[no].records {
				if entries[i].Decides() && entries[i].Covers(r.offset) {
					k := key{r, [2]int{step, task}}
					settled[k]++
					if entries[i].Kind == batch.EntrySkipped {
						skipped[k.k]++
					}
					if outputs[k] = string(entries[i].Output); strings.HasPrefix(outputs[k], `{"waited_until":`) {
						outputs[k] = "waited"
					}
				}
			}
		}
		return err
	})
	require.NoError(p.t, err)
	p.checkSkipped(b, skipped)
	for _, r := range b.records() {
		for step := range p.plan {
			for task := range p.plan[step] {
				k := [2]int{step, task}
				require.LessOrEqual(p.t, r.settled[k], 1, "%v: task %v in the model", r, k)
				require.Equal(p.t, r.settled[k], settled[key{r, k}], "%v: how often task %v was settled", r, k)
				require.Equal(p.t, r.outputs[k], outputs[key{r, k}], "%v: output of task %v", r, k)
			}
		}
	}
}

// checkSkipped checks how many records each task is said to have left out.
func (p *play) checkSkipped(b *modelBatch, want map[[2]int]int64) {
	row, err := p.s.ReadBatch(p.ctx, p.org, b.id)
	require.NoError(p.t, err)
	found, err := p.s.SkippedTasks(p.ctx, p.org, []query.BatchRow{*row})
	require.NoError(p.t, err)
	require.Len(p.t, found[b.id], len(want))
	for _, t := range found[b.id] {
		var at [2]int
		_, err := fmt.Sscanf(t.TaskID, "t%d_%d", &at[0], &at[1])
		require.NoError(p.t, err)
		require.Equal(p.t, want[at], t.Records, "records that %s left out", t.TaskID)
	}
}
