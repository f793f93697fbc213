package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// BatchResolution settles many jobs of a batch alike.
type BatchResolution struct {
	// Resolution is what is said of each; its Position says nothing.
	Resolution
	// Statuses of the jobs: NeedsReconcile, Unresolved or both. With Groups only those whose error is in one of them.
	Statuses []batch.Status
	Groups   []string
	// Expected is how many jobs there must be; nil for any number.
	Expected *int64
}

// BatchResolved is what came of it: how many jobs were settled, and how many are left, which another request settles.
type BatchResolved struct {
	Resolved, Remaining int64
}

// What one request settles is bounded: by records, of which each transaction counts for as many more as it takes
// longer.
const (
	resolveMax  = 50_000
	resolveCost = 50
	// resolvePage is how many calls are read at once.
	resolvePage = 500
)

// ResolveBatch settles jobs of a batch as a person says: call by call, each in a transaction of its own, so that what
// is done stays done should a later one fail. Faults: NotFound; Conflict where another number of jobs is in doubt than
// was expected, and for a requeue in a batch that is over.
func (d *Dispatcher) ResolveBatch(ctx context.Context, in BatchResolution) (*BatchResolved, error) {
	ctx = pg.AsWorker(ctx) // as Resolve
	total, err := d.countUncertain(ctx, &in)
	if err != nil {
		return nil, err
	}
	if in.Expected != nil && *in.Expected != total {
		return nil, fault.New(fault.Conflict, "%d jobs are in doubt, not %d; look at them again", total, *in.Expected)
	}
	out := &BatchResolved{}
	budget := resolveMax
	for after := uuid.Nil; total > 0 && budget > 0; {
		calls, err := d.q.CallsUncertainOf(ctx, d.Pool, db.CallsUncertainOfParams{BatchID: in.BatchID, OrgID: in.OrgID,
			After:    &after,
			MaxCalls: resolvePage})
		if err != nil {
			return nil, fmt.Errorf("read the calls in doubt: %w", err)
		}
		for i := range calls {
			after = calls[i].ID
			if budget <= 0 || !slices.Contains(in.Statuses, recordsIn[calls[i].State]) {
				continue
			}
			n, cost, err := d.resolveCall(ctx, &in, after, out.Resolved == 0)
			if err != nil {
				return nil, err
			}
			out.Resolved += n
			budget -= cost
		}
		if len(calls) < resolvePage {
			break
		}
	}
	out.Remaining = max(total-out.Resolved, 0)
	return out, nil
}

// countUncertain counts the jobs that are meant.
func (d *Dispatcher) countUncertain(ctx context.Context, in *BatchResolution) (n int64, err error) {
	found, err := d.Runs.Errors(ctx, in.OrgID, in.BatchID, in.Statuses...)
	if err != nil {
		return 0, err
	}
	for i := range found.Groups {
		if g := &found.Groups[i]; len(in.Groups) == 0 || slices.Contains(in.Groups, g.ID) {
			n += g.Count
		}
	}
	if len(in.Groups) == 0 {
		n += found.Others
	}
	return n, nil
}

// resolveCall settles those records of a call that are meant. cost is what it takes of resolveMax. first: it is what
// the request changes first, and tells the audit log of it.
func (d *Dispatcher) resolveCall(ctx context.Context, in *BatchResolution, id uuid.UUID, first bool,
) (n int64, cost int, err error) {
	var alone []int64
	for try := 1; ; try++ {
		n, alone = 0, nil
		err = pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			n, alone, err = d.resolveWhole(ctx, tx, in, id)
			if err != nil || n == 0 || !first {
				return err
			}
			return account.Audit(ctx, tx, "batch", in.BatchID.String())
		})
		if !errors.Is(err, run.ErrMoved) || try == settleTries {
			break
		}
	}
	if err != nil {
		return 0, 0, err
	}
	for _, position := range alone {
		one := in.Resolution
		one.Position = position
		switch err := d.Resolve(ctx, one); {
		case fault.Is(err, fault.Conflict): // somebody else has settled it
		case err != nil:
			return 0, 0, err
		default:
			n++
		}
	}
	return n, int(n) + resolveCost*(1+len(alone)), nil
}

