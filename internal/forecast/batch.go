package forecast

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/moment"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/run"
)

// OfBatch estimates what a batch that was just started costs of the slowest budget that it spends, in the transaction
// that starts it, and when the batch is done with all of them. Nil where it spends none.
func (s *Service) OfBatch(ctx context.Context, conn db.DBTX, orgID uuid.UUID, b *run.StartedBatch) (*Estimate, error) {
	s, err := s.knowing(ctx, orgID, b)
	if err != nil {
		return nil, err
	}
	return s.accounts(conn, orgID, b.BatchID).ofBatch(ctx, b)
}

// OfBatches is OfBatch for batches of an organization that start together, before any of them is written: each goes
// behind those before it.
func (s *Service) OfBatches(ctx context.Context, conn db.DBTX, orgID uuid.UUID,
	all []*run.StartedBatch) ([]*Estimate, error) {
	s, err := s.knowing(ctx, orgID, all...)
	if err != nil {
		return nil, err
	}
	a, out := s.accounts(conn, orgID, uuid.Nil), make([]*Estimate, len(all))
	for i, b := range all {
		if out[i], err = a.ofBatch(ctx, b); err != nil {
			return nil, err
		}
		if err = a.start(ctx, b); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// knowing returns the service as it answers an organization, with the platforms that calls of batches go to.
func (s *Service) knowing(ctx context.Context, orgID uuid.UUID, all ...*run.StartedBatch) (*Service, error) {
	var platforms []string
	for _, b := range all {
		for i := range b.Routes {
			if id := b.Routes[i].Task.Action.PlatformID; !slices.Contains(platforms, id) {
				platforms = append(platforms, id)
			}
		}
	}
	if len(platforms) == 0 {
		return s, nil
	}
	return s.of(ctx, orgID, platforms...)
}

func (a *accounts) ofBatch(ctx context.Context, b *run.StartedBatch) (*Estimate, error) {
	if len(b.Routes) == 0 {
		return nil, nil //nolint:nilnil // it spends none
	}
	spent := batchSpend{accounts: a, batch: b, estimates: map[budgetKey]*Estimate{},
		rates: map[budgetKey]*catalog.RateBucket{}}
	if err := spent.size(ctx); err != nil {
		return nil, err
	}
	for i := range b.Routes {
		if err := spent.add(ctx, &b.Routes[i]); err != nil {
			return nil, err
		}
	}
	var out *Estimate
	var longest time.Duration
	for _, k := range spent.order {
		d, err := a.domain(ctx, k.domain)
		if err != nil {
			return nil, err
		}
		takes, err := a.weigh(ctx, d, spent.rates[k], spent.estimates[k])
		if err != nil {
			return nil, err
		}
		if out == nil || takes > longest {
			out, longest = spent.estimates[k], takes
		}
	}
	for _, k := range spent.order {
		if k.domain != out.TenancyID || k.bucket != out.Bucket {
			out.Completion = out.Completion.all(spent.estimates[k].Completion)
		}
	}
	return out, nil
}

// start counts a batch among what waits, as far as that is read. What people hold without an end goes before nothing.
func (a *accounts) start(ctx context.Context, b *run.StartedBatch) error {
	first := &b.Plan.Steps[0]
	for i := range b.Routes {
		r := &b.Routes[i]
		c := a.backlogs[r.Route.Domain]
		if c == nil {
			continue
		}
		held, err := a.heldIn(ctx, r.Route.Domain, string(r.Route.Lane))
		if err != nil {
			return err
		}
		work := waitingWork{Work: Work{From: moment.Later(b.NotBefore, held.Until)}}
		t := factsAt(b.Plan, r.StepNo, r.Task).sized(b.RecordBytes)
		for _, name := range append([]string{r.Route.Bucket}, t.also...) {
			if held.Until.Year() < endlessYear {
				c.comes(name, &t, b.RecordCount, work, a.orgID)
			}
			w := c.buckets[name]
			if w == nil {
				continue
			}
			w.inFlight = c.inLane(w.inFlight, r.Route.Lane)
			if r.StepNo == 0 && batch.EntryState(first) == batch.SliceCalling {
				w.calls += calls(b.RecordCount, t.perCall)
			}
		}
	}
	return nil
}

// batchSpend is what a batch spends of each budget, in the order of its tasks.
type batchSpend struct {
	*accounts

	batch *run.StartedBatch
	// bytes is how large its records are, where it makes bulk calls; 0 where nobody knows.
	bytes     float64
	estimates map[budgetKey]*Estimate
	rates     map[budgetKey]*catalog.RateBucket
	order     []budgetKey
}

// size finds out how large the records are where that matters.
func (b *batchSpend) size(ctx context.Context) error {
	if !slices.ContainsFunc(b.batch.Routes, func(r run.TaskRoute) bool { return perCall(r.Task) > 1 }) {
		return nil
	}
	if b.bytes = b.batch.RecordBytes; b.bytes > 0 {
		return nil
	}
	bytes, err := b.s.recordBytes(ctx, b.conn, []uuid.UUID{b.batch.BatchID})
	b.bytes = bytes[b.batch.BatchID]
	return err
}

// perCall is how many records a call of a task takes, if all goes well.
func (b *batchSpend) perCall(r *run.TaskRoute) int {
	t := factsAt(b.batch.Plan, r.StepNo, r.Task)
	return t.sized(b.bytes).perCall
}

// add adds the calls of a task to the budgets that they spend.
func (b *batchSpend) add(ctx context.Context, r *run.TaskRoute) error {
	buckets, err := b.of(ctx, r.Task, r.Route.Domain)
	if err != nil {
		return err
	}
	for _, k := range buckets {
		b.estimate(r, budgetKey{r.Route.Domain, k.name}, k)
	}
	return nil
}

func (b *batchSpend) estimate(r *run.TaskRoute, k budgetKey, rates bucket) {
	a, e := r.Task.Action, b.estimates[k]
	if e == nil {
		e = &Estimate{TenancyID: k.domain, Bucket: k.bucket, ActionID: &a.ID, RecordCount: b.batch.RecordCount,
			MaxRecordsPerRequest: a.MaxRecordsPerRequest,
			plan:                 b.batch.Plan, from: b.batch.NotBefore, made: map[string]int64{}}
		b.estimates[k], b.rates[k] = e, rates.RateBucket
		b.order = append(b.order, k)
	} else if *e.ActionID != a.ID {
		e.MaxRecordsPerRequest = min(e.MaxRecordsPerRequest, a.MaxRecordsPerRequest)
	}
	lane := r.Route.Lane
	if lane == "" { // a rehearsal has no trigger that could choose one
		lane = db.FlowLane(b.s.catalog.Lane(a))
	}
	if !slices.Contains(e.lanes, lane) {
		e.lanes = append(e.lanes, lane)
	}
	e.Calls += calls(b.batch.RecordCount, a.MaxRecordsPerRequest)
	perCall := b.perCall(r)
	most := calls(b.batch.RecordCount, perCall)
	e.most += most
	e.made[a.ID] += most
	e.cost = max(e.cost, b.s.costOf(a, k.bucket, a.MaxRecordsPerRequest))
	e.steps = max(e.steps, int(r.StepNo)+1)
	if b.batch.Pacing != nil {
		e.paced = append(e.paced, pacedOf(b.batch, r, perCall))
	}
	e.atLeast = e.atLeast || r.Task.ForEach != nil
	e.called(a, r.Task.Timeout)
}

// stepTicks is how many ticks later, at most, the records of a tick are released in the next step: those of a call that
// goes just before a tick and is answered after it have missed that one.
const stepTicks = 2

// pacedOf is a queue of a batch that was just started, as its policy will release it.
func pacedOf(b *run.StartedBatch, r *run.TaskRoute, perCall int) Paced {
	p := Paced{Policy: b.Pacing, Records: b.RecordCount, PerCall: perCall,
		NextAt: b.FirstTick}
	before := map[int16]bool{}
	for _, other := range b.Routes {
		if other.StepNo < r.StepNo && !before[other.StepNo] {
			before[other.StepNo] = true
			for range stepTicks {
				p.NextAt = p.Policy.Next(p.NextAt)
			}
		}
	}
	return p
}
