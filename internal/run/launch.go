package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
)

// launch is what all starts of one version of a definition in one lane have in common. Once it is there, nothing about a start is
// refused but its record set: a transaction that starts batches for several records makes their launches before it writes anything.
type launch struct {
	plan *definition.Plan
	// vars are nil where the flow has no variables.
	vars json.RawMessage
	// queues are those of the tasks that make calls, in their order.
	queues []queue
}

type queue struct {
	step, task int16
	TaskRoute
}

// launch finds, and prepares, what a start needs. Faults: NotFound and Conflict of the plan, its variables and its credentials.
func (s *Service) launch(ctx context.Context, tx pgx.Tx, orgID, definitionID uuid.UUID, version int32, lane *db.FlowLane) (*launch, error) {
	plan, err := s.plans.Plan(ctx, tx, orgID, definitionID, version)
	if err != nil {
		return nil, fmt.Errorf("plan of definition %s: %w", definitionID, err)
	}
	if err := plan.Runnable(); err != nil {
		return nil, err
	}
	l := &launch{plan: plan}
	if l.vars, err = Vars(ctx, tx, plan); err != nil {
		return nil, err
	}
	l.queues, err = s.queuesOf(ctx, tx, orgID, plan, lane)
	return l, err
}

// queuesOf finds, and prepares, the queues of a plan.
func (s *Service) queuesOf(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, plan *definition.Plan, lane *db.FlowLane) (out []queue, err error) {
	for i := range plan.Steps {
		step := &plan.Steps[i]
		for _, t := range callTasks(step) {
			q := queue{step: int16(i), task: t, TaskRoute: TaskRoute{StepNo: i, Task: &step.Tasks[t]}} //nolint:gosec // at most 50 steps
			if q.Route, err = s.router.Route(ctx, tx, orgID, plan, q.Task, lane); err != nil {
				return nil, err
			}
			out = append(out, q)
		}
	}
	return out, nil
}

// Refusal says to people why a start failed. inside tells that nobody outside of the service can mend it: then the error is for the
// log alone.
func Refusal(err error) (reason string, inside bool) {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return f.Detail, false
	}
	return "The flow could not be started; the service has logged why", true
}

// Refused is a start that is refused though nobody who could be told asked for it.
type Refused struct {
	OrgID, DefinitionID uuid.UUID
	TriggerType         db.FlowTriggerType
	TriggerSource       string
	CreatedBy           uuid.UUID
	Reason              string
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// NoteRefused leaves a trigger that says why nothing started.
func (s *Service) NoteRefused(ctx context.Context, tx db.DBTX, r Refused) error {
	n, err := s.q.RefusedStartAdd(ctx, tx, db.RefusedStartAddParams{ID: newID(), OrgID: r.OrgID, DefinitionID: r.DefinitionID, TriggerType: r.TriggerType,
		TriggerSource: r.TriggerSource, Reason: r.Reason, CreatedBy: r.CreatedBy})
	if err != nil {
		return fmt.Errorf("note a refused start: %w", err)
	}
	if n != 1 {
		return fmt.Errorf("note a refused start: definition %s is not there", r.DefinitionID)
	}
	return nil
}
