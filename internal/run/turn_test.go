package run

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/memory"
)

// startDoc starts a batch of these records through the steps of a document.
func (w *world) startDoc(t *testing.T, doc string, rows [][]byte) uuid.UUID {
	t.Helper()
	def := w.define(t, modelPlan{{{kind: "transform"}}}, -1, false)
	_, err := w.q.CreateDefinitionVersion(w.ctx, w.pool, db.CreateDefinitionVersionParams{DefinitionID: def, Version: 2,
		OrgID: w.org, Doc: []byte(doc), CreatedBy: "test"})
	require.NoError(t, err)
	var batchID uuid.UUID
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		out, err := w.s.Start(ctx, tx, StartInput{OrgID: w.org, DefinitionID: def, Version: 2,
			Source: Source{Records: rows}, TriggerType: TriggerAPICall})
		batchID = out.BatchID
		return err
	})
	return batchID
}

func (w *world) counts(t *testing.T, batchID uuid.UUID) batch.Counts {
	t.Helper()
	row, err := w.s.ReadBatch(w.ctx, w.org, batchID)
	require.NoError(t, err)
	return query.JobCounts(row)
}

// numbered are records of one slice.
func numbered(n int) (rows [][]byte) {
	for i := range n {
		rows = append(rows, fmt.Appendf(nil, `{"n":%d,"odd":%t}`, i, i%2 == 1))
	}
	return rows
}

// TestWork_Neighbours: records that make much, in many tasks and steps, do so one after the other, and none fails
// because of others.
func TestWork_Neighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	budget := memory.New(memory.Least)
	w.s.Limit(Limits{Memory: budget})
	big := strings.Repeat("x", 200<<10)
	step := func(id, value string) string {
		var tasks []string
		for i := range 20 {
			tasks = append(tasks, fmt.Sprintf(`{"id":"t%d","action_id":"core__flow__transform","params":{"value":%s}}`,
				i, value))
		}
		return `{"id":"` + id + `","tasks":[` + strings.Join(tasks, ",") + `]}`
	}
	doc := `{"steps":[` + step("a", `"{{ input.n }}`+big+`"`) + `,` + step("b", `"{{ steps.a.t7.output }}"`) + `]}`
	const records = 12
	batchID := w.startDoc(t, doc, numbered(records))
	turns := 0
	for more := true; more; turns++ {
		var err error
		more, err = w.s.Work(w.ctx, batchID)
		require.NoError(t, err)
	}
	c := w.counts(t, batchID)
	assert.Equal(t, int64(records), c.Of(batch.Completed))
	assert.GreaterOrEqual(t, turns, 2*records*20*len(big)/turnBytes/2)
	held, peak := budget.Held()
	assert.Zero(t, held)
	assert.LessOrEqual(t, peak, int64(memory.Least))
	page, err := w.s.Records(w.ctx, w.org, query.RecordFilter{BatchID: &batchID, Want: query.Want{Output: true}, Limit: records})
	require.NoError(t, err)
	for _, r := range page.Records {
		assert.Contains(t, string(r.Output), fmt.Sprintf(`"%d%s"`, r.Position, big))
	}
}

// ticking is a clock that goes on whenever it is looked at.
type ticking struct {
	now  time.Time
	step time.Duration
}

func (c *ticking) Now() time.Time {
	c.now = c.now.Add(c.step)
	return c.now
}

// TestWork_Turn: a turn ends when its time is over, and the next goes on where it ended, for records that fail,
// wait and go on.
func TestWork_Turn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.Limit(Limits{Now: (&ticking{step: time.Millisecond}).Now, Turn: 50 * time.Millisecond})
	doc := `{"steps":[{"id":"a","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}},
		{"id":"f","action_id":"core__flow__fail","params":{"message":"no"},"when":"{{ input.n == 7 }}"},
		{"id":"w","action_id":"core__flow__delay","params":{"seconds":3600},"when":"{{ input.n > 100 && input.odd }}"}]},
		{"id":"b","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.a.t.output + 1 }}"}}]}]}`
	batchID := w.startDoc(t, doc, numbered(200))
	turns := 0
	for more := true; more; turns++ {
		var err error
		more, err = w.s.Work(w.ctx, batchID)
		require.NoError(t, err)
		if turns == 0 {
			var state string
			var done int
			require.NoError(t, w.pool.QueryRow(w.ctx,
				"SELECT state, remaining FROM flow.all_slices WHERE batch_id = $1", batchID).Scan(&state, &done))
			assert.Equal(t, batch.SliceReady, state)
			assert.InDelta(t, 25, done, 24)
		}
	}
	assert.Greater(t, turns, 6)
	c := w.counts(t, batchID)
	assert.Equal(t, int64(1), c.Of(batch.Failed))
	assert.Equal(t, int64(50), c.Of(batch.Queued))
	assert.Equal(t, int64(149), c.Of(batch.Completed))
	page, err := w.s.Records(w.ctx, w.org, query.RecordFilter{BatchID: &batchID, Status: new(batch.Completed),
		Want: query.Want{Output: true}, Limit: 1000})
	require.NoError(t, err)
	for _, r := range page.Records {
		assert.Equal(t, fmt.Sprint(r.Position+1), string(r.Output))
	}
}

