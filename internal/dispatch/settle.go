package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/provider"
	"flowlane/internal/run"
)

// verdict is what is known of one open call.
type verdict struct {
	id      uuid.UUID
	reading provider.Reading
	// startedAt and finishedAt are when the request was under way, by the database's clock; zero where it was not sent.
	startedAt, finishedAt time.Time
	// unresolved: nobody but a person can tell any more.
	unresolved bool
}

// settle settles calls whose round trip is over: transaction 2.
func (d *Dispatcher) settle(ctx context.Context, k budgetKey, group []finished) error {
	verdicts := make([]verdict, len(group))
	for i, f := range group {
		n := 0
		if f.call.task.Action.Bulk {
			n = f.call.records
		}
		verdicts[i] = verdict{id: f.call.id, reading: provider.Read(f.call.task.Action, f.answer, n),
			startedAt: f.answer.StartedAt, finishedAt: f.answer.FinishedAt}
		d.opts.Observed(f.call.task.Action.ID, verdicts[i].reading.Kind)
		d.observe(ctx, f.call, &verdicts[i])
	}
	return d.patiently(ctx, func() error { return d.applyAll(ctx, k, verdicts, false) })
}

// applyAll is apply, one by one where it fails for all of them: a call that cannot be settled must not hold up others.
func (d *Dispatcher) applyAll(ctx context.Context, k budgetKey, verdicts []verdict, wake bool) error {
	err := d.apply(ctx, k, verdicts, wake)
	if err == nil || len(verdicts) == 1 || passing(err) || ctx.Err() != nil {
		return err
	}
	var failed error
	for i := range verdicts {
		if err := d.apply(ctx, k, verdicts[i:i+1], wake); err != nil {
			failed = errors.Join(failed, fmt.Errorf("call %s: %w", verdicts[i].id, err))
		}
	}
	return failed
}

// apply records verdicts about open calls of one budget. A call that is over already is left alone. wake makes the budget
// due, where no pass waits for the outcome.
func (d *Dispatcher) apply(ctx context.Context, k budgetKey, verdicts []verdict, wake bool) error {
	return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
		s, err := d.settlement(ctx, tx, k, verdicts)
		if err != nil {
			return err
		}
		for i := range verdicts {
			if call, ok := s.calls[verdicts[i].id]; ok {
				if err := s.one(ctx, call, &verdicts[i]); err != nil {
					return err
				}
			}
		}
		return s.write(ctx, wake)
	})
}

// settlement is transaction 2 under way.
type settlement struct {
	d        *Dispatcher
	tx       pgx.Tx
	key      budgetKey
	meter    *meter
	change   *run.Change
	calls    map[uuid.UUID]*openCall
	moves    db.CallMoveParams
	released releases
	results  []run.Result
	// backoff is how long the whole budget must wait, and why.
	backoff time.Time
	cause   string
	// checkAt is when the next outcome must be looked into.
	checkAt time.Time
}

// openCall is a call that is not over, with its parts.
type openCall struct {
	db.FlowCall
	parts []run.Part
	// from is where its records stand.
	from run.Status
}

func (d *Dispatcher) settlement(ctx context.Context, tx pgx.Tx, k budgetKey, verdicts []verdict) (*settlement, error) {
	ids := make([]uuid.UUID, len(verdicts))
	for i := range verdicts {
		ids[i] = verdicts[i].id
	}
	s := &settlement{d: d, tx: tx, key: k, calls: map[uuid.UUID]*openCall{}}
	batches, err := d.q.BatchesOfCalls(ctx, tx, ids)
	if err != nil {
		return nil, fmt.Errorf("read the batches of calls: %w", err)
	}
	if s.change, err = d.Runs.Begin(ctx, tx, batches...); err != nil {
		return nil, err
	}
	budget, err := d.q.BudgetRead(ctx, tx, db.BudgetReadParams{Domain: k.domain, Bucket: k.bucket})
	if err != nil {
		return nil, fmt.Errorf("read budget %s: %w", k, err)
	}
	if s.meter, err = d.meter(ctx, tx, &budget); err != nil {
		return nil, err
	}
	s.released = releases{m: s.meter, calls: map[[2]int64]int32{}}
	rows, err := d.q.CallLock(ctx, tx, ids)
	if err != nil {
		return nil, fmt.Errorf("lock calls: %w", err)
	}
	for _, r := range rows {
		from := run.Started
		switch r.State {
		case stateIntent, stateAwaiting:
		case stateUnknown:
			from = run.NeedsReconcile
		case stateUnresolved:
			from = run.Unresolved
		default:
			d.contradiction(&r, verdicts)
			continue
		}
		s.calls[r.ID] = &openCall{FlowCall: r, from: from}
	}
	parts, err := d.q.PartsOfCall(ctx, tx, ids)
	if err != nil {
		return nil, fmt.Errorf("read the parts of calls: %w", err)
	}
	for _, p := range parts {
		if call := s.calls[*p.CallID]; call != nil {
			call.parts = append(call.parts, run.Part{ID: p.ID, BatchID: p.BatchID, StepNo: p.StepNo, TaskNo: p.TaskNo, SliceNo: p.SliceNo,
				First: p.First, From: p.FromOff, To: p.ToOff, Size: p.Size, Apart: p.Apart, Attempt: p.Attempt, LeftOut: p.LeftOut})
		}
	}
	return s, nil
}

