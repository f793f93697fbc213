package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// outcome is what is known of one open call.
type outcome struct {
	id uuid.UUID
	// call is what this process sent; nil where others did.
	call    *outboundCall
	reading provider.Reading
	// exchange is what it sent and was answered, status that of the answer; 0 for none.
	exchange exchangeDetail
	// costs are what the answer says that the call has cost.
	costs  costs
	status int
	// body is that of an answer that is no success, where the task has ErrorBody.
	body json.RawMessage
	// startedAt and finishedAt are when the request was under way, by the database's clock; zero where it was not sent.
	startedAt, finishedAt time.Time
	// unresolved: nobody but a person can tell any more; asked is why, in words.
	unresolved bool
	asked      string
	// found is the reference of what a lookup took for the call; empty where it was told otherwise.
	found string
}

// settle settles calls whose round trip is over: transaction 2. waited tells that something waits for it; wake makes
// the budget due, where no pass sees the outcome.
func (d *Dispatcher) settle(ctx context.Context, k budgetKey, group []finished, waited, wake bool) error {
	var plain, rest []outcome // those that can be settled from memory, and the others
	for i := range group {
		f, n := &group[i], 0
		action := f.call.r.task.Action
		if action.Bulk {
			n = f.call.records
		}
		v := outcome{id: f.call.id, call: f.call, reading: provider.Read(action, f.answer, n),
			startedAt: f.answer.StartedAt, finishedAt: f.answer.FinishedAt, costs: d.reportedCosts(action, &f.answer)}
		if f.call.r.task.ErrorBody && v.reading.Kind != provider.Success {
			v.body = provider.ErrorBody(&f.answer)
		}
		d.exchanged(&v, &f.answer)
		d.opts.Observed(RoundTrip{ActionID: action.ID, Outcome: v.reading.Kind, Took: v.finishedAt.Sub(v.startedAt),
			Attempt: int(max(f.call.attempt, 1))})
		d.observe(ctx, f.call, &f.answer)
		d.learn(ctx, f.call, &f.answer)
		d.logCall(ctx, k, f, &v)
		f.understood(&v.reading)
		if v.reading.Kind == provider.Success && f.call.refusals == 0 && !v.reading.LeavesOpen() {
			plain = append(plain, v)
		} else {
			rest = append(rest, v)
		}
	}
	return errors.Join(
		d.settlePlain(ctx, answered{key: k, outcomes: plain, wake: wake}, waited || len(rest) > 0),
		d.keepTrying(ctx, func() error { return d.applyAll(ctx, k, rest, wake) }))
}

// fromMemory is the settlement of calls of this process that all succeeded, from what their claim wrote down, so that
// nothing need be read but the time; nil where anything is out of the ordinary.
func (d *Dispatcher) fromMemory(ctx context.Context, k budgetKey, outcomes []outcome) (s *settlement, err error) {
	if len(outcomes) == 0 || outcomes[0].call == nil {
		return nil, nil
	}
	s = newSettlement(d, k, outcomes[0].call.meter)
	if plain, err := s.addWritten(ctx, outcomes); err != nil || !plain {
		return nil, err
	}
	s.now, err = d.clock(ctx, d.Pool)
	return s, err
}

// addWritten adds calls from what their claim wrote down; false where anything is out of the ordinary.
func (s *settlement) addWritten(ctx context.Context, outcomes []outcome) (plain bool, err error) {
	s.known = true
	for i := range outcomes {
		p := outcomes[i].call
		if p == nil || outcomes[i].reading.Kind != provider.Success || p.refusals > 0 ||
			outcomes[i].reading.LeavesOpen() {
			return false, nil
		}
		call := &openCall{from: batch.Started, FlowCall: p.written}
		for _, piece := range p.pieces {
			if piece.NoCall {
				continue
			}
			piece.Part.ID = 0
			plan, err := s.plan(ctx, piece.Part.BatchID)
			if err != nil || !run.Plain(plan, &piece.Part) {
				return false, err
			}
			call.parts = append(call.parts, piece.Part)
		}
		s.calls[p.id] = call
	}
	return true, nil
}