// TestWork_Over: nothing is evaluated for a batch that is over, and what a turn made is dropped when its batch ends
// meanwhile.
func TestWork_Over(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	looked := 0
	w.s.Limit(Limits{Turn: 50 * time.Millisecond, Now: func() time.Time {
		looked++
		return time.Unix(0, 0).Add(time.Duration(looked) * time.Millisecond)
	}})
	doc := `{"steps":[{"id":"a","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]}`
	batchID := w.startDoc(t, doc, numbered(200))
	more, err := w.s.Work(w.ctx, batchID)
	require.NoError(t, err)
	require.True(t, more)
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.s.Cancel(ctx, tx, w.org, batchID, Cancellation{})
		return err
	})
	looked = 0
	more, err = w.s.Work(w.ctx, batchID)
	require.NoError(t, err)
	assert.False(t, more)
	assert.Zero(t, looked)
	c := w.counts(t, batchID)
	assert.Equal(t, int64(200), c.Of(batch.Unprocessed))
}

// TestWork_RetryInTheMiddle: a retry of a batch that was cancelled between two turns does not do again what the
// first has done.
func TestWork_RetryInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.Limit(Limits{Now: (&ticking{step: time.Millisecond}).Now, Turn: 50 * time.Millisecond})
	doc := `{"steps":[{"id":"a","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]}`
	batchID := w.startDoc(t, doc, numbered(100))
	done := func() (n int) {
		rows, err := w.pool.Query(w.ctx, "SELECT body FROM flow.all_fragments")
		require.NoError(t, err)
		bodies, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		require.NoError(t, err)
		for _, body := range bodies {
			entries, err := decodeEntries(body)
			require.NoError(t, err)
			for i := range entries {
				entries[i].Each(func(int32) { n++ })
			}
		}
		return n
	}
	_, err := w.s.Work(w.ctx, batchID)
	require.NoError(t, err)
	first := done()
	assert.True(t, first > 0 && first < 100, first)
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.s.Cancel(ctx, tx, w.org, batchID, Cancellation{})
		return err
	})
	var again uuid.UUID
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		out, err := w.s.Retry(ctx, tx, RetryInput{OrgID: w.org, BatchID: batchID, Statuses: []batch.Status{batch.Unprocessed}})
		if err == nil {
			again = out.BatchID
		}
		return err
	})
	for more := true; more; {
		more, err = w.s.Work(w.ctx, again)
		require.NoError(t, err)
	}
	c := w.counts(t, again)
	assert.Equal(t, int64(100), c.Of(batch.Completed))
	assert.Equal(t, 100, done())
}

// TestWork_SettlesWithLittle: a turn that is being settled holds what it made, and leaves the rest of its memory to
// others.
func TestWork_SettlesWithLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	budget := memory.New(memory.Least)
	w.s.Limit(Limits{Memory: budget})
	batchID := w.startDoc(t, `{"steps":[{"id":"a","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]}`, numbered(1))
	tx, err := w.pool.Begin(w.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(w.ctx, "SELECT FROM flow.batch_count WHERE batch_id = $1 FOR UPDATE", batchID)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := w.s.Work(w.ctx, batchID)
		done <- err
	}()
	require.Eventually(t, func() bool {
		waits := false
		err := w.pool.QueryRow(w.ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits
	}, time.Minute, time.Millisecond)
	held, peak := budget.Held()
	assert.Less(t, held, int64(1<<10))
	assert.EqualValues(t, turnRoom, peak)
	require.NoError(t, tx.Commit(w.ctx))
	require.NoError(t, <-done)
	counts := w.counts(t, batchID)
	assert.Equal(t, int64(1), counts.Of(batch.Completed))
}
