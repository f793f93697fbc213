package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// Outcome is what a person says of a job whose outcome nobody else could find out.
type Outcome string

// The outcomes: the provider took the record, it did not, or the record is to be sent again.
const (
	OutcomeAccepted Outcome = "accepted"
	OutcomeRejected Outcome = "rejected"
	OutcomeRequeue  Outcome = "requeue"
)

// Resolution settles one job that is needs_reconcile or unresolved.
type Resolution struct {
	OrgID, BatchID uuid.UUID
	// Position is the job's in its batch, from 0.
	Position int64
	Outcome  Outcome
	// Note is why, in the person's words; By is the person.
	Note *string
	By   *uuid.UUID
}

// Resolve settles a job as a person says, in every call that is in doubt about it. The calls go on without the record:
// what the provider still says of it moves nothing, and is kept where it contradicts. Faults: NotFound; Conflict for a
// job that is not in doubt, and for a requeue in a batch that is over.
func (d *Dispatcher) Resolve(ctx context.Context, in Resolution) error {
	ctx = pg.AsWorker(ctx) // it settles calls, as workers do
	for try := 1; ; try++ {
		err := pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error { return d.resolve(ctx, tx, in) })
		if !errors.Is(err, run.ErrMoved) || try == settleTries {
			return err
		}
	}
}

func (d *Dispatcher) resolve(ctx context.Context, tx pgx.Tx, in Resolution) error {
	ids, err := d.q.CallsUncertainAt(ctx, tx, db.CallsUncertainAtParams{BatchID: in.BatchID, OrgID: in.OrgID,
		Position: in.Position})
	if err != nil {
		return fmt.Errorf("read the calls in doubt: %w", err)
	}
	calls, err := d.q.CallsLock(ctx, tx, ids)
	if err != nil {
		return fmt.Errorf("lock the calls in doubt: %w", err)
	}
	r := resolving{d: d, tx: tx, in: in, calls: calls}
	if r.change, err = d.Runs.Begin(ctx, tx, in.BatchID); err != nil {
		return err
	}
	uncertain, err := r.change.Isolate(ctx, in.OrgID, in.BatchID, in.Position)
	if err != nil {
		return err
	}
	if in.Outcome == OutcomeRequeue && r.change.Stopped(in.BatchID) {
		return errStopped()
	}
	if err := r.settleUncertain(ctx, uncertain); err != nil {
		return err
	}
	if err := account.Audit(ctx, tx, "job", batch.JobID(in.BatchID, in.Position)); err != nil {
		return err
	}
	return r.change.Apply(ctx)
}

func errStopped() error {
	return fault.New(fault.Conflict,
		"Batch sends nothing any more: its jobs cannot be queued again; resolve the job as accepted or rejected")
}

// resolving is a resolution under way.
type resolving struct {
	d      *Dispatcher
	tx     pgx.Tx
	in     Resolution
	calls  []db.CallsLockRow
	change *run.Change
}

func (r *resolving) settleUncertain(ctx context.Context, uncertain []run.UncertainRecord) error {
	var results []run.Result
	for i := range uncertain {
		record := &uncertain[i]
		at := slices.IndexFunc(r.calls, func(c db.CallsLockRow) bool { return c.FlowCall.ID == record.CallID })
		if at < 0 { // it came into doubt just now
			return fmt.Errorf("%w: call %s", run.ErrMoved, record.CallID)
		}
		sent, err := r.sentOf(ctx, record.CallID)
		if err != nil {
			return err
		}
		sent = slices.DeleteFunc(sent, func(s sentRecord) bool { return s.part.ID != record.Part.ID })
		if err := r.write(ctx, &r.calls[at].FlowCall, sent); err != nil {
			return err
		}
		results = append(results, r.result(&r.calls[at].FlowCall, &record.Part, record.From))
	}
	if r.in.Outcome == OutcomeRequeue {
		err := r.change.EndRuns(ctx, r.in.BatchID, []int64{r.in.Position}, uncertain[0].Part.StepNo, r.in.Note)
		if err != nil {
			return err
		}
	}
	return r.finish(ctx, results)
}

// sentRecord is a record of a call in doubt: its place in the call and in its part.
type sentRecord struct {
	row    int32
	part   *batch.Part
	offset int32
}

func (s *sentRecord) position() int64 { return s.part.First + int64(s.offset) }

// sentOf lists the records of a call in the order in which they were sent, but for those that people have settled.
func (r *resolving) sentOf(ctx context.Context, callID uuid.UUID) (out []sentRecord, err error) {
	rows, err := r.d.q.PartsOfCall(ctx, r.tx, []uuid.UUID{callID})
	if err != nil {
		return nil, fmt.Errorf("read the parts of a call: %w", err)
	}
	gone, err := r.d.q.ResolutionsOfCall(ctx, r.tx, callID)
	if err != nil {
		return nil, fmt.Errorf("read resolutions: %w", err)
	}
	row := int32(0)
	for i := range rows {
		p := sentPart(&rows[i])
		for _, o := range p.Offsets() {
			for ; len(gone) > 0 && gone[0].CallRow == row; gone = gone[1:] {
				row++
			}
			out = append(out, sentRecord{row, p, o})
			row++
		}
	}
	return out, nil
}

