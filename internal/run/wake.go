package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/batch"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
)

// wakeUps are what a transaction makes due, each at the earliest of its times.
type wakeUps map[dueKey]time.Time

func (w wakeUps) add(kind, key string, at time.Time) { keepEarliest(w, dueKey{kind, key}, at) }

// send sends what later holds, and with it questions, the wake-ups, whose due rows are locked in one order, and what
// comes last, unless it is nil. None is due before now.
func (s *Service) send(ctx context.Context, tx pgx.Tx, later *pg.Pipeline, wakes wakeUps, now time.Time,
	asks []pg.Query, last pg.Query) error {
	var starts []func(context.Context, pgx.Tx) error
	for _, k := range slices.SortedFunc(maps.Keys(wakes), dueKey.compare) {
		at := wakes[k]
		if at.Before(now) {
			at = now
		}
		ask, start := s.due.Waking(k.kind, k.key, at)
		asks = append(asks, func(db pg.DB) error { return ask(ctx, db) })
		starts = append(starts, start)
	}
	if last != nil {
		asks = append(asks, last)
	}
	if err := later.Send(ctx, tx, asks...); err != nil {
		return err
	}
	for _, start := range starts {
		if err := start(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// Wake makes (kind, key) due at a time once the change is applied. All wake-ups of a transaction go through here.
func (c *Change) Wake(kind, key string, at time.Time) { c.wakes.add(kind, key, at) }

// wakeBatch makes work of a kind in a batch due.
func (c *Change) wakeBatch(kind string, batchID uuid.UUID) { c.Wake(kind, batchID.String(), c.Now) }

// wakeQueues makes the queues due in which the change left parts, and those of the batches that it opened from which
// calls may go.
func (c *Change) wakeQueues(ctx context.Context) error {
	ids := slices.Clone(c.opened)
	for k := range c.wakeAt {
		ids = append(ids, k.batch)
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := c.s.q.LaneBatchOfBatches(ctx, c.tx, ids)
	if err != nil {
		return fmt.Errorf("read queues: %w", err)
	}
	for _, r := range rows {
		k := queueKey{r.BatchID, r.StepNo, r.TaskNo}
		at, left := c.wakeAt[k]
		if left || r.Ready && slices.Contains(c.opened, r.BatchID) {
			c.Wake(DueDispatch, DispatchKey(r.Domain, r.Bucket), at)
		}
		delete(c.wakeAt, k)
	}
	for k := range c.wakeAt {
		return fmt.Errorf("batch %s has no queue for step %d task %d", k.batch, k.step, k.task)
	}
	return nil
}

// send sends the last statements, and makes everything due that the change gave work to.
func (c *Change) send(ctx context.Context) error {
	if err := c.wakeQueues(ctx); err != nil {
		return err
	}
	return c.s.send(ctx, c.tx, c.later, c.wakes, c.Now, nil, nil)
}

// publishEnded leaves the events of batches that are over, and has those who listen, or wait for the batches, woken
// with the rest.
func (c *Change) publishEnded(ctx context.Context) error {
	rows, err := event.BatchesEnded(ctx, c.tx, c.s.losses.Last(), c.ended)
	if err != nil {
		return err
	}
	c.wakes.listeners(rows, c.Now)
	return c.endParentWaits(ctx)
}

// publish leaves other events, and has those who listen woken with the rest.
func (c *Change) publish(ctx context.Context, events ...event.Event) error {
	rows, err := event.Emit(ctx, c.tx, events...)
	c.wakes.listeners(rows, c.Now)
	return err
}

// listeners wakes those for whom events were left.
func (w wakeUps) listeners(rows []event.DueRow, now time.Time) {
	for _, r := range rows {
		w.add(r.Kind, r.Key, now)
	}
}

// What is told of records that are left to people is bounded, because a batch may have a million of them: an event for
// each task of a change, which names the first unresolvedNamed, and none while unresolvedMost jobs of the batch stand
// so.
const (
	unresolvedNamed = 100
	unresolvedMost  = 1000
)

// leftToPeople are records of a task that nobody but a person can find out about.
type leftToPeople struct {
	count int64
	jobs  []string
}

// leave notes parts whose records are left to people.
func (c *Change) leave(ps []batch.Part) {
	for i := range ps {
		p := &ps[i]
		l := entry(c.left, queueKey{p.BatchID, p.StepNo, p.TaskNo})
		l.count += int64(p.Records())
		if room := unresolvedNamed - len(l.jobs); room > 0 {
			offsets := p.Offsets()
			for _, o := range offsets[:min(room, len(offsets))] {
				l.jobs = append(l.jobs, batch.JobID(p.BatchID, p.First+int64(o)))
			}
		}
	}
}

// publishUnresolved leaves the events of records that are left to people.
func (c *Change) publishUnresolved(ctx context.Context) error {
	var events []event.Event
	for _, k := range slices.SortedFunc(maps.Keys(c.left), queueKey.compare) {
		h, l := c.heads[k.batch], c.left[k]
		if h.counts.Of(batch.Unresolved)-h.abandoned >= unresolvedMost {
			continue
		}
		step := &h.plan.Steps[k.step]
		events = append(events, event.Event{OrgID: h.OrgID, Kind: event.JobUnresolved, Chain: h.chain(),
			Payload: struct {
				BatchID           uuid.UUID `json:"batch_id"`
				DefinitionID      uuid.UUID `json:"definition_id"`
				DefinitionVersion int32     `json:"definition_version"`
				StepID            string    `json:"step_id"`
				TaskID            string    `json:"task_id"`
				JobCount          int64     `json:"job_count"`
				JobIDs            []string  `json:"job_ids"`
				UnresolvedCount   int64     `json:"unresolved_count"`
			}{h.ID, h.DefinitionID, h.Version, step.ID, step.Tasks[k.task].ID, l.count, l.jobs,
				h.counts.Of(batch.Unresolved)}})
	}
	return c.publish(ctx, events...)
}
