// Package subscription owns event subscriptions: flows that start when something happens in their organization. It
// promises that each event that package event left for a subscription is decided once, whatever crashes: it starts one
// batch, is left out, or is noted as a failure, and that the events of one subscription are decided in their order. It
// knows no HTTP, not who causes events, and of batches only how they start.
package subscription

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/cell"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// auditType is what the audit log calls a subscription.
const auditType = "event_subscription"

// Input is what authors set.
type Input struct {
	DefinitionID uuid.UUID
	Description  string
	// EventKind is one of event.Kinds.
	EventKind string
	// Filter is an expression, nil for none; Template is a JSON object, nil where the whole payload is the record.
	Filter   *string
	Template json.RawMessage
	Enabled  bool
}

// rules are the expressions of a subscription.
type rules struct {
	filter *expr.Condition
	input  *run.InputTemplate
}

// rules compiles the expressions. Fault: Unprocessable, with the place of each bad one.
func (in *Input) rules() (r rules, err error) {
	var bad, more []fault.Field
	if in.Filter != nil {
		r.filter, bad = compileFilter(*in.Filter)
	}
	r.input, more = compileTemplate(in.Template)
	return r, invalid(append(bad, more...))
}

func compileFilter(filter string) (*expr.Condition, []fault.Field) {
	out, errs := expr.CompileCondition(filter, expr.Scope{Payload: true})
	return out, run.BadExpressions(errs, "body", "filter")
}

func compileTemplate(template json.RawMessage) (*run.InputTemplate, []fault.Field) {
	return run.CompileInput(template, "body", "input_template")
}

func invalid(bad []fault.Field) error {
	if len(bad) > 0 {
		return fault.Invalidated(bad...)
	}
	return nil
}

// CheckFilter refuses a filter that is no condition. Fault: Unprocessable.
func CheckFilter(filter string) error {
	_, bad := compileFilter(filter)
	return invalid(bad)
}

// CheckTemplate refuses an input template with bad expressions. Fault: Unprocessable, with the place of each.
func CheckTemplate(template json.RawMessage) error {
	_, bad := compileTemplate(template)
	return invalid(bad)
}

// Subscription is a stored subscription.
type Subscription = db.FlowEventSubscription

// Service is what callers do with subscriptions, and what events do. What belongs to another organization is not found.
type Service struct {
	pool        pg.Pool
	q           *db.Queries
	definitions *definition.Service
	runs        *run.Service
	log         *slog.Logger
}

// New returns a Service.
func New(pool pg.Pool, definitions *definition.Service, runs *run.Service, log *slog.Logger) *Service {
	return &Service{pool: pool, q: db.New(), definitions: definitions, runs: runs, log: log}
}

