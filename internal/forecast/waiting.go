package forecast

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/pacing"
	"flowlane/internal/platform/catalog"
)

// mostDelayed bounds the parts of a queue that are counted which wait for their next attempt.
const mostDelayed = 1000

// counting counts what waits into a backlog. It remembers what it read of tasks and policies: very many queues may have
// the same.
type counting struct {
	*backlog
	s        *Service
	conn     db.DBTX
	orgID    uuid.UUID
	domain   *Domain
	tasks    map[taskKey]taskFacts
	policies map[string]*pacing.Policy
	// bytes is how large the records of a version are that has bulk calls, as far as one batch tells.
	bytes map[versionKey]float64
}

// versionKey names a version of a definition.
type versionKey struct {
	definitionID uuid.UUID
	version      int32
}

// count counts what waits in all queues, but for those of a batch, and what will come to them.
func (c *counting) count(ctx context.Context, except uuid.UUID) error {
	waits, err := c.s.q.QueueWaits(ctx, c.conn, db.QueueWaitsParams{Domain: c.domain.TenancyID, Now: c.spend.now,
		ExceptBatch: except, MostDelayed: mostDelayed})
	if err != nil {
		return fmt.Errorf("read the queues of %s: %w", c.domain.TenancyID, err)
	}
	arrivals, err := c.readArrivals(ctx, waits, except)
	if err != nil {
		return err
	}
	if err := c.size(ctx, waits, arrivals); err != nil {
		return err
	}
	for i := range waits {
		if err := c.wait(ctx, &waits[i]); err != nil {
			return err
		}
	}
	for i := range arrivals {
		if err := c.arrive(ctx, &arrivals[i]); err != nil {
			return err
		}
	}
	return nil
}

// size finds out how large records are that go in bulk calls.
func (c *counting) size(ctx context.Context, waits []db.QueueWaitsRow, arrivals []arrivals) error {
	batches := map[versionKey]uuid.UUID{}
	add := func(k taskKey, batchID uuid.UUID) {
		if t := c.task(ctx, k); t.bulk() {
			batches[k.of()] = batchID
		}
	}
	for i := range waits {
		r := &waits[i]
		add(taskKey{r.OrgID, r.DefinitionID, r.Version, r.StepNo, r.TaskNo}, r.OneBatch)
	}
	for i := range arrivals {
		r := &arrivals[i]
		add(taskKey{r.OrgID, r.DefinitionID, r.Version, r.StepNo, r.TaskNo}, r.OneBatch)
	}
	bytes, err := c.s.recordBytes(ctx, c.conn, slices.Collect(maps.Values(batches)))
	for version, batchID := range batches {
		c.bytes[version] = bytes[batchID]
	}
	return err
}

// wait adds a group of queues to what waits, and the calls that its records will make in later steps, which may go
// before what waits now.
func (c *counting) wait(ctx context.Context, r *db.QueueWaitsRow) error {
	own := r.OrgID == c.orgID
	key := taskKey{r.OrgID, r.DefinitionID, r.Version, r.StepNo, r.TaskNo}
	t := c.task(ctx, key).sized(c.bytes[key.of()])
	names := append([]string{r.Bucket}, t.also...)
	if c.buckets[r.Bucket] == nil {
		return nil // the catalog has no such bucket any more
	}
	n := t.calls(r)
	work, err := c.work(&t, r, n)
	if err != nil {
		return err
	}
	for _, name := range names {
		w := c.buckets[name]
		w.calls += n
		w.cost = max(w.cost, c.s.costOf(t.action, name, t.perCall))
		w.exclusive = w.exclusive || t.exclusive
		if own {
			c.own(w, r, &t, n)
			for _, other := range names {
				if other != name {
					w.with[other] = true
				}
			}
		}
		if len(work) == 0 {
			continue
		}
		if !own {
			w.others[r.OrgID] = true
		}
		w.work = append(w.work, work...)
		w.makes(t.action, n, !own)
		w.timeout = max(w.timeout, t.timeout)
	}
	return nil
}

// makes notes who makes calls that will go.
func (w *waiting) makes(a *catalog.Action, calls int64, others bool) {
	by := maker{others: others}
	if a != nil {
		by.action = a.ID
	}
	w.made[by] += calls
}

// work is what a group of queues is to its budgets; none where people hold it without an end.
func (c *counting) work(t *taskFacts, r *db.QueueWaitsRow, n int64) (out []waitingWork, err error) {
	if r.HeldUntil.Year() >= endlessYear {
		return nil, nil
	}
	work := waitingWork{Work: Work{Calls: n, Others: r.OrgID != c.orgID}}
	if r.HeldUntil.After(c.spend.now) {
		work.From = r.HeldUntil
	}
	if r.Pacing != nil {
		policy, err := c.policy(r.Pacing)
		if err != nil {
			return nil, err
		}
		work.paced = &Paced{Policy: policy, Records: r.Records, PerCall: t.perCall, Allowance: r.Allowance,
			LapsesAt: r.LapsesAt, NextAt: c.spend.now}
		if r.PaceNextAt != nil {
			work.paced.NextAt = *r.PaceNextAt
		}
	}
	c.addLaterCalls(t, r.Records, work, r.OrgID)
	if delayed := r.DelayedRecords; delayed > 0 { // a later attempt of some; of a paced queue whatever comes last
		again := work
		again.by = r.DelayedUntil
		if r.Pacing != nil || delayed == r.Records {
			work = again
		} else {
			again.Calls = min(calls(delayed, t.perCall), n)
			out = append(out, again)
			work.Calls = n - r.DelayedRecords/int64(t.perCall)
		}
	}
	return append(out, work), nil
}

