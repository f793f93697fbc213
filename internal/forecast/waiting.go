package forecast

import (
	"context"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/definition"
	"flowlane/internal/pacing"
)

const (
	// partsPerCall is how many parts of a queue one bulk call takes at most.
	partsPerCall = 512
	// portionsMax bounds how finely the releases of a paced queue are played.
	portionsMax = 1000
)

// wait adds a group of queues to what waits, and the calls that its records will make in later steps, which may go before
// what waits now.
func (s *Service) wait(ctx context.Context, conn db.DBTX, b *backlog, orgID uuid.UUID, r *db.QueueWaitsRow) error {
	w := b.buckets[r.Bucket]
	if w == nil {
		return nil // the catalog has no such bucket any more
	}
	now, own := b.spend.now, r.OrgID == orgID
	t := s.tasks(ctx, conn, r)
	n := t.calls(r)
	w.calls += n
	held, endless := r.HeldUntil.After(now), r.HeldUntil.Year() >= endlessYear
	if own {
		d := Depth{Records: r.Records, Items: r.Parts, Calls: n, UnpausedCalls: n}
		if held {
			d.PausedRecords, d.PausedItems, d.UnpausedCalls = r.Records, r.Parts, 0
		}
		w.depth.add(d)
		lane := b.lanes[r.Lane]
		lane.add(d)
		b.lanes[r.Lane] = lane
		for _, cause := range r.Causes {
			w.causes[cause] = true
		}
		w.guessed = w.guessed || t.guessed
		if r.Pacing != nil {
			w.paced++
		}
	}
	w.exclusive = w.exclusive || t.exclusive
	if endless {
		return nil
	}
	work := Work{Calls: n, Background: !own}
	if held {
		work.From = r.HeldUntil
	}
	if r.Pacing != nil {
		policy, err := pacing.Parse(r.Pacing)
		if err != nil {
			return err
		}
		work.Calls, work.Release = releases(policy, now, work.From, r, t.perCall)
	}
	w.work = append(w.work, work)
	for _, a := range t.later {
		for _, name := range a.Buckets {
			if other := b.buckets[name]; other != nil {
				other.work = append(other.work, Work{Calls: calls(r.Records+r.UnderWay, a.MaxRecordsPerRequest), From: work.From, Background: true})
			}
		}
	}
	return nil
}

// endlessYear is that of the end of a hold which has none.
const endlessYear = 9999

// taskFacts is what the plan says of a queue's calls.
type taskFacts struct {
	// perCall is how many records a call takes, if all goes well; 1 where each may have settings of its own.
	perCall int
	// guessed tells that a record may make more calls than one.
	guessed, exclusive bool
	// later are the actions of the steps after it.
	later []*catalog.Action
}

// tasks reads the plan of a queue. What is wrong with somebody's version must not stop a question: then each record counts
// for a call.
func (s *Service) tasks(ctx context.Context, conn db.DBTX, r *db.QueueWaitsRow) taskFacts {
	plan, err := s.plans.Plan(ctx, conn, r.OrgID, r.DefinitionID, r.Version)
	if err != nil {
		return taskFacts{perCall: 1}
	}
	task := &plan.Steps[r.StepNo].Tasks[r.TaskNo]
	out := taskFacts{perCall: 1, guessed: task.ForEach != nil}
	if task.Gone == "" {
		out.exclusive = task.Action.Call != nil && task.Action.Call.ExclusiveOver != ""
		if task.Action.Bulk && !byRecord(task) {
			out.perCall = max(task.Action.MaxRecordsPerRequest, 1)
		}
	}
	for _, step := range plan.Steps[r.StepNo+1:] {
		for i := range step.Tasks {
			if next := &step.Tasks[i]; next.Gone == "" && len(next.Action.Buckets) > 0 {
				out.later = append(out.later, next.Action)
			}
		}
	}
	return out
}

// byRecord tells that the settings of a bulk task can differ from record to record, each of which then ends a call.
func byRecord(task *definition.Task) bool {
	refs := task.Settings.Refs()
	return refs.Input || len(refs.Steps) > 0
}

// calls is how many calls a group of queues takes at most.
func (t *taskFacts) calls(r *db.QueueWaitsRow) int64 {
	n := calls(r.Records, t.perCall)
	if r.Queues > 1 { // each of them can end with a call that is not full
		n = r.Records/int64(t.perCall) + r.Queues
	}
	if t.perCall > 1 {
		n += r.Parts / partsPerCall
	}
	return min(n, r.Records)
}

// portion is calls of a paced queue that are released together.
type portion struct {
	at    time.Time
	calls int64
}

// releases returns how many calls the releases of a paced queue make from a time on, and gives them one after the other. Where
// there are very many, some come together, with the last of them.
func releases(p *pacing.Policy, now, from time.Time, r *db.QueueWaitsRow, perCall int) (int64, func(time.Time) (time.Time, int64)) {
	var portions []portion
	left, due := r.Records, now
	if r.PaceNextAt != nil {
		due = *r.PaceNextAt
	}
	if r.Allowance > 0 && r.LapsesAt != nil && r.LapsesAt.After(now) && !from.After(now) {
		n := min(r.Allowance, left)
		portions = append(portions, portion{now, calls(n, perCall)})
		left -= n
	}
	for due.Before(from) { // what is released under a hold lapses
		due = p.Next(p.Tick(due, from))
	}
	ticks := (left + p.Records - 1) / p.Records
	together := ticks/portionsMax + 1
	for done := int64(0); done < ticks; {
		n := min(together, ticks-done)
		done += n
		portions = append(portions, portion{p.Through(due, done*p.Records), n * calls(min(p.Records, left), perCall)})
	}
	total := int64(0)
	for _, q := range portions {
		total += q.calls
	}
	return total, func(after time.Time) (time.Time, int64) {
		i := sort.Search(len(portions), func(i int) bool { return portions[i].at.After(after) })
		if i == len(portions) {
			return time.Time{}, math.MaxInt64
		}
		return portions[i].at, portions[i].calls
	}
}

// together are works with those merged that wait for the same.
func together(work []Work) []Work {
	type key struct {
		from       time.Time
		background bool
	}
	sums := map[key]int64{}
	var out []Work
	for _, w := range work {
		if w.Release != nil {
			out = append(out, w)
			continue
		}
		sums[key{w.From, w.Background}] += w.Calls
	}
	for k, calls := range sums {
		out = append(out, Work{Calls: calls, From: k.from, Background: k.background})
	}
	slices.SortStableFunc(out, func(a, b Work) int { return a.From.Compare(b.From) })
	return out
}