// write keeps what was said of records of a call.
func (r *resolving) write(ctx context.Context, call *db.FlowCall, sent []sentRecord) error {
	in := db.ResolutionsInsertParams{CallID: call.ID, OrgID: r.in.OrgID, BatchID: r.in.BatchID,
		Outcome: string(r.in.Outcome),
		Note:    r.in.Note, AccountID: r.in.By, CreatedAt: r.change.Now}
	for i := range sent {
		in.CallRows, in.Positions = append(in.CallRows, sent[i].row), append(in.Positions, sent[i].position())
	}
	if err := r.d.q.ResolutionsInsert(ctx, r.tx, in); err != nil {
		return fmt.Errorf("write resolutions: %w", err)
	}
	call.Resolved += int32(len(sent)) //nolint:gosec // at most what a call carries
	return nil
}

// finish moves the records on, and ends the calls of which nothing is in doubt any more.
func (r *resolving) finish(ctx context.Context, results []run.Result) error {
	if err := r.change.Settle(ctx, results); err != nil {
		return err
	}
	// Ledgers are locked in the order of their budgets.
	slices.SortFunc(r.calls, func(a, b db.CallsLockRow) int {
		return strings.Compare(budgetOf(&a.FlowCall).String(), budgetOf(&b.FlowCall).String())
	})
	for i := range r.calls {
		if err := r.end(ctx, &r.calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// result is what the answer to the call would have come to for the records of a part of it, which stand at from.
func (r *resolving) result(call *db.FlowCall, p *batch.Part, from batch.Status) run.Result {
	plan := r.change.Plan(p.BatchID)
	step := &plan.Steps[p.StepNo]
	task := &step.Tasks[p.TaskNo]
	out := run.Result{Part: *p, From: from, CallID: call.ID, StartedAt: call.ClaimedAt, EndedAt: r.change.Now}
	e := run.Exception{Error: &batch.JobError{Code: codeResolved, StepID: step.ID, TaskID: task.ID}}
	switch r.in.Outcome {
	case OutcomeRequeue:
		e.Kind, e.Error.Code, e.RetryAt = batch.EntryRetry, batch.CodeRequeued, r.change.Now
		e.Error.Message = "The outcome of the call stayed unknown; a person had the job run again"
	case OutcomeRejected:
		e.Kind, e.Refused = batch.EntryFailed, true
		e.Error.Message = "The outcome of the call stayed unknown; a person settled the job as failed"
		if task.Action.Bulk {
			e.Kind = batch.EntryRejected
			e.Error.Message = "The outcome of the call stayed unknown; a person settled the job as rejected"
		}
	default:
		return out
	}
	if r.in.Note != nil {
		e.Error.Message += ": " + *r.in.Note
	}
	out.Exceptions = allOf(p, e)
	return out
}

// end closes a call if nothing of it is in doubt any more: nobody needs to ask about it then. It goes on counting in
// every window in which it may have arrived.
func (r *resolving) end(ctx context.Context, row *db.CallsLockRow) error {
	call := &row.FlowCall
	if call.Resolved < call.Records {
		return nil
	}
	k := budgetOf(call)
	m, err := r.d.windows(&row.FlowBudget)
	if err != nil {
		return err
	}
	s := newSettlement(r.d, k, m)
	s.now = r.change.Now
	s.move(&openCall{FlowCall: *call}, &outcome{reading: provider.Reading{Reason: "resolved"}}, stateSettled,
		time.Time{})
	moved, err := r.d.q.CallMove(ctx, r.tx, s.moves)
	if err != nil {
		return fmt.Errorf("end call %s: %w", call.ID, err)
	}
	if moved != 1 {
		return fmt.Errorf("%w: call %s", run.ErrMoved, call.ID)
	}
	if err := s.giveBack(ctx, r.tx, r.change); err != nil {
		return err
	}
	r.change.Wake(run.DueDispatch, k.String(), r.change.Now) // an exclusive call makes room
	return nil
}

// truths are what answers say of a record that people have settled, in the words of resolutions where these can say it
// too.
var truths = map[provider.Kind]string{provider.Success: string(OutcomeAccepted),
	provider.Refused:    string(OutcomeRejected),
	provider.NotArrived: "not_arrived"}

// disagree compares what people said of records of a call with what the provider says at last. Nothing moves any more,
// but it is kept and alarmed.
func (s *settlement) disagree(call *openCall, v *outcome) {
	for _, said := range call.resolved {
		kind := saysOf(&v.reading, int(said.CallRow))
		truth, tells := truths[kind]
		if !tells || said.Outcome == truth || said.Outcome == string(OutcomeRequeue) &&
			v.reading.Kind != provider.Success {
			continue
		}
		s.d.opts.Log.Error("the provider contradicts what a person said of a record", "call", call.ID, "row",
			said.CallRow, "said", said.Outcome, "truth", truth)
		s.contradictions.CallIds = append(s.contradictions.CallIds, call.ID)
		s.contradictions.CallRows = append(s.contradictions.CallRows, said.CallRow)
		s.contradictions.Truths = append(s.contradictions.Truths, truth)
	}
}

// saysOf is what a reading says of one row of its call.
func saysOf(r *provider.Reading, row int) provider.Kind {
	for i := range r.Rows {
		if r.Rows[i].Row == row {
			return map[provider.RowKind]provider.Kind{provider.RowAccepted: provider.Success,
				provider.RowRejected: provider.Refused,
				provider.RowRetry:    provider.NotArrived, provider.RowOpen: provider.Unknown}[r.Rows[i].Kind]
		}
	}
	return r.Kind
}

// writeContradictions keeps what disagree found.
func (s *settlement) writeContradictions(ctx context.Context, conn db.DBTX) error {
	if len(s.contradictions.CallIds) == 0 {
		return nil
	}
	if err := s.d.q.ResolutionContradict(ctx, conn, s.contradictions); err != nil {
		return fmt.Errorf("write contradictions: %w", err)
	}
	return nil
}
