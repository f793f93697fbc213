package run

import (
	"context"
	"fmt"
	"testing"

	"flowlane/internal/batch"
	"flowlane/internal/pg"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The database refuses exactly the moves that are not drawn.
func TestAllowed_AgreesWithTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := uuid.Must(uuid.NewV7())
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		for i, from := range batch.Statuses {
			for j, to := range batch.Statuses {
				position := i*len(batch.Statuses) + j
				_, err := tx.Exec(ctx, `INSERT INTO flow.job (batch_id, position, slice_no, detached_step, step_no, status, updated_at)
					VALUES ($1, $2, 0, 0, 0, $3, now())`, id, position, from)
				if err != nil {
					return err
				}
				err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE flow.job SET status = $3 WHERE batch_id = $1 AND position = $2", id,
						position, to)
					return err
				})
				require.Equal(t, from == to || batch.MayMove(from, to), err == nil, "from %s to %s: %v", from, to, err)
			}
		}
		return nil
	})
}

// script drives one record through a step of two calls.
type script struct {
	*world
	t *testing.T
	b *modelBatch
}

func newScript(t *testing.T, plan modelPlan) *script {
	w := newWorld(t)
	s := &script{world: w, t: t}
	s.b = w.start(t, plan, w.define(t, plan, -1, false), []modelInput{{}}, 2, false, false)
	return s
}

// claim puts the task's queued part into a call.
func (s *script) claim(task int) uuid.UUID { return s.claimPart(s.queued(s.t, s.b.id, 0, task)[0]) }

func (s *script) claimPart(p batch.Part) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	s.do(s.t, func(ctx context.Context, tx pgx.Tx) error {
		c, err := s.s.Begin(ctx, tx, s.b.id)
		require.NoError(s.t, err)
		require.NoError(s.t, c.Claim(ctx, []ClaimedRange{{Part: p, CallID: id}}))
		require.NoError(s.t, s.insertCalls(ctx, tx, s.b.id, "dialer__api__modify", []uuid.UUID{id}, c.Now))
		return c.Apply(ctx)
	})
	return id
}

// settle ends a call; doubt leaves it unknown.
func (s *script) settle(id uuid.UUID, kind string) {
	for _, call := range s.calls(s.t, []*modelBatch{s.b}) {
		if call.id != id {
			continue
		}
		s.do(s.t, func(ctx context.Context, tx pgx.Tx) error {
			c, err := s.s.Begin(ctx, tx, s.b.id)
			require.NoError(s.t, err)
			state := "settled"
			r := Result{Part: call.parts[0], From: standsAt[call.state], CallID: id}
			switch kind {
			case "doubt":
				state = "unknown"
				require.NoError(s.t, c.MarkUnknown(ctx, call.parts))
			case batch.EntryOK:
				require.NoError(s.t, c.Settle(ctx, []Result{r}))
			default:
				r.Exceptions = []Exception{{Offset: 0, Kind: kind, Error: &batch.JobError{Code: "x"}}}
				require.NoError(s.t, c.Settle(ctx, []Result{r}))
			}
			_, err = tx.Exec(ctx, "UPDATE flow.call SET state = $2 WHERE id = $1", id, state)
			require.NoError(s.t, err)
			return c.Apply(ctx)
		})
		return
	}
	s.t.Fatalf("call %s is not open", id)
}

// stands checks where the record's own row and the counters say it stands.
func (s *script) stands(want batch.Status) {
	s.t.Helper()
	var got batch.Status
	require.NoError(s.t, s.pool.QueryRow(s.ctx, "SELECT status FROM flow.job WHERE batch_id = $1", s.b.id).Scan(&got))
	require.Equal(s.t, want, got)
	var n int
	require.NoError(s.t, s.pool.QueryRow(s.ctx, fmt.Sprintf("SELECT %s FROM flow.batch_count WHERE batch_id = $1",
		want), s.b.id).Scan(&n))
	require.Equal(s.t, 1, n, "counted as %s", want)
}

var twoCalls = modelPlan{{{kind: "modify"}, {kind: "modify"}}}