// one records the verdict about one call.
func (s *settlement) one(ctx context.Context, call *openCall, v *verdict) error {
	switch v.reading.Kind {
	case provider.Success:
		return s.success(call, v)
	case provider.Pending:
		if call.State != stateIntent {
			return nil // its records are in doubt already: the lookup finds the result
		}
		s.move(call, v, stateAwaiting, s.change.Now.Add(s.pollEvery(call)))
		return nil
	case provider.Refused:
		s.refused(call, v)
		return nil
	case provider.RetryLater:
		return s.later(ctx, call, v)
	case provider.NotArrived:
		return s.notArrived(ctx, call, v)
	default:
		return s.unknown(ctx, call, v)
	}
}

func (s *settlement) task(p *run.Part) (*definition.Step, *definition.Task) {
	step := &s.change.Plan(p.BatchID).Steps[p.StepNo]
	return step, &step.Tasks[p.TaskNo]
}

func (s *settlement) failure(p *run.Part, code, message string, r *provider.Reading) *run.JobError {
	step, task := s.task(p)
	e := &run.JobError{Code: code, Message: message, StepID: step.ID, TaskID: task.ID}
	if r != nil {
		e.ProviderCode, e.ProviderMessage = r.Code, r.Message
	}
	return e
}

// success settles accepted records, and those that the provider rejected by row.
func (s *settlement) success(call *openCall, v *verdict) error {
	row, rejected := 0, v.reading.Rejected
	for i := range call.parts {
		p := &call.parts[i]
		r := s.result(call, p, v)
		r.Output = v.reading.Output
		for _, o := range p.Offsets() {
			if len(rejected) > 0 && rejected[0].Row == row {
				e := s.failure(p, codeRejected, "The provider rejected the record", nil)
				e.ProviderCode, e.ProviderMessage = rejected[0].Code, rejected[0].Message
				r.Exceptions = append(r.Exceptions, run.Exception{Offset: o, Kind: run.TraceRejected, Error: e})
				rejected = rejected[1:]
			}
			row++
		}
		s.results = append(s.results, r)
	}
	s.move(call, v, stateSettled, time.Time{})
	return nil
}

func (s *settlement) result(call *openCall, p *run.Part, v *verdict) run.Result {
	return run.Result{Part: *p, From: call.from, CallID: call.ID, StartedAt: v.startedAt, EndedAt: v.finishedAt}
}

// refused fails every record of a call that the provider refused for good.
func (s *settlement) refused(call *openCall, v *verdict) {
	for i := range call.parts {
		p := &call.parts[i]
		e := s.failure(p, refusalCode(v), refusalText(v), &v.reading)
		s.failAll(call, p, v, e)
	}
	s.move(call, v, stateRefused, time.Time{})
}

func refusalCode(v *verdict) string {
	if v.reading.Reason == provider.ReasonRefused {
		return codeRefused
	}
	return v.reading.Reason
}

func refusalText(v *verdict) string {
	switch v.reading.Reason {
	case provider.ReasonAddress:
		return "The address must not be called: it is not public"
	case provider.ReasonRequest:
		return "The request cannot be sent as it is"
	}
	return "The provider refused the call"
}

func (s *settlement) failAll(call *openCall, p *run.Part, v *verdict, e *run.JobError) {
	r := s.result(call, p, v)
	for _, o := range p.Offsets() {
		r.Exceptions = append(r.Exceptions, run.Exception{Offset: o, Kind: run.TraceFailed, Error: e})
	}
	s.results = append(s.results, r)
}