// own adds a group of the organization's own queues to how much waits.
func (c *counting) own(w *waiting, r *db.QueueWaitsRow, t *taskFacts, calls int64) {
	d := Depth{Records: r.Records, Items: r.Parts, Calls: calls, UnpausedCalls: calls}
	if r.HeldUntil.After(c.spend.now) {
		d.PausedRecords, d.PausedItems, d.UnpausedCalls = r.Records, r.Parts, 0
	}
	w.depth.add(d)
	if w == c.buckets[r.Bucket] {
		lane := c.lanes[r.Lane]
		lane.add(d)
		c.lanes[r.Lane] = lane
	}
	w.inFlight = c.inLane(w.inFlight, r.Lane)
	for _, cause := range r.Causes {
		w.causes[cause] = true
	}
	w.guessed = w.guessed || t.guessed
	if r.Pacing != nil {
		w.paced++
	}
}

func (c *counting) policy(raw []byte) (*pacing.Policy, error) {
	if p := c.policies[string(raw)]; p != nil {
		return p, nil
	}
	p, err := pacing.Parse(raw)
	if err == nil {
		c.policies[string(raw)] = p
	}
	return p, err
}

// endlessYear is that of the end of a hold which has none.
const endlessYear = 9999

// taskKey names a task of a version.
type taskKey struct {
	orgID, definitionID uuid.UUID
	version             int32
	stepNo, taskNo      int16
}

func (k taskKey) of() versionKey { return versionKey{k.definitionID, k.version} }

// taskFacts is what the plan says of a queue's calls.
type taskFacts struct {
	// perCall is how many records a call takes, if all goes well; 1 where each may have settings of its own. paged
	// tells that they come to the task a page at a time at least, and not all at once.
	perCall int
	paged   bool
	// guessed tells that a record may make more calls than one.
	guessed, exclusive bool
	timeout            time.Duration
	// action makes the calls; nil where nobody knows.
	action *catalog.Action
	// also are the buckets that its calls spend beside that of the queue.
	also []string
	// task is nil where nobody knows it, and later are the tasks of the steps after it.
	task  *definition.Task
	later []taskFacts
	// arrivals tells that records come to the queue while the batch runs, inProcess that they may stand at its step
	// before they do.
	arrivals, inProcess bool
}

// task reads the plan of a queue. What is wrong with somebody's version must not stop a question: then each record
// counts for a call.
func (c *counting) task(ctx context.Context, k taskKey) taskFacts {
	t, known := c.tasks[k]
	if !known {
		t = taskFacts{perCall: 1}
		if plan, err := c.s.plans.Plan(ctx, c.conn, k.orgID, k.definitionID, k.version); err == nil {
			t = factsOf(plan, k)
		}
		c.tasks[k] = t
	}
	return t
}

func factsOf(plan *definition.Plan, k taskKey) taskFacts {
	step := &plan.Steps[k.stepNo]
	out := factsAt(plan, k.stepNo, &step.Tasks[k.taskNo])
	out.arrivals = k.stepNo > 0 || batch.EntryState(step) != batch.SliceCalling
	out.inProcess = len(batch.LocalTasks(step)) > 0
	for no := k.stepNo + 1; int(no) < len(plan.Steps); no++ {
		for i := range plan.Steps[no].Tasks {
			if next := &plan.Steps[no].Tasks[i]; next.Gone == "" && next.Action.Call != nil {
				out.later = append(out.later, factsAt(plan, no, next))
			}
		}
	}
	return out
}

// factsAt is what is known of a task of a step, but for the steps after it.
func factsAt(plan *definition.Plan, step int16, task *definition.Task) taskFacts {
	out := taskFacts{perCall: 1, guessed: task.ForEach != nil, timeout: task.Timeout}
	if task.Gone != "" {
		return out
	}
	out.task, out.action, out.perCall, out.paged = task, task.Action, perCall(task), paged(plan, step)
	out.also = task.Action.Buckets[min(1, len(task.Action.Buckets)):]
	out.exclusive = task.Action.Call != nil && task.Action.Call.ExclusiveOver != ""
	return out
}

// costOf is the most that a call with so many records costs of a bucket.
func (s *Service) costOf(a *catalog.Action, bucket string, records int) int {
	if a == nil {
		return 1
	}
	b := s.catalog.Bucket(a, bucket)
	if b == nil {
		return 1
	}
	return a.CostOf(bucket, b, records)
}

// calls is how many calls a group of queues takes at most.
func (t *taskFacts) calls(r *db.QueueWaitsRow) int64 {
	n := calls(r.Records, t.perCall)
	if r.Queues > 1 { // each of them can end with a call that is not full
		n = r.Records/int64(t.perCall) + r.Queues
	}
	if t.perCall > 1 {
		n += r.Parts / dispatch.PartsPerCall
	}
	return min(n, r.Records)
}