// The doubt about one call ends while the other one is under way: the record is started again, by way of queued.
func TestChange_DoubtEndsBesideACall(t *testing.T) {
	t.Parallel()
	s := newScript(t, twoCalls)
	a, b := s.claim(0), s.claim(1)
	s.settle(a, "doubt")
	s.settle(b, batch.EntryRetry)
	s.stands(batch.NeedsReconcile)
	b = s.claim(1)
	s.stands(batch.NeedsReconcile)
	s.settle(a, batch.EntryOK)
	s.stands(batch.Started)
	s.settle(b, batch.EntryOK)
	s.stands(batch.Completed)
}

// A bulk call rejects the record while the call beside it waits; that one is then not needed.
func TestChange_RejectedBesideASkippedCall(t *testing.T) {
	t.Parallel()
	s := newScript(t, modelPlan{{{kind: "upload"}, {kind: "modify"}}})
	s.settle(s.claim(0), batch.EntryRejected)
	s.stands(batch.Queued)
	s.do(t, func(ctx context.Context, tx pgx.Tx) error {
		c, err := s.s.Begin(ctx, tx, s.b.id)
		require.NoError(t, err)
		part := s.queued(t, s.b.id, 0, 1)[0]
		require.NoError(t, c.Claim(ctx, []ClaimedRange{{Part: part, NoCall: true}}))
		part.ID = 0
		require.NoError(t, c.Settle(ctx,
			[]Result{{Part: part, From: batch.Queued, Exceptions: []Exception{{Kind: batch.EntrySkipped}}}}))
		return c.Apply(ctx)
	})
	s.stands(batch.Rejected)
}

// A call that has all of a batch, and was not counted yet, takes the batch past its failure threshold: what it would
// try again is unprocessed, and no record is counted twice.
func TestChange_StopsByACallNotCounted(t *testing.T) {
	t.Parallel()
	w, plan := newWorld(t), modelPlan{{{kind: "upload"}}}
	b := w.start(t, plan, w.define(t, plan, 0, false), []modelInput{{}, {}, {}}, 4, false, false)
	id := uuid.Must(uuid.NewV7())
	ranges := []ClaimedRange{{Part: w.queued(t, b.id, 0, 0)[0], CallID: id}}
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		l := w.s.BatchLock([]uuid.UUID{b.id}, ranges)
		require.NoError(t, pg.QueryBatch(ctx, tx, l.Queries(ctx)...))
		c, err := w.s.BeginLocked(ctx, tx, l)
		require.NoError(t, err)
		require.NoError(t, c.Claim(ctx, ranges))
		require.NoError(t, w.insertCalls(ctx, tx, b.id, plan[0][0].action(), []uuid.UUID{id}, c.Now))
		return c.Apply(ctx)
	})
	counts := func() (n [4]int) {
		require.NoError(t, w.pool.QueryRow(w.ctx, `SELECT queued, accepted, failed, unprocessed FROM flow.batch_count
			WHERE batch_id = $1`, b.id).Scan(&n[0], &n[1], &n[2], &n[3]))
		return n
	}
	require.Equal(t, [4]int{3, 0, 0, 0}, counts(), "the claim writes no counters")
	part := w.calls(t, []*modelBatch{b})[0].parts[0]
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		c, err := w.s.Begin(ctx, tx, b.id)
		require.NoError(t, err)
		require.NoError(t, c.Settle(ctx, []Result{{Part: part, From: batch.Started, CallID: id, Exceptions: []Exception{
			{Offset: 0, Kind: batch.EntryFailed, Error: &batch.JobError{Code: "x"}},
			{Offset: 1, Kind: batch.EntryRetry, Error: &batch.JobError{Code: "x"}, RetryAt: c.Now},
		}}}))
		return c.Apply(ctx)
	})
	require.Equal(t, [4]int{0, 1, 1, 1}, counts())
}

// A retry that a cancel drops does not keep the record started once the call beside it ends.
func TestChange_CancelDropsARetry(t *testing.T) {
	t.Parallel()
	s := newScript(t, twoCalls)
	a, b := s.claim(0), s.claim(1)
	s.do(t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := s.s.Cancel(ctx, tx, s.org, s.b.id, Cancellation{})
		return err
	})
	s.settle(a, batch.EntryRetry)
	s.stands(batch.Started)
	s.settle(b, batch.EntryOK)
	s.stands(batch.Unprocessed)
}