// applyAll is apply, one by one where it fails for all of them: a call that cannot be settled must not hold up others.
func (d *Dispatcher) applyAll(ctx context.Context, k budgetKey, outcomes []outcome, wake bool) error {
	if len(outcomes) == 0 {
		return nil
	}
	err := d.apply(ctx, k, outcomes, wake)
	if err == nil || len(outcomes) == 1 || mayPass(ctx, err) {
		return err
	}
	var failed error
	for i := range outcomes {
		if err := d.apply(ctx, k, outcomes[i:i+1], wake); err != nil {
			failed = errors.Join(failed, fmt.Errorf("call %s: %w", outcomes[i].id, err))
		}
	}
	return failed
}

// apply records outcomes about open calls of one budget. A call that is over already is left alone. wake makes the
// budget due, where no pass waits for the outcome.
//
// It reads before its transaction, or knows from memory, and the transaction makes sure that nothing has changed: two
// settlements of one call are rare, and a batch is locked for as short a time as can be.
func (d *Dispatcher) apply(ctx context.Context, k budgetKey, outcomes []outcome, wake bool) error {
	s, err := d.fromMemory(ctx, k, outcomes)
	for try := 1; ; try++ {
		known := s != nil
		if !known && err == nil {
			s, err = d.settlement(ctx, k, outcomes)
		}
		if err != nil {
			return err
		}
		s.forgetRefusals(outcomes)
		s.decide(outcomes)
		if len(s.moves.Ids)+len(s.forgotten) == 0 {
			return s.writeContradictions(ctx, d.Pool)
		}
		if wake {
			s.wakes = []budgetKey{k}
		}
		err = pg.InTxGenericPlan(ctx, d.Pool, s.write)
		again := errors.Is(err, run.ErrMoved) || known && err != nil && !mayPass(ctx, err)
		if !again || try == settleTries {
			return err
		}
		s, err = nil, nil
	}
}

// settleTries bounds how often calls are settled again that somebody else settles, or people resolve, at the same time.
const settleTries = 20

// settlement is what outcomes come to: transaction 2.
type settlement struct {
	d     *Dispatcher
	key   budgetKey
	meter *meter
	now   time.Time
	calls map[uuid.UUID]*openCall
	plans map[uuid.UUID]*definition.Plan
	// known: nothing was read for it, see fromMemory.
	known bool
	// wakes are the budgets that it makes due.
	wakes []budgetKey
	// found has of each move what a lookup took for its call; empty for what was told otherwise.
	found []string
	// moves and released are what happens to the calls and their windows, the others what happens to their records.
	moves db.CallMoveParams
	// forgotten are the calls that go instead.
	forgotten  []uuid.UUID
	released   releases
	settled    map[windowKey]settledWindows
	results    []run.Result
	requeues   []requeue
	uncertain  []batch.Part
	unresolved []batch.Part
	// partly are those of which some records are in doubt still.
	partly    []partly
	exchanges exchanges
	// budget is that of the calls; zero where nothing of it is needed. refusals is what becomes of its count of
	// refusals.
	budget   db.FlowBudget
	refusals int32
	// closedUntil is until when the budget is closed for a refusal that was counted; zero where none was.
	closedUntil time.Time
	// backoffs are how long whole budgets must wait, and cause why.
	backoffs map[string]time.Time
	cause    string
	// checkAt is when the next outcome must be looked into.
	checkAt time.Time
	// contradictions are the records that people have settled of which the provider says something else.
	contradictions db.ResolutionContradictParams
}

func newSettlement(d *Dispatcher, k budgetKey, m *meter) *settlement {
	return &settlement{d: d, key: k, meter: m, calls: map[uuid.UUID]*openCall{},
		plans:   map[uuid.UUID]*definition.Plan{},
		settled: map[windowKey]settledWindows{}, backoffs: map[string]time.Time{}, released: releases{key: k,
			calls: map[string]map[[2]int64]quota.Tally{}, rolled: map[string]map[rolledCell]int{}}}
}

// plan returns the plan of a batch that calls have records of.
func (s *settlement) plan(ctx context.Context, batchID uuid.UUID) (*definition.Plan, error) {
	if s.plans[batchID] == nil {
		b, err := s.d.Runs.Batch(ctx, s.d.Pool, batchID)
		if err != nil {
			return nil, err
		}
		s.plans[batchID] = b.Plan
	}
	return s.plans[batchID], nil
}

