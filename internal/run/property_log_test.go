package run

import (
	"time"

	"flowlane/internal/batch"

	"flowlane/internal/batch/query"

	"github.com/stretchr/testify/require"
)

// checkLogs checks that the log of every record goes on where it stood, tells where the record stands, and that a
// reader who looks only at what has another mark misses nothing.
func (p *play) checkLogs(after string, b *modelBatch) {
	p.follow(b, true, func(s *modelSlice, mark int64, logs []query.Log) {
		s.mark = mark
		for i, r := range s.records {
			old := r.log
			require.LessOrEqual(p.t, len(old.Events), len(logs[i].Events), "%v lost events, after %s", r, after)
			require.Equal(p.t, untimed(old.Events), untimed(logs[i].Events[:len(old.Events)]),
				"%v: the log became another, after %s", r, after)
			r.log = logs[i]
		}
	})
	p.follow(b, false, func(s *modelSlice, _ int64, logs []query.Log) {
		for i, r := range s.records {
			require.Equal(p.t, r.log, logs[i], "%v changed, but not its mark, after %s", r, after)
		}
	})
	for _, r := range b.records() {
		p.checkLog(after, r)
	}
}

func (p *play) follow(b *modelBatch, marked bool, do func(s *modelSlice, mark int64, logs []query.Log)) {
	watched := make([]query.Watched, len(b.slices))
	for i, s := range b.slices {
		watched[i] = query.Watched{OrgID: p.org, BatchID: b.id, SliceNo: s.no}
		if marked {
			watched[i].Mark = s.mark
		}
		for _, r := range s.records {
			watched[i].Runs = append(watched[i].Runs, query.WatchedRun{Position: s.first + int64(r.offset), Run: 1})
		}
	}
	require.NoError(p.t, p.s.Follow(p.ctx, watched, func(i int, mark int64, logs []query.Log) {
		do(b.slices[i], mark,
			logs)
	}))
}

// untimed leaves out when things happened: of a call under way it is known more exactly once it is over.
func untimed(events []query.Event) []query.Event {
	out := append([]query.Event{}, events...)
	for i := range out {
		out[i].At = time.Time{}
	}
	return out
}

// checkLog checks that what the events say comes to where the record stands.
func (p *play) checkLog(after string, r *modelRecord) {
	job, execution, no := batch.Staged, batch.ExecutionPending, int64(1)
	if len(r.log.Events) > 0 {
		no = r.log.Events[0].No - 1
	}
	began := p.began(r)
	for i, e := range r.log.Events {
		require.Equal(p.t, no+1, e.No, "%v: numbers after %s: %+v", r, after, r.log.Events)
		require.False(p.t, e.At.Before(began), "%v: %+v is from before its batch", r, e)
		no = e.No
		switch e.Kind {
		case query.EventJobStatus:
			require.NotEqual(p.t, string(job), e.Status, "%v: a repeat, after %s", r, after)
			job = batch.Status(e.Status)
		case query.EventExecutionStatus:
			require.NotEqual(p.t, string(execution), e.Status, "%v: a repeat, after %s", r, after)
			execution = batch.ExecutionStatus(e.Status)
		case query.EventClosed:
			require.Equal(p.t, len(r.log.Events)-1, i, "%v goes on after its end", r)
		}
	}
	require.Equal(p.t, no, r.log.Last, "%v: the last number after %s", r, after)
	require.Equal(p.t, r.status(), job, "%v: where the log says that the job stands, after %s: %+v", r, after,
		r.log.Events)
	require.Equal(p.t, batch.Terminal(r.status()), r.log.Closed(), "%v: the log is closed, after %s", r, after)
	record, steps, err := p.s.Execution(p.ctx, p.org, r.slice.batch.id, r.slice.first+int64(r.offset), 1)
	require.NoError(p.t, err)
	require.Equal(p.t, record.Execution, execution, "%v: where the log says that the execution stands, after %s: %+v",
		r, after, r.log.Events)
	p.checkSteps(after, r, steps)
}

func (p *play) began(r *modelRecord) (at time.Time) {
	row, err := p.s.ReadBatch(p.ctx, p.org, r.slice.batch.id)
	require.NoError(p.t, err)
	return row.FlowBatch.CreatedAt.Truncate(time.Millisecond)
}

// checkSteps compares what the log says of steps and tasks with the execution as it is read.
func (p *play) checkSteps(after string, r *modelRecord, steps []query.ExecutionStep) {
	stepAt, taskAt, attempts, calls := map[string]string{}, map[string]string{}, map[string]int32{}, map[string]int32{}
	for _, e := range r.log.Events {
		switch e.Kind {
		case query.EventStepStarted, query.EventStepCompleted, query.EventStepFailed:
			stepAt[e.StepID] = e.Status
		case query.EventTaskAttempt:
			taskAt[e.TaskID] = e.Status
			attempts[e.TaskID] = max(attempts[e.TaskID], e.Attempt)
			if e.Status == string(query.TaskRunning) {
				calls[e.TaskID]++
			}
		}
	}
	for i, s := range steps {
		if i < r.slice.began {
			continue // an earlier batch did it, and its log told of it
		}
		switch s.Status {
		case query.TaskCompleted, query.TaskFailed, query.TaskSkipped:
			require.Equal(p.t, string(s.Status), stepAt[s.Step.ID], "%v: step %s after %s: %+v", r, s.Step.ID, after,
				r.log.Events)
		case query.TaskPending:
			require.Empty(p.t, stepAt[s.Step.ID], "%v: step %s after %s", r, s.Step.ID, after)
		}
		for j, t := range s.Tasks {
			if r.before(i, j) {
				continue
			}
			// A call that did nothing is told of, and does not count as an attempt.
			most := attempts[t.Task.ID]
			if t.Task.ForEach != nil {
				most = calls[t.Task.ID] // its elements have attempts of their own
			}
			require.LessOrEqual(p.t, t.Attempts, most, "%v: attempts of %s after %s: %+v", r, t.Task.ID, after,
				r.log.Events)
			if said := taskAt[t.Task.ID]; said != "" && t.Status != query.TaskCancelled {
				require.Equal(p.t, string(t.Status), said, "%v: task %s after %s: %+v", r, t.Task.ID, after,
					r.log.Events)
			}
		}
	}
}