// Create stores a subscription to what happens from now on. The definition need not be active. Faults: Unprocessable
// for the expressions, and for one subscription too many; NotFound for the definition.
func (s *Service) Create(ctx context.Context, orgID, by uuid.UUID, in Input,
	hooks ...pg.TxHook[*Subscription]) (*Subscription, error) {
	if _, err := in.rules(); err != nil {
		return nil, err
	}
	id := cell.NewID()
	var out *Subscription
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := orgquota.Subscriptions.ForOneMore(ctx, tx, orgID); err != nil {
			return err
		}
		if err := s.definitions.Hold(ctx, tx, orgID, in.DefinitionID); err != nil {
			return err
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		err = s.q.EventSubscriptionAdd(ctx, tx, db.EventSubscriptionAddParams{
			ID: id, OrgID: orgID, DefinitionID: in.DefinitionID, Description: in.Description, EventKind: in.EventKind,
			Filter:        in.Filter,
			InputTemplate: in.Template, Enabled: in.Enabled, CreatedBy: by, Now: now,
		})
		if err != nil {
			return fmt.Errorf("add event subscription: %w", err)
		}
		if out, err = s.changed(ctx, tx, orgID, id); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// changed audits a change, and returns what came of it.
func (s *Service) changed(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID) (*Subscription, error) {
	out, err := s.read(ctx, tx, orgID, id)
	if err != nil {
		return nil, err
	}
	return out, account.Audit(ctx, tx, auditType, id.String())
}

// Get returns one subscription. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID, id uuid.UUID) (*Subscription, error) {
	return s.read(ctx, s.pool, orgID, id)
}

func (s *Service) read(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (*Subscription, error) {
	row, err := s.q.EventSubscriptionGet(ctx, q, db.EventSubscriptionGetParams{OrgID: orgID, ID: id})
	if err != nil {
		return nil, stored(err, "read event subscription")
	}
	return &row, nil
}

func stored(err error, what string) error {
	if pg.IsNoRows(err) {
		return fault.Missing("Event subscription")
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Filter says what a list shows.
type Filter struct {
	// DefinitionID is nil for subscriptions of all definitions.
	DefinitionID *uuid.UUID
	// EventKind is nil for all kinds.
	EventKind *string
	Created   listing.Range
}

// List returns a page of the subscriptions.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter, at listing.Page) ([]Subscription, error) {
	rows, err := s.rows(ctx, db.EventSubscriptionListParams{OrgID: orgID, Least: at.Least, Most: at.Most,
		DefinitionID: f.DefinitionID,
		EventKind:    f.EventKind, CreatedAfter: at.CreatedAfter, CreatedBefore: at.CreatedBefore, Skip: at.Skip,
		MaxRows: at.MaxRows}, at.Newest)
	if err != nil {
		return nil, fmt.Errorf("list event subscriptions: %w", err)
	}
	return rows, nil
}

// Count is how many subscriptions a list has in all.
func (s *Service) Count(ctx context.Context, orgID uuid.UUID, f Filter) (int64, error) {
	total, err := s.q.EventSubscriptionCount(ctx, pg.CustomPlan{Pool: s.pool}, db.EventSubscriptionCountParams{
		OrgID: orgID, Least: f.Created.Least, Most: f.Created.Most, DefinitionID: f.DefinitionID,
		EventKind: f.EventKind, CreatedAfter: f.Created.CreatedAfter, CreatedBefore: f.Created.CreatedBefore})
	return total, fault.Wrap(err, "count event subscriptions")
}

func (s *Service) rows(ctx context.Context, in db.EventSubscriptionListParams, newest bool) ([]Subscription, error) {
	conn := pg.CustomPlan{Pool: s.pool}
	if newest {
		return s.q.EventSubscriptionListNewest(ctx, conn, db.EventSubscriptionListNewestParams(in))
	}
	return s.q.EventSubscriptionList(ctx, conn, in)
}

// Update replaces what authors set of a subscription by what change makes of it. Events that are not decided yet are
// decided on the new terms. Faults: as Create, and NotFound.
func (s *Service) Update(ctx context.Context, orgID, id uuid.UUID, change func(Input) Input) (*Subscription, error) {
	var out *Subscription
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.q.EventSubscriptionLock(ctx, tx, db.EventSubscriptionLockParams{OrgID: orgID, ID: id})
		if err != nil {
			return stored(err, "lock event subscription")
		}
		was := inputOf(&row)
		in := change(was)
		if _, err := in.rules(); err != nil {
			return err
		}
		if in.DefinitionID != row.DefinitionID {
			if err := s.definitions.Hold(ctx, tx, orgID, in.DefinitionID); err != nil {
				return err
			}
		}
		if !reflect.DeepEqual(in, was) {
			if err := s.update(ctx, tx, orgID, id, &in); err != nil {
				return err
			}
		}
		out, err = s.changed(ctx, tx, orgID, id)
		return err
	})
	return out, err
}

func (s *Service) update(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID, in *Input) error {
	now, err := s.q.Clock(ctx, tx)
	if err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	err = s.q.EventSubscriptionUpdate(ctx, tx, db.EventSubscriptionUpdateParams{
		OrgID: orgID, ID: id, DefinitionID: in.DefinitionID, Description: in.Description, EventKind: in.EventKind,
		Filter:        in.Filter,
		InputTemplate: in.Template, Enabled: in.Enabled, Now: now,
	})
	if err != nil {
		return fmt.Errorf("change event subscription: %w", err)
	}
	return nil
}

func inputOf(row *Subscription) Input {
	return Input{DefinitionID: row.DefinitionID, Description: row.Description, EventKind: row.EventKind,
		Filter: row.Filter, Template: row.InputTemplate,
		Enabled: row.Enabled}
}

// Delete removes a subscription, with the events that are not decided yet; its batches stay. Fault: NotFound.
func (s *Service) Delete(ctx context.Context, orgID, id uuid.UUID) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.q.EventSubscriptionLock(ctx, tx, db.EventSubscriptionLockParams{OrgID: orgID,
			ID: id}); err != nil {
			return stored(err, "lock event subscription")
		}
		if err := s.q.EventSubscriptionDelete(ctx, tx, db.EventSubscriptionDeleteParams{OrgID: orgID,
			ID: id}); err != nil {
			return fmt.Errorf("delete event subscription: %w", err)
		}
		return account.Audit(ctx, tx, auditType, id.String())
	})
}