// A retry that is queued in the same change as the other call's end leaves the record queued.
func TestChange_RetryBesideAnEnd(t *testing.T) {
	t.Parallel()
	s := newScript(t, twoCalls)
	a, b := s.claim(0), s.claim(1)
	s.do(t, func(ctx context.Context, tx pgx.Tx) error {
		c, err := s.s.Begin(ctx, tx, s.b.id)
		require.NoError(t, err)
		var results []Result
		for _, call := range s.calls(t, []*modelBatch{s.b}) {
			r := Result{Part: call.parts[0], From: batch.Started, CallID: call.id}
			if call.id == a {
				r.Exceptions = []Exception{{Kind: batch.EntryRetry, Error: &batch.JobError{Code: "x"}}}
			}
			results = append(results, r)
		}
		require.NoError(t, c.Settle(ctx, results))
		_, err = tx.Exec(ctx, "UPDATE flow.call SET state = 'settled' WHERE id = ANY($1)", []uuid.UUID{a, b})
		require.NoError(t, err)
		return c.Apply(ctx)
	})
	s.stands(batch.Queued)
	s.settle(s.claim(0), batch.EntryOK)
	s.stands(batch.Completed)
}

// The call that ends for a record is not what keeps it started, though a neighbour in the same change has the slice's
// calls read.
func TestChange_RetryBesideADetachedNeighbour(t *testing.T) {
	t.Parallel()
	s := &script{world: newWorld(t), t: t}
	plan := modelPlan{{{kind: "modify"}}}
	s.b = s.start(t, plan, s.define(t, plan, -1, false), []modelInput{{}, {}}, 2, false, false)
	first := s.queued(t, s.b.id, 0, 0)[0]
	first.To = 1
	s.settle(s.claimPart(first), batch.EntryRetry)
	for _, p := range s.queued(t, s.b.id, 0, 0) {
		s.claimPart(p)
	}
	s.do(t, func(ctx context.Context, tx pgx.Tx) error {
		c, err := s.s.Begin(ctx, tx, s.b.id)
		require.NoError(t, err)
		var results []Result
		for _, call := range s.calls(t, []*modelBatch{s.b}) {
			r := Result{Part: call.parts[0], From: batch.Started, CallID: call.id}
			r.Exceptions = []Exception{{Offset: r.Part.From, Kind: batch.EntryRetry, Error: &batch.JobError{Code: "x"}}}
			results = append(results, r)
		}
		require.Len(t, results, 2)
		require.NoError(t, c.Settle(ctx, results))
		_, err = tx.Exec(ctx, "UPDATE flow.call SET state = 'settled'")
		require.NoError(t, err)
		return c.Apply(ctx)
	})
	var stand []string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT array_agg(status::text) FROM flow.job WHERE batch_id = $1",
		s.b.id).Scan(&stand))
	require.Equal(t, []string{"queued", "queued"}, stand)
}

// The database lets a paused batch go nowhere but to where it was, and to cancelled.
func TestBatch_PausedGoesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plan := modelPlan{{{kind: "upload"}}}
	def := w.define(t, plan, -1, false)
	all := []batch.BatchStatus{batch.BatchQueued, batch.BatchRunning, batch.BatchPaused, batch.BatchCompleted, batch.BatchPartiallyFailed, batch.BatchFailed,
		batch.BatchCancelled}
	for _, from := range []batch.BatchStatus{batch.BatchQueued, batch.BatchRunning} {
		for _, to := range all {
			b := w.start(t, plan, def, []modelInput{{}}, 2, false, false)
			set := func(s batch.BatchStatus) error {
				_, err := w.pool.Exec(w.ctx, "UPDATE flow.batch_count SET status = $2 WHERE batch_id = $1", b.id, s)
				return err
			}
			require.NoError(t, set(from))
			require.NoError(t, set(batch.BatchPaused))
			err := set(to)
			require.Equal(t, to == from || to == batch.BatchPaused || to == batch.BatchCancelled, err == nil,
				"paused from %s to %s: %v", from, to, err)
			remembered := 0
			require.NoError(t, w.pool.QueryRow(w.ctx,
				"SELECT count(*) FROM flow.batch_count WHERE batch_id = $1 AND (status = 'paused') <> (paused_from IS NOT NULL)", b.id).Scan(&remembered))
			require.Zero(t, remembered, "the status before is kept while the batch is paused, and no longer")
		}
	}
}
