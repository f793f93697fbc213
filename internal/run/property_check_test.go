package run

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
)

// stored is what the rows of a batch say.
type stored struct {
	slices map[int32]*db.FlowAllSlice
	jobs   map[int64]*db.FlowJob
	parts  []db.PartsOfSlicesRow
	lanes  map[[2]int]db.FlowLaneBatch
	status batch.BatchStatus
	counts batch.Counts
}

func rowsOf[T any](p *play, sql string, args ...any) []*T {
	rows, err := p.pool.Query(p.ctx, sql, args...)
	require.NoError(p.t, err)
	out, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[T])
	require.NoError(p.t, err)
	return out
}

func (p *play) read(b *modelBatch) *stored {
	s := &stored{slices: map[int32]*db.FlowAllSlice{}, jobs: map[int64]*db.FlowJob{},
		lanes: map[[2]int]db.FlowLaneBatch{}}
	args := db.PartsOfSlicesParams{}
	for _, r := range rowsOf[db.FlowAllSlice](p, "SELECT * FROM flow.all_slices WHERE batch_id = $1", b.id) {
		s.slices[r.No] = r
		args.BatchIds, args.SliceNos = append(args.BatchIds, b.id), append(args.SliceNos, r.No)
	}
	for _, r := range rowsOf[db.FlowJob](p, "SELECT * FROM flow.job WHERE batch_id = $1", b.id) {
		s.jobs[r.Position] = r
	}
	var err error
	s.parts, err = p.q.PartsOfSlices(p.ctx, p.pool, args)
	require.NoError(p.t, err)
	for _, r := range rowsOf[db.FlowLaneBatch](p, "SELECT * FROM flow.lane_batch WHERE batch_id = $1", b.id) {
		s.lanes[[2]int{int(r.StepNo), int(r.TaskNo)}] = *r
	}
	row, err := p.q.BatchGet(p.ctx, p.pool, db.BatchGetParams{ID: b.id, OrgID: p.org})
	require.NoError(p.t, err)
	b.uncounted = row.FlowBatchCount.OneSlice && !b.touched
	s.status, s.counts = row.FlowBatchCount.Status, query.JobCounts(&query.BatchRow{FlowBatchCount: row.FlowBatchCount})
	return s
}

// concerns reports whether a part speaks of a record.
func (s *stored) concerns(part *db.PartsOfSlicesRow, r *modelRecord) bool {
	j := s.jobs[r.slice.first+int64(r.offset)]
	if part.SliceNo != r.slice.no || r.offset < part.FromOff || r.offset >= part.ToOff || slices.Contains(part.LeftOut,
		r.offset) {
		return false
	}
	if part.Detached {
		return j != nil
	}
	return j == nil || j.DetachedStep >= part.StepNo
}

func (p *play) check(after string) {
	p.checkOneEach(after)
	for _, b := range p.batches {
		s := p.read(b)
		p.checkRecords(after, b, s)
		p.checkCounts(after, b, s)
		p.checkWakes(after, b)
		p.checkWaits(after, b)
		p.checkLogs(after, b)
		require.Equal(p.t, b.state(), s.status, "batch after %s", after)
	}
	p.checkLists(after)
}

// checkRecords checks where every record stands, and that exactly one part speaks of each of its open tasks.
func (p *play) checkRecords(after string, b *modelBatch, s *stored) {
	open, covered := 0, 0
	for _, r := range b.records() {
		position := r.slice.first + int64(r.offset)
		j := s.jobs[position]
		require.Equal(p.t, r.detached, j != nil, "%v has a row of its own, after %s", r, after)
		if j != nil {
			require.Equal(p.t, r.status(), seen(b, j.Status), "%v after %s", r, after)
			if !b.closed() {
				require.Equal(p.t, r.local, j.Ready, "%v is ready, after %s", r, after)
			}
		} else {
			require.Equal(p.t, r.status(), p.derived(b, s, r), "%v after %s", r, after)
		}
		left := 0
		for task, at := range r.tasks {
			if at == away || at == over {
				continue
			}
			left++
			n := 0
			for i := range s.parts {
				part := &s.parts[i]
				if int(part.StepNo) == r.step && int(part.TaskNo) == task && s.concerns(part, r) {
					n++
					require.Equal(p.t, b.shown(placeStatus[at]), batch.StatusOfCall(part.CallState), "%v: task %d after %s",
						r, task, after)
				}
			}
			require.Equal(p.t, 1, n, "parts with task %d of %v, after %s", task, r, after)
		}
		open += left
		for i := range s.parts {
			if s.concerns(&s.parts[i], r) {
				covered++
			}
		}
		if j != nil && !batch.Terminal(j.Status) && !j.Ready && !b.closed() {
			require.EqualValues(p.t, left+len(r.held), j.Remaining, "open tasks of %v, after %s", r, after)
		}
	}
	require.Equal(p.t, open, covered, "records in parts, after %s", after)
}

