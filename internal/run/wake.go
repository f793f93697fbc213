package run

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/event"
	"flowlane/internal/pg"
)

// Wake makes (kind, key) due at a time once the change is applied, keeping the earlier of two times. All wake-ups of a
// transaction go through here: due rows are locked in one order.
func (c *Change) Wake(kind, key string, at time.Time) {
	keepEarliest(c.wakes, dueKey{kind, key}, at)
}

// waking makes everything due that the change gave work to.
func (c *Change) waking(ctx context.Context) (w wakings, err error) {
	for k, at := range c.wakeAt {
		route, err := c.route(ctx, k)
		if err != nil {
			return w, err
		}
		c.Wake(DueDispatch, DispatchKey(route.Domain, route.Bucket), at)
	}
	for id := range c.work {
		c.Wake(DueSlices, id.String(), c.Now)
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.wakes), compareDue) {
		at := c.wakes[k]
		if at.Before(c.Now) {
			at = c.Now
		}
		w.add(ctx, c.s.due, k, at)
	}
	return w, nil
}

// wake does so by itself.
func (c *Change) wake(ctx context.Context) error {
	w, err := c.waking(ctx)
	if err != nil {
		return err
	}
	return w.send(ctx, c.tx)
}

// wakings are wake-ups that go out together.
type wakings struct {
	asks   []pg.Ask
	starts []func(context.Context, pgx.Tx) error
}

func (w *wakings) add(ctx context.Context, waker Waker, k dueKey, at time.Time) {
	ask, start := waker.Waking(k.kind, k.key, at)
	w.asks = append(w.asks, func(db pg.DB) error { return ask(ctx, db) })
	w.starts = append(w.starts, start)
}

// start starts what is due at once, after the asks.
func (w *wakings) start(ctx context.Context, tx pgx.Tx) error {
	for _, start := range w.starts {
		if err := start(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// send sends them by themselves.
func (w *wakings) send(ctx context.Context, tx pgx.Tx) error {
	if err := pg.Together(ctx, tx, w.asks...); err != nil {
		return err
	}
	return w.start(ctx, tx)
}

// wake adds keys of one kind, in the order in which due rows are locked.
func (s *Service) wake(ctx context.Context, w *wakings, keys []dueKey, at time.Time) {
	slices.SortFunc(keys, compareDue)
	for _, k := range slices.Compact(keys) {
		w.add(ctx, s.due, k, at)
	}
}

// wakeAll makes keys of one kind due.
func (s *Service) wakeAll(ctx context.Context, tx pgx.Tx, keys []dueKey, at time.Time) error {
	var w wakings
	s.wake(ctx, &w, keys, at)
	return w.send(ctx, tx)
}

func compareDue(a, b dueKey) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.key, b.key))
}

// publishEnded leaves the events of batches that are over, and has those who listen, or wait for the batches, woken with the rest.
func (c *Change) publishEnded(ctx context.Context) error {
	rows, err := event.BatchesEnded(ctx, c.tx, c.ended)
	if err != nil {
		return err
	}
	c.wakeListeners(rows)
	return c.endParentWaits(ctx)
}

// publish leaves other events, and has those who listen woken with the rest.
func (c *Change) publish(ctx context.Context, events ...event.Event) error {
	rows, err := event.Emit(ctx, c.tx, events...)
	c.wakeListeners(rows)
	return err
}

func (c *Change) wakeListeners(rows []event.DueRow) {
	for _, r := range rows {
		c.Wake(r.Kind, r.Key, c.Now)
	}
}

// publishEnded is for a batch that is over when it is started, and wakes nobody else.
func (s *Service) publishEnded(ctx context.Context, tx pgx.Tx, now time.Time, batchID uuid.UUID) error {
	rows, err := event.BatchesEnded(ctx, tx, []uuid.UUID{batchID})
	if err != nil {
		return err
	}
	keys := make([]dueKey, len(rows))
	for i, r := range rows {
		keys[i] = dueKey{r.Kind, r.Key}
	}
	return s.wakeAll(ctx, tx, keys, now)
}

// What is told of records that are left to people is bounded, because a batch may have a million of them: an event for each task of a
// change, which names the first unresolvedNamed, and none while unresolvedMost jobs of the batch stand so.
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
func (c *Change) leave(ps []Part) {
	for i := range ps {
		p := &ps[i]
		l := entry(c.left, laneKey{p.BatchID, p.StepNo, p.TaskNo})
		l.count += int64(p.Records())
		if room := unresolvedNamed - len(l.jobs); room > 0 {
			offsets := p.Offsets()
			for _, o := range offsets[:min(room, len(offsets))] {
				l.jobs = append(l.jobs, JobID(p.BatchID, p.First+int64(o)))
			}
		}
	}
}

// publishUnresolved leaves the events of records that are left to people.
func (c *Change) publishUnresolved(ctx context.Context) error {
	var events []event.Event
	for _, k := range slices.SortedFunc(maps.Keys(c.left), laneKey.compare) {
		h, l := c.heads[k.batch], c.left[k]
		if h.counts.Of(Unresolved)-h.abandoned >= unresolvedMost {
			continue
		}
		step := &h.plan.Steps[k.step]
		events = append(events, event.Event{OrgID: h.OrgID, Kind: event.JobUnresolved, Depth: h.EventDepth, Payload: struct {
			BatchID           uuid.UUID `json:"batch_id"`
			DefinitionID      uuid.UUID `json:"definition_id"`
			DefinitionVersion int32     `json:"definition_version"`
			StepID            string    `json:"step_id"`
			TaskID            string    `json:"task_id"`
			JobCount          int64     `json:"job_count"`
			JobIDs            []string  `json:"job_ids"`
			UnresolvedCount   int64     `json:"unresolved_count"`
		}{h.ID, h.DefinitionID, h.Version, step.ID, step.Tasks[k.task].ID, l.count, l.jobs, h.counts.Of(Unresolved)}})
	}
	return c.publish(ctx, events...)
}
