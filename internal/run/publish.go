package run

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/event"
)

// tellEnded leaves the events of batches that are over, and has those who listen, or wait for the batches, woken with the rest.
func (c *Change) tellEnded(ctx context.Context) error {
	heard, err := event.BatchesEnded(ctx, c.tx, c.ended)
	if err != nil {
		return err
	}
	c.heard(heard)
	return c.endParentWaits(ctx)
}

// tell leaves other events, and has those who listen woken with the rest.
func (c *Change) tell(ctx context.Context, events ...event.Event) error {
	heard, err := event.Emit(ctx, c.tx, events...)
	c.heard(heard)
	return err
}

func (c *Change) heard(rows []event.DueRow) {
	for _, r := range rows {
		c.Wake(r.Kind, r.Key, c.Now)
	}
}

// tellEnded is for a batch that is over when it is started, and wakes nobody else.
func (s *Service) tellEnded(ctx context.Context, tx pgx.Tx, now time.Time, batchID uuid.UUID) error {
	heard, err := event.BatchesEnded(ctx, tx, []uuid.UUID{batchID})
	if err != nil {
		return err
	}
	keys := make([]dueKey, len(heard))
	for i, r := range heard {
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

// tellUnresolved leaves the events of records that are left to people.
func (c *Change) tellUnresolved(ctx context.Context) error {
	var events []event.Event
	for _, k := range slices.SortedFunc(maps.Keys(c.left), laneKey.compare) {
		h, l := c.heads[k.batch], c.left[k]
		if h.unresolved-h.abandoned >= unresolvedMost {
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
		}{h.ID, h.DefinitionID, h.Version, step.ID, step.Tasks[k.task].ID, l.count, l.jobs, h.unresolved}})
	}
	return c.tell(ctx, events...)
}
