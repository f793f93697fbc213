package forecast

import (
	"context"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/moment"
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
}

// wait adds a group of queues to what waits, and the calls that its records will make in later steps, which may go
// before what waits now.
func (c *counting) wait(ctx context.Context, r *db.QueueWaitsRow) error {
	own := r.OrgID == c.orgID
	t := c.task(ctx, taskKey{r.OrgID, r.DefinitionID, r.Version, r.StepNo, r.TaskNo})
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
		w.timeout = max(w.timeout, t.timeout)
	}
	return nil
}

// work is what a group of queues is to its budgets; none where people hold it without an end.
func (c *counting) work(t *taskFacts, r *db.QueueWaitsRow, n int64) (out []waitingWork, err error) {
	if r.HeldUntil.Year() >= endlessYear {
		return nil, nil
	}
	own := r.OrgID == c.orgID
	work := waitingWork{Work: Work{Calls: n, Others: !own}}
	if r.HeldUntil.After(c.spend.now) {
		work.From = r.HeldUntil
	}
	c.addLaterCalls(t, r.Records, work.From, r.OrgID)
	if delayed := r.DelayedRecords; delayed > 0 { // a later attempt of some; of a paced queue whatever comes last
		again := work
		again.From = moment.Later(work.From, r.DelayedUntil)
		if r.Pacing != nil || delayed == r.Records {
			work = again
		} else {
			again.Calls = min(calls(delayed, t.perCall), n)
			out = append(out, again)
			work.Calls = n - r.DelayedRecords/int64(t.perCall)
		}
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

// underWay adds what records in calls may cost in later steps.
func (c *counting) underWay(ctx context.Context, r *db.QueueUnderWayRow) {
	t := c.task(ctx, taskKey{r.OrgID, r.DefinitionID, r.Version, r.StepNo, 0})
	c.addLaterCalls(&t, r.Records, time.Time{}, r.OrgID)
}

// addLaterCalls adds the calls that records of an organization will make in later steps.
func (c *counting) addLaterCalls(t *taskFacts, records int64, from time.Time, orgID uuid.UUID) {
	own := orgID == c.orgID
	for _, next := range t.later {
		a := next.Action
		for _, name := range c.domain.spends(next) {
			w := c.buckets[name]
			if w == nil {
				continue
			}
			w.cost = max(w.cost, c.s.costOf(a, name, a.MaxRecordsPerRequest))
			w.timeout, w.exclusive = max(w.timeout, next.Timeout), w.exclusive || a.Call.ExclusiveOver != ""
			w.guessed = w.guessed || next.ForEach != nil
			if !own {
				w.others[orgID] = true
			}
			w.work = append(w.work, waitingWork{Work: Work{Calls: calls(records, perCall(next)),
				From: from, Background: own, Others: !own}})
		}
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

// taskFacts is what the plan says of a queue's calls.
type taskFacts struct {
	// perCall is how many records a call takes, if all goes well; 1 where each may have settings of its own.
	perCall int
	// guessed tells that a record may make more calls than one.
	guessed, exclusive bool
	timeout            time.Duration
	// action makes the calls; nil where nobody knows.
	action *catalog.Action
	// also are the buckets that its calls spend beside that of the queue.
	also []string
	// later are the tasks of the steps after it.
	later []*definition.Task
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
	task := &plan.Steps[k.stepNo].Tasks[k.taskNo]
	out := taskFacts{perCall: 1, guessed: task.ForEach != nil, timeout: task.Timeout}
	if task.Gone == "" {
		out.action = task.Action
		out.also = task.Action.Buckets[min(1, len(task.Action.Buckets)):]
		out.exclusive = task.Action.Call != nil && task.Action.Call.ExclusiveOver != ""
		out.perCall = perCall(task)
	}
	for _, step := range plan.Steps[k.stepNo+1:] {
		for i := range step.Tasks {
			if next := &step.Tasks[i]; next.Gone == "" && next.Action.Call != nil {
				out.later = append(out.later, next)
			}
		}
	}
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

// perCall is how many records a call of a task takes, if all goes well; 1 where each may have settings of its own.
func perCall(task *definition.Task) int {
	if !task.Action.Bulk || byRecord(task) {
		return 1
	}
	return max(task.Action.MaxRecordsPerRequest, 1)
}

// byRecord tells that the settings of a bulk task can differ from record to record, each of which then ends a call.
func byRecord(task *definition.Task) bool {
	refs := task.Settings.Refs()
	return refs.Input || len(refs.Tasks) > 0
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
