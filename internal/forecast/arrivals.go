package forecast

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/moment"
)

const (
	// mostArriving bounds the queues that are asked whether more comes to them, mostDetached the records of a batch
	// that are looked at which go their own way.
	mostArriving, mostDetached = 500, 1000
)

// readArrivals reads what will come to the queues of an account from elsewhere, and may go before what waits now. Where
// not all queues are read, the others are taken to be like those.
func (c *counting) readArrivals(ctx context.Context, waits []db.QueueWaitsRow,
	except uuid.UUID) ([]arrivals, error) {
	in := db.QueueArrivalsParams{Domain: c.domain.TenancyID, Now: c.spend.now, ExceptBatch: except,
		MostQueues: mostArriving, MostJobs: mostDetached}
	tasks, listed := map[taskKey]bool{}, int64(0)
	for i := range waits {
		r := &waits[i]
		key := taskKey{r.OrgID, r.DefinitionID, r.Version, r.StepNo, r.TaskNo}
		if t := c.task(ctx, key); !t.arrivals {
			continue
		}
		listed += r.Queues
		if !tasks[key] {
			tasks[key] = true
			in.DefinitionIds, in.Versions = append(in.DefinitionIds, r.DefinitionID), append(in.Versions, r.Version)
			in.StepNos, in.TaskNos = append(in.StepNos, r.StepNo), append(in.TaskNos, r.TaskNo)
		}
	}
	if len(in.DefinitionIds) == 0 { // mostly nothing comes, and to plan the question takes longer than to answer it
		empty, err := c.s.q.QueueEmptyExists(ctx, c.conn, db.QueueEmptyExistsParams{Domain: in.Domain,
			ExceptBatch: except})
		if err != nil {
			return nil, fmt.Errorf("look for empty queues of %s: %w", c.domain.TenancyID, err)
		}
		if !empty {
			return nil, nil
		}
	}
	rows, err := c.s.q.QueueArrivals(ctx, c.conn, in)
	if err != nil {
		return nil, fmt.Errorf("read what comes to the queues of %s: %w", c.domain.TenancyID, err)
	}
	out := make([]arrivals, len(rows))
	for i, r := range rows {
		queues := r.Unlisted
		if r.Listed {
			queues = listed
		}
		out[i] = arrivals{r, queues > mostArriving}
		if out[i].sampled {
			out[i].Records, out[i].Beside = likeSampled(r.Records, queues), likeSampled(r.Beside, queues)
		}
	}
	return out, nil
}

// likeSampled is how many records all queues have, more of which than mostArriving are there, of which so many have
// these.
func likeSampled(records, queues int64) int64 {
	return (records*queues + mostArriving - 1) / mostArriving
}

// arrivals are a group of records that will come to a queue; sampled: they are as many as some queues let expect.
type arrivals struct {
	db.QueueArrivalsRow

	sampled bool
}

// arrive adds a group of records that will come to a queue. What people hold without an end never does.
func (c *counting) arrive(ctx context.Context, r *arrivals) error {
	key := taskKey{r.OrgID, r.DefinitionID, r.Version, r.StepNo, r.TaskNo}
	t := c.task(ctx, key).sized(c.bytes[key.of()])
	records := r.Records
	if t.inProcess {
		records += r.Beside
	}
	if t.task == nil || records == 0 || r.HeldUntil.Year() >= endlessYear {
		return nil
	}
	work := waitingWork{Work: Work{From: moment.Later(r.FromAt, r.HeldUntil)}}
	if r.Pacing != nil && r.PaceNextAt != nil {
		policy, err := c.policy(r.Pacing)
		if err != nil {
			return err
		}
		work.paced = &Paced{Policy: policy, NextAt: *r.PaceNextAt}
	}
	for _, name := range append([]string{r.Bucket}, t.also...) {
		c.comes(name, &t, records, work, r.OrgID)
		if w := c.buckets[name]; w != nil {
			w.sampled = w.sampled || r.sampled
		}
	}
	return nil
}

// addLaterCalls adds the calls that records which wait will make in later steps, under the same conditions.
func (c *counting) addLaterCalls(t *taskFacts, records int64, work waitingWork, orgID uuid.UUID) {
	for i := range t.later {
		for _, name := range c.domain.spends(t.later[i].task) {
			c.comes(name, &t.later[i], records, work, orgID)
		}
	}
}

// comes adds to a budget the calls of records that are not in its queue yet.
func (c *counting) comes(name string, t *taskFacts, records int64, work waitingWork, orgID uuid.UUID) {
	w, own := c.buckets[name], orgID == c.orgID
	if w == nil {
		return // the catalog has no such bucket any more
	}
	w.cost = max(w.cost, c.s.costOf(t.action, name, t.perCall))
	w.timeout, w.exclusive = max(w.timeout, t.timeout), w.exclusive || t.exclusive
	w.guessed = w.guessed || t.guessed
	if !own {
		w.others[orgID] = true
	}
	work.Calls, work.Background, work.Others = calls(records, t.perCall), own, !own
	if work.paced != nil { // none of it was released before
		work.paced = &Paced{Policy: work.paced.Policy, Records: records, PerCall: t.perCall, NextAt: work.paced.NextAt}
	}
	w.makes(t.action, work.Calls, !own)
	w.work = append(w.work, work)
}