// seen is what readers see of a job that stands there: the rows of a batch that is closed are not touched.
func seen(b *modelBatch, at batch.Status) batch.Status {
	if b.closed() && batch.Unsent(at) {
		return batch.Unprocessed
	}
	return at
}

// derived is where a record stands that has no row of its own, by its slice and parts.
func (p *play) derived(b *modelBatch, s *stored, r *modelRecord) batch.Status {
	sl := s.slices[r.slice.no]
	require.EqualValues(p.t, r.slice.step, sl.StepNo, "step of slice %d", sl.No)
	out, last := batch.Queued, int(sl.StepNo) == len(p.plan)-1
	if sl.State == batch.SliceStaged {
		out = batch.Staged
	}
	if sl.State == batch.SliceDone || sl.State == batch.SliceCalling && last {
		out = b.plan.end()
	}
	worst := 0
	for i := range s.parts {
		if part := &s.parts[i]; part.StepNo == sl.StepNo && s.concerns(part, r) {
			if st := batch.StatusOfCall(part.CallState); batch.Rank(st) > worst {
				out, worst = st, batch.Rank(st)
			}
		}
	}
	return seen(b, out)
}

// checkCounts checks the counters of slices, queues and the batch.
func (p *play) checkCounts(after string, b *modelBatch, s *stored) {
	var total batch.Counts
	for _, sl := range b.slices {
		row := s.slices[sl.no]
		var want batch.Counts
		remaining, detached := 0, 0
		for _, r := range sl.records {
			st := r.status()
			total[batch.Index(st)]++
			if st == batch.Unprocessed && r.end == "" {
				st = batch.Queued // a stopped batch's slices are not touched
				if row.State == batch.SliceStaged {
					st = batch.Staged
				}
			}
			want[batch.Index(st)]++
			if r.detached {
				detached++
			}
			for task, at := range r.tasks {
				if at != away && at != over && !r.alone[task] {
					remaining++
				}
			}
		}
		got := batch.Counts{int64(row.Staged), int64(row.Queued), int64(row.Pending), int64(row.Started),
			int64(row.NeedsReconcile), int64(row.Completed),
			int64(row.Failed), int64(row.Cancelled), int64(row.Accepted), int64(row.Rejected), int64(row.Unprocessed),
			int64(row.Unresolved)}
		require.Equal(p.t, want, got, "counters of slice %d after %s", sl.no, after)
		require.EqualValues(p.t, detached, row.Detached, "records that left slice %d, after %s", sl.no, after)
		if row.State == batch.SliceCalling {
			require.EqualValues(p.t, remaining, row.Remaining, "open pairs of slice %d, after %s", sl.no, after)
		}
	}
	require.Equal(p.t, total, s.counts, "counters of the batch after %s", after)
	if b.stopped {
		require.LessOrEqual(p.t, s.counts.Failures(), int64(b.most), "failures after %s", after)
	}
	for k, lane := range s.lanes {
		parts, records := map[int64]bool{}, 0
		for i := range s.parts {
			if part := &s.parts[i]; part.CallID == nil && !p.inCall(b, part) && [2]int{int(part.StepNo), int(part.TaskNo)} == k {
				parts[part.ID] = true
				for _, r := range b.records() {
					if s.concerns(part, r) {
						records++
					}
				}
			}
		}
		require.EqualValues(p.t, len(parts), lane.ReadyParts, "parts in queue %v after %s", k, after)
		require.EqualValues(p.t, records, lane.ReadyRecords, "records in queue %v after %s", k, after)
		require.Equal(p.t, !b.closed(), lane.Open, "queue %v is open", k)
	}
	if batch.BatchTerminal(b.state()) && !b.cancelled {
		require.Empty(p.t, s.lanes, "queues of a batch that is over after %s", after)
	}
}

// inCall reports whether a part is in a call that does not show yet.
func (p *play) inCall(b *modelBatch, part *db.PartsOfSlicesRow) bool {
	return b.uncounted && slices.ContainsFunc(b.records(), func(r *modelRecord) bool {
		return r.step == int(part.StepNo) && placeStatus[r.tasks[part.TaskNo]] == batch.Started
	})
}

// checkWakes checks that whatever got work was woken.
func (p *play) checkWakes(after string, b *modelBatch) {
	for k, queued := range b.fresh {
		if queued && !b.closed() {
			key := DispatchKey("d", p.plan[k[0]][k[1]].action())
			require.True(p.t, p.woken[DueDispatch+" "+key], "%s is woken after %s", key, after)
		}
	}
	if b.freshWait && !b.closed() {
		require.True(p.t, p.woken[DueWait+" "+b.id.String()], "the waits are woken after %s", after)
	}
	if b.freshWork && !b.closed() {
		require.True(p.t, p.woken[DueSlices+" "+b.id.String()], "the batch is woken after %s", after)
	}
	if b.staged && after == "start" {
		require.True(p.t, p.woken[DueRelease+" "+b.id.String()] || b.id != p.batches[len(p.batches)-1].id,
			"the release is woken")
	}
}