// later puts a call back that the provider asked to repeat. A rate limit closes the whole budget for a while.
func (s *settlement) later(ctx context.Context, call *openCall, v *verdict) error {
	until := s.change.Now.Add(max(v.reading.RetryAfter, time.Second))
	if v.reading.Reason == provider.ReasonRateLimited {
		if s.meter != nil && v.reading.WindowSeconds > 0 && v.reading.RetryAfter == 0 {
			_, end := WindowAt(s.change.Now, v.reading.WindowSeconds, s.meter.loc)
			until = end.Add(s.meter.skew)
		}
		if until.After(s.backoff) {
			s.backoff, s.cause = until, firstOf(v.reading.Code, v.reading.Reason)
		}
	}
	s.move(call, v, stateRefused, time.Time{})
	return s.change.Requeue(ctx, call.parts, run.Again{From: call.from, ReadyAt: until, Why: s.why(call, codeRefused, "The provider asked to come back later", &v.reading)})
}

func (s *settlement) why(call *openCall, code, message string, r *provider.Reading) *run.JobError {
	if len(call.parts) == 0 {
		return nil
	}
	return s.failure(&call.parts[0], code, message, r)
}

// notArrived retries a call that never left, or that the provider says it does not have.
func (s *settlement) notArrived(ctx context.Context, call *openCall, v *verdict) error {
	s.move(call, v, stateRefused, time.Time{})
	if v.reading.Reason == provider.ReasonTooLate || v.reading.Reason == "" {
		return s.change.Requeue(ctx, call.parts, run.Again{From: call.from, Why: s.why(call, codeUnreachable, "The call was not sent in time", nil)})
	}
	return s.again(ctx, call, v, codeUnreachable, "The provider cannot be reached")
}

// again tries records again after the pause of their task's retry policy, or fails them when it is used up.
func (s *settlement) again(ctx context.Context, call *openCall, v *verdict, code, message string) error {
	jitter := s.d.Random()
	for i := 0; i < len(call.parts); i++ {
		p := &call.parts[i]
		_, task := s.task(p)
		e := s.failure(p, code, message, &v.reading)
		if int(p.Attempt) >= task.Retry.MaxAttempts {
			s.failAll(call, p, v, e)
			continue
		}
		at := s.change.Now.Add(max(task.Retry.Delay(int(p.Attempt), jitter), v.reading.RetryAfter))
		if task.Action.Bulk {
			same := i + 1 // one stored part goes back as a whole
			for same < len(call.parts) && call.parts[same].ID == p.ID {
				same++
			}
			err := s.change.Requeue(ctx, call.parts[i:same], run.Again{From: call.from, ReadyAt: at, Attempted: true, Why: e})
			if err != nil {
				return err
			}
			i = same - 1
			continue
		}
		r := s.result(call, p, v)
		for _, o := range p.Offsets() {
			r.Exceptions = append(r.Exceptions, run.Exception{Offset: o, Kind: run.TraceRetry, Error: e, RetryAt: at})
		}
		s.results = append(s.results, r)
	}
	return nil
}

// unknown decides by the action's outcome check: repeat what is harmless to repeat, else find out.
func (s *settlement) unknown(ctx context.Context, call *openCall, v *verdict) error {
	if call.State == stateUnresolved {
		return nil // it is left to a person already
	}
	switch catalog.OutcomeCheck(call.OutcomeCheck) {
	case catalog.CheckSafe, catalog.CheckKeyed, checkAuthor:
		s.move(call, v, stateSettled, time.Time{})
		return s.again(ctx, call, v, codeUnknown, "The provider gave no clear answer")
	case catalog.CheckLookup:
		if v.unresolved {
			return s.abandon(ctx, call, v)
		}
		if call.State != stateIntent {
			return nil
		}
		s.move(call, v, stateUnknown, s.change.Now)
		return s.change.Doubt(ctx, call.parts)
	default:
		return s.abandon(ctx, call, v)
	}
}

// abandon leaves a call to a person.
func (s *settlement) abandon(ctx context.Context, call *openCall, v *verdict) error {
	s.move(call, v, stateUnresolved, time.Time{})
	if call.from == run.Started {
		if err := s.change.Doubt(ctx, call.parts); err != nil {
			return err
		}
	}
	return s.change.Abandon(ctx, call.parts)
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}