// resolveWhole settles records of a call in one transaction. alone are those that have to be settled one by one,
// because other calls may be in doubt about them, too, and a run of a job ends once for all of them.
func (d *Dispatcher) resolveWhole(ctx context.Context, tx pgx.Tx, in *BatchResolution, id uuid.UUID,
) (n int64, alone []int64, err error) {
	r := resolving{d: d, tx: tx, in: in.Resolution}
	if r.calls, err = d.q.CallsLock(ctx, tx, []uuid.UUID{id}); err != nil || len(r.calls) == 0 {
		return 0, nil, err // it was settled meanwhile
	}
	if r.change, err = d.Runs.Begin(ctx, tx, in.BatchID); err != nil {
		return 0, nil, err
	}
	if in.Outcome == OutcomeRequeue && r.change.Stopped(in.BatchID) {
		return 0, nil, errStopped()
	}
	sent, err := r.meant(ctx, in, id)
	if err != nil || len(sent) == 0 {
		return 0, nil, err
	}
	plan := r.change.Plan(in.BatchID)
	if in.Outcome == OutcomeRequeue && slices.ContainsFunc(sent, func(s sentRecord) bool {
		return !run.Plain(plan,
			s.part)
	}) {
		for i := range sent {
			alone = append(alone, sent[i].position())
		}
		return 0, alone, nil
	}
	if err := r.write(ctx, &r.calls[0].FlowCall, sent); err != nil {
		return 0, nil, err
	}
	if err := r.settleSent(ctx, sent); err != nil {
		return 0, nil, err
	}
	return int64(len(sent)), nil, r.change.Apply(ctx)
}

// meant are the records of a call that are meant.
func (r *resolving) meant(ctx context.Context, in *BatchResolution, id uuid.UUID) ([]sentRecord, error) {
	sent, err := r.sentOf(ctx, id)
	if err != nil {
		return nil, err
	}
	call := &r.calls[0].FlowCall
	status, plan := recordsIn[call.State], r.change.Plan(in.BatchID)
	known := map[*batch.Part]bool{}
	return slices.DeleteFunc(sent, func(s sentRecord) bool {
		meant, seen := known[s.part]
		if !seen {
			var failed error
			meant, failed = inGroup(in, plan, s.part, status, batch.UnknownOutcome{Failure: pg.Value(call.Failure),
				Asked: pg.Value(call.Asked)})
			err = errors.Join(err, failed)
			known[s.part] = meant
		}
		return !meant
	}), err
}

// inGroup reports whether the records of a part of a call in doubt are meant.
func inGroup(in *BatchResolution, plan *definition.Plan, p *batch.Part, status batch.Status,
	unknown batch.UnknownOutcome) (bool, error) {
	if p.BatchID != in.BatchID || !slices.Contains(in.Statuses, status) || len(in.Groups) == 0 {
		return p.BatchID == in.BatchID && slices.Contains(in.Statuses, status), nil
	}
	group, err := query.UncertainGroup(plan, p, status, unknown)
	return slices.Contains(in.Groups, group), err
}

// settleSent moves records of a call on, of which everything that is in doubt of their parts is settled.
func (r *resolving) settleSent(ctx context.Context, sent []sentRecord) error {
	call := &r.calls[0].FlowCall
	var results []run.Result
	ended := map[int16][]int64{}
	for i := range sent {
		s := &sent[i]
		if i == 0 || sent[i-1].part != s.part {
			results = append(results, r.result(call, s.part, recordsIn[call.State]))
		}
		ended[s.part.StepNo] = append(ended[s.part.StepNo], s.position())
	}
	if r.in.Outcome == OutcomeRequeue {
		for step, positions := range ended {
			if err := r.change.EndRuns(ctx, r.in.BatchID, positions, step, r.in.Note); err != nil {
				return err
			}
		}
	}
	return r.finish(ctx, results)
}