type requeue struct {
	parts []batch.Part
	again run.Requeueing
}

// openCall is a call that an outcome is about, with its parts.
type openCall struct {
	db.FlowCall
	parts []batch.Part
	// from is where its records stand; empty where the call is over.
	from batch.Status
	// resolved are those of its records that people have settled, by their rows; settled is how many an answer settles
	// that leaves others open.
	resolved []db.ResolutionsOfCallRow
	settled  int32
}

// recordsIn is where the records of calls stand that are not over, by the call's state.
var recordsIn = map[string]batch.Status{stateIntent: batch.Started, stateAwaiting: batch.Started,
	stateUnknown:    batch.NeedsReconcile,
	stateUnresolved: batch.Unresolved}

func (d *Dispatcher) settlement(ctx context.Context, k budgetKey, outcomes []outcome) (*settlement, error) {
	ids := make([]uuid.UUID, len(outcomes))
	for i := range outcomes {
		ids[i] = outcomes[i].id
	}
	rows, err := d.q.CallsRead(ctx, d.Pool, db.CallsReadParams{Domain: k.domain, Bucket: k.bucket, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("read calls: %w", err)
	}
	if len(rows) == 0 {
		return newSettlement(d, k, nil), nil
	}
	r := &rows[0]
	m, err := d.windows(&r.FlowBudget)
	if err != nil {
		return nil, err
	}
	s := newSettlement(d, k, m)
	s.now, s.budget, s.refusals = r.Now, r.FlowBudget, r.FlowBudget.Refusals
	for i := range rows {
		call := &openCall{FlowCall: rows[i].FlowCall, from: recordsIn[rows[i].FlowCall.State]}
		if call.Resolved > 0 {
			if call.resolved, err = d.q.ResolutionsOfCall(ctx, d.Pool, call.ID); err != nil {
				return nil, fmt.Errorf("read resolutions: %w", err)
			}
		}
		s.calls[call.ID] = call
	}
	return s, s.readParts(ctx, ids)
}

func (s *settlement) readParts(ctx context.Context, ids []uuid.UUID) error {
	rows, err := s.d.q.PartsOfCall(ctx, s.d.Pool, ids)
	if err != nil {
		return fmt.Errorf("read the parts of calls: %w", err)
	}
	for i := range rows {
		call := s.calls[*rows[i].CallID]
		call.parts = append(call.parts, *sentPart(&rows[i]))
		if _, err := s.plan(ctx, rows[i].BatchID); err != nil {
			return err
		}
	}
	return nil
}

// sentPart is a part of a call, as far as it lies in one slice.
func sentPart(p *db.PartsOfCallRow) *batch.Part {
	return &batch.Part{ID: p.ID, BatchID: p.BatchID, StepNo: p.StepNo, TaskNo: p.TaskNo,
		SliceNo: p.SliceNo, Begins: p.Begins, First: p.First,
		From: p.FromOff, To: p.ToOff, Size: p.Size, Detached: p.Detached, Attempt: p.Attempt, Element: p.Element,
		Elements: p.Elements, LeftOut: p.LeftOut, ClaimNo: p.ClaimNo, QueuedAt: p.QueuedAt,
		KeyedSince: p.KeyedSince}
}

// decide decides what outcomes about calls come to.
func (s *settlement) decide(outcomes []outcome) {
	for i := range outcomes {
		if call, ok := s.calls[outcomes[i].id]; ok {
			s.one(call, &outcomes[i])
		}
	}
}

// one decides what the outcome about one call comes to.
func (s *settlement) one(call *openCall, v *outcome) {
	s.disagree(call, v)
	if call.from == "" {
		if v.reading.Kind == provider.Success && call.State == stateRefused {
			s.d.opts.Log.Error("a call that was held for not sent has arrived", "call", call.ID, "domain", call.Domain,
				"bucket", call.Bucket)
		}
		return
	}
	if int(call.Resolved) > len(call.resolved) { // an answer has settled some of its records: others are left to people
		return
	}
	switch v.reading.Kind {
	case provider.Success:
		s.success(call, v)
	case provider.Pending:
		if call.State == stateIntent { // else its records are in doubt already: the lookup finds the result
			s.move(call, v, stateAwaiting, s.now.Add(s.d.pollEvery(call.ActionID)))
		}
	case provider.Refused:
		s.failForGood(call, v)
	case provider.RetryLater:
		s.retryLater(call, v)
	case provider.NotArrived:
		s.notArrived(call, v)
	default:
		s.unknown(call, v)
	}
}

func (s *settlement) task(p *batch.Part) (*definition.Step, *definition.Task) {
	step := &s.plans[p.BatchID].Steps[p.StepNo]
	return step, &step.Tasks[p.TaskNo]
}

// failure is what an outcome that is no success says of a part of its call.
func (s *settlement) failure(p *batch.Part, v *outcome) *batch.JobError {
	return s.at(p, explain(&v.reading))
}

// failed is the end of the records of a part for good.
func (s *settlement) failed(p *batch.Part, v *outcome) run.Exception {
	return run.Exception{Kind: batch.EntryFailed, Error: s.failure(p, v), Body: v.body,
		Refused: v.reading.RefusedByProvider()}
}

// at says in an error which task of the flow it came from.
func (s *settlement) at(p *batch.Part, e *batch.JobError) *batch.JobError {
	step, task := s.task(p)
	e.StepID, e.TaskID = step.ID, task.ID
	return e
}

func (s *settlement) result(call *openCall, p *batch.Part, v *outcome) run.Result {
	return run.Result{Part: *p, From: call.from, CallID: call.ID, StartedAt: v.startedAt, EndedAt: v.finishedAt}
}

// failForGood fails every record of a call that the provider refused for good, or took and could not do.
func (s *settlement) failForGood(call *openCall, v *outcome) {
	state := stateRefused
	if v.reading.Reason == provider.ReasonImportFailed {
		state = stateSettled
	}
	for i := range call.parts {
		p := &call.parts[i]
		s.all(call, p, v, s.failed(p, v))
	}
	s.move(call, v, state, time.Time{})
}

// all has every record of a part of a call come out as e.
func (s *settlement) all(call *openCall, p *batch.Part, v *outcome, e run.Exception) {
	r := s.result(call, p, v)
	r.Exceptions = allOf(p, e)
	s.results = append(s.results, r)
}

// unanswerable tells that no repeat of a call with a key would tell what became of it: the provider knows the key no
// more, or has answered the last repeat with the error that it keeps.
func (s *settlement) unanswerable(call *openCall, v *outcome) bool {
	action, ok := s.d.Catalog.Action(call.ActionID)
	if !ok || action.Call == nil || call.OutcomeCheck != string(catalog.CheckKeyed) {
		return false
	}
	key, since := action.Call.Idempotency, call.ClaimedAt
	for i := range call.parts {
		if first := call.parts[i].KeyedSince; !first.IsZero() {
			since = moment.Earlier(since, first)
		}
	}
	if keyForgotten(key.LifeSeconds, since, s.now) {
		return true
	}
	return key.ReplaysErrors && v.status >= serverErrors && !slices.ContainsFunc(call.parts, func(p batch.Part) bool {
		_, task := s.task(&p)
		return int(p.Attempt) < task.Retry.MaxAttempts
	})
}

// serverErrors is the least status by which a server says that it failed.
const serverErrors = 500

// unknown decides by the action's outcome check: repeat what is harmless to repeat, else find out.
func (s *settlement) unknown(call *openCall, v *outcome) {
	next := Uncertain(call.State, call.OutcomeCheck, v.unresolved)
	if next == stateSettled && s.unanswerable(call, v) {
		next = stateUnresolved
	}
	switch next {
	case call.State: // it is looked into already, or left to a person
	case stateSettled:
		s.move(call, v, next, time.Time{})
		for i := range call.parts {
			if p := &call.parts[i]; p.KeyedSince.IsZero() {
				p.KeyedSince = call.ClaimedAt
			}
		}
		s.retryCall(call, v)
	case stateUnresolved:
		s.move(call, v, next, time.Time{})
		if call.from == batch.Started {
			s.uncertain = append(s.uncertain, call.parts...)
		}
		s.unresolved = append(s.unresolved, call.parts...)
	case stateUnknown:
		s.move(call, v, next, s.now)
		s.uncertain = append(s.uncertain, call.parts...)
	}
}
