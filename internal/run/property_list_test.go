package run

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
	"flowlane/test/pgtest"
)

// listed names a record, or a run of it, in a list.
func listed(records []query.Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, fmt.Sprintf("%s.%d", batch.JobID(r.Batch.FlowBatch.ID, r.Position), r.Run))
	}
	return out
}

// shows reports whether a list with this filter has the record.
func shows(f *query.RecordFilter, r *query.Record) bool {
	return (f.CreatedAfter == nil || !r.Batch.FlowBatch.CreatedAt.Before(*f.CreatedAfter)) &&
		(f.CreatedBefore == nil || r.Batch.FlowBatch.CreatedAt.Before(*f.CreatedBefore)) && (f.BatchID == nil || *f.BatchID == r.Batch.FlowBatch.ID) &&
		(f.Position == nil || *f.Position == r.Position) &&
		(f.Status == nil || *f.Status == r.Status) && (f.Execution == nil || *f.Execution == r.Execution)
}

// everyRecord lists all, and holds them against the model.
func (p *play) everyRecord(after string, want query.Want) []query.Record {
	page, err := p.s.Records(p.ctx, p.org, query.RecordFilter{Want: want, Limit: math.MaxInt32})
	require.NoError(p.t, err)
	require.Len(p.t, page.Records, int(page.Total), "after %s", after)
	shown := page.Records
	for _, b := range p.batches {
		for _, r := range b.records() {
			for len(shown) > 1 && shown[1].Position == shown[0].Position &&
				shown[1].Batch.FlowBatch.ID == shown[0].Batch.FlowBatch.ID {
				shown = shown[1:] // an ended run
			}
			require.Equal(p.t, batch.JobID(b.id, r.position()), batch.JobID(shown[0].Batch.FlowBatch.ID, shown[0].Position),
				"after %s", after)
			require.Equal(p.t, r.status(), shown[0].Status, "%v after %s", r, after)
			shown = shown[1:]
		}
	}
	require.Empty(p.t, shown, "after %s", after)
	return page.Records
}

// checkLists holds a page of some list against the same records of the list of all: after a cursor, a skip, or both.
func (p *play) checkLists(after string) {
	if rapid.IntRange(0, 4).Draw(p.t, "list") > 0 {
		return
	}
	f := query.RecordFilter{Want: query.Want{History: true, Runs: rapid.Bool().Draw(p.t, "runs")}}
	all := p.everyRecord(after, f.Want)
	one := all[rapid.IntRange(0, len(all)-1).Draw(p.t, "one")]
	if f.Want.Runs {
		e := rapid.SampledFrom([]*batch.ExecutionStatus{nil, new(batch.ExecutionPending), new(batch.ExecutionRunning),
			new(batch.ExecutionCancelled), &one.Execution}).Draw(p.t, "execution")
		f.Execution = e
	} else if rapid.Bool().Draw(p.t, "by_status") {
		f.Status = new(rapid.SampledFrom([]batch.Status{batch.Queued, batch.Unprocessed, one.Status}).Draw(p.t, "status"))
	}
	switch rapid.IntRange(0, 3).Draw(p.t, "of") {
	case 0:
		f.BatchID = &one.Batch.FlowBatch.ID
	case 1:
		f.BatchID, f.Position = &one.Batch.FlowBatch.ID, &one.Position
	}
	made := &one.Batch.FlowBatch.CreatedAt
	switch rapid.IntRange(0, 3).Draw(p.t, "created") {
	case 0:
		f.CreatedAfter = made
	case 1:
		f.CreatedBefore = made
	}
	var want []query.Record
	for i := range all {
		if shows(&f, &all[i]) {
			want = append(want, all[i])
		}
	}
	if f.Newest = rapid.Bool().Draw(p.t, "newest"); f.Newest {
		slices.Reverse(want)
	}
	p.checkPage(p.t, after, f, want, rapid.IntRange(0, len(want)).Draw(p.t, "behind"), rapid.IntRange(0, 3).Draw(p.t,
		"skip"), rapid.IntRange(1, 4).Draw(p.t, "limit"))
}

// checkPage reads the page behind so many records of a list, and so many more.
func (w *world) checkPage(t require.TestingT, after string, f query.RecordFilter, want []query.Record, behind, skip, limit int) {
	f.Skip, f.Limit = skip, limit
	if behind > 0 {
		f.Behind(&want[behind-1])
	}
	page, err := w.s.Records(w.ctx, w.org, f)
	require.NoError(t, err)
	rest := want[min(behind+skip, len(want)):]
	require.Equal(t, listed(rest[:min(limit, len(rest))]), listed(page.Records),
		"after %s: %d of %d behind, skip %d, limit %d of %+v", after, behind, len(want), skip, limit, f)
	require.Equal(t, len(rest) > limit, page.More, "after %s", after)
	require.EqualValues(t, len(want), page.Total, "after %s: %+v", after, f)
}

// TestRecords_Skip: a skip over many batches comes where reading them would. There are more than are found at once.
func TestRecords_Skip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plan := modelPlan{{{kind: "upload"}}, {{kind: "upload"}}, {{kind: "transform"}}}
	def := w.define(t, plan, -1, false)
	for i := range 140 {
		b := w.start(t, plan, def, make([]modelInput, 1+i%4), 2, i%7 == 3, false)
		if i%3 == 2 {
			w.do(t, func(ctx context.Context, tx pgx.Tx) error {
				_, err := w.s.Cancel(ctx, tx, w.org, b.id, Cancellation{})
				return err
			})
		}
	}
	// What a step before did is not to be told from the counters of a batch.
	pgtest.WriteOutParts(t, w.pool)
	_, err := w.pool.Exec(w.ctx, `WITH begun AS (UPDATE flow.slice s SET step_no = 1 FROM flow.batch_count b WHERE b.batch_id = s.batch_id AND s.queued > 0 AND s.first = 0
			AND b.status = 'queued' RETURNING s.batch_id)
		UPDATE flow.batch_count b SET status = 'running', started_at = b.updated_at FROM begun WHERE begun.batch_id = b.batch_id`)
	require.NoError(t, err)
	some, err := w.s.Records(w.ctx, w.org, query.RecordFilter{Skip: 100, Limit: 150})
	require.NoError(t, err)
	early, late := &some.Records[0].Batch.FlowBatch.CreatedAt, &some.Records[149].Batch.FlowBatch.CreatedAt
	for _, filter := range []query.RecordFilter{
		{}, {Status: new(batch.Queued)}, {Status: new(batch.Staged)}, {Status: new(batch.Unprocessed)}, {Status: new(batch.Failed)},
		{Want: query.Want{History: true, Runs: true}, Execution: new(batch.ExecutionPending)},
		{Want: query.Want{History: true, Runs: true}, Execution: new(batch.ExecutionRunning)},
		{CreatedAfter: early, CreatedBefore: late}, {Want: query.Want{History: true, Runs: true},
			Execution: new(batch.ExecutionPending), CreatedBefore: late},
	} {
		f := filter
		f.Limit = math.MaxInt32
		whole, err := w.s.Records(w.ctx, w.org, f)
		require.NoError(t, err)
		want := whole.Records
		require.Equal(t, filter.Status != nil && *filter.Status == batch.Failed, len(want) == 0)
		for _, r := range want {
			require.True(t, shows(&filter, &r))
		}
		for _, f.Newest = range []bool{false, true} {
			filter.Newest = f.Newest
			if f.Newest {
				slices.Reverse(want)
			}
			for skip := 0; skip <= len(want)+1; skip += 3 {
				w.checkPage(t, "skip", filter, want, 0, skip, 2)
			}
			require.Equal(t, listed(want), listed(w.readAll(t, filter, 7)))
		}
	}
}

// readAll reads a list page by page.
func (w *world) readAll(t require.TestingT, f query.RecordFilter, limit int) (seen []query.Record) {
	for f.Limit = limit; ; {
		page, err := w.s.Records(w.ctx, w.org, f)
		require.NoError(t, err)
		if seen = append(seen, page.Records...); !page.More {
			return seen
		}
		f.Behind(&page.Records[len(page.Records)-1])
	}
}

// TestRecords_Together: batches that a page lists together keep their order, their ends and their inputs, with more
// slices in one of them than are looked at per query, and more in all than are in memory at once.
func TestRecords_Together(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plan := modelPlan{{{kind: "upload"}}}
	def := w.define(t, plan, -1, false)
	var want []string
	for i, records := range []int{2, 2*query.ScanSlices + 3, 1, 3} {
		in := make([]modelInput, records)
		for j := range in {
			in[j].a = (i+j)%3 == 0
		}
		b := w.start(t, plan, def, in, 1, false, false)
		if i%2 == 1 {
			w.do(t, func(ctx context.Context, tx pgx.Tx) error {
				_, err := w.s.Cancel(ctx, tx, w.org, b.id, Cancellation{})
				return err
			})
		}
		for j := range in {
			status := batch.Queued
			if i%2 == 1 {
				status = batch.Unprocessed
			}
			want = append(want, fmt.Sprintf(`%s %s {"a":%t`, batch.JobID(b.id, int64(j)), status, in[j].a))
		}
	}
	seen := func(records []query.Record) (out []string) {
		for _, r := range records {
			start, _, _ := strings.Cut(string(r.Input), ",")
			out = append(out, fmt.Sprintf("%s %s %s", batch.JobID(r.Batch.FlowBatch.ID, r.Position), r.Status, start))
		}
		return out
	}
	f := query.RecordFilter{Limit: len(want), Want: query.Want{Input: true, Output: true, History: true}}
	page, err := w.s.Records(w.ctx, w.org, f)
	require.NoError(t, err)
	require.Equal(t, want, seen(page.Records))
	require.False(t, page.More)
	all := page.Records
	for _, behind := range []int{1, 2, 40, len(want) - 5, len(want) - 3} {
		w.checkPage(t, "cursor", f, all, behind, 0, len(want))
		w.checkPage(t, "cursor and skip", f, all, behind, 2, len(want)-behind-3)
	}
	slices.Reverse(want)
	slices.Reverse(all)
	f.Newest = true
	page, err = w.s.Records(w.ctx, w.org, f)
	require.NoError(t, err)
	require.Equal(t, want, seen(page.Records))
	require.False(t, page.More)
	for _, behind := range []int{1, 4, 5, 40, len(want) - 5, len(want) - 3} {
		w.checkPage(t, "cursor", f, all, behind, 0, len(want))
		w.checkPage(t, "cursor and skip", f, all, behind, 2, len(want)-behind-3)
	}
}

// TestExport_Deleted: an export of a batch that is deleted meanwhile ends with an error, whatever rows are left of it,
// so that nobody takes what came for all.
func TestExport_Deleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plan := modelPlan{{{kind: "upload"}}}
	b := w.start(t, plan, w.define(t, plan, -1, false), make([]modelInput, 2*query.ScanSlices), 1, false, false)
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.s.Cancel(ctx, tx, w.org, b.id, Cancellation{})
		return err
	})
	export, err := w.s.Export(w.ctx, w.org, query.RecordFilter{BatchID: &b.id}, func(b []byte, _ *query.Record) []byte {
		return append(b, '\n')
	})
	require.NoError(t, err)
	first := make([]byte, query.ScanSlices)
	_, err = io.ReadFull(export, first)
	require.NoError(t, err)
	_, err = w.pool.Exec(w.ctx, `WITH counts AS (DELETE FROM flow.batch_count WHERE batch_id = $1)
		DELETE FROM flow.batch WHERE id = $1`, b.id)
	require.NoError(t, err)
	for range 2 {
		rest, err := io.ReadAll(export)
		assert.True(t, fault.Is(err, fault.NotFound), "%v", err)
		assert.Empty(t, rest)
	}
}

// ofItsOwn is the world with an organization that has nothing yet.
func (w *world) ofItsOwn(t require.TestingT) *world {
	own := *w
	own.org = uuid.Must(uuid.NewV7())
	_, err := w.pool.Exec(w.ctx, "INSERT INTO flow.organization (id, name) VALUES ($1, 'Own')", own.org)
	require.NoError(t, err)
	return &own
}
