package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/run"
)

// Router finds the queues of tasks and makes sure that their budgets exist.
type Router struct {
	Catalog *catalog.Catalog
	// BulkInFlight and SmallInFlight limit the calls in flight of new metered budgets.
	BulkInFlight, SmallInFlight int
	known                       sync.Map
}

// Routes implements run.Router. Budgets are made in one order, so that two starts that make the same ones do not wait
// for each other.
func (r *Router) Routes(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, plan *definition.Plan,
	tasks []*definition.Task, lane *db.FlowLane) ([]run.Route, error) {
	routes, budgets := make([]run.Route, len(tasks)), make([]db.BudgetEnsureParams, len(tasks))
	for i, task := range tasks {
		var err error
		if routes[i], budgets[i], err = r.route(ctx, tx, orgID, plan, task, lane); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(budgets, func(a, b db.BudgetEnsureParams) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bucket, b.Bucket))
	})
	for _, b := range budgets {
		if err := r.ensure(ctx, tx, b); err != nil {
			return nil, err
		}
	}
	return routes, nil
}

// route finds the queue of a task, and its budget as it is to be made.
func (r *Router) route(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, plan *definition.Plan, task *definition.Task,
	lane *db.FlowLane) (out run.Route, budget db.BudgetEnsureParams, err error) {
	// The trigger chooses before the definition, and that before the catalog.
	out = run.Route{Lane: cmp.Or(pg.Value(lane), db.FlowLane(plan.Lane), db.FlowLane(r.Catalog.Lane(task.Action)))}
	budget = db.BudgetEnsureParams{ServiceID: task.Action.ServiceID, TimeZone: "UTC"}
	platform := task.Action.Platform()
	switch {
	case platform != nil && platform.OwnerLimited() && task.CredentialID.Valid:
		domain, err := r.account(ctx, tx, orgID, task)
		if err != nil {
			return out, budget, err
		}
		out.Domain, out.Bucket, budget.OrgID = domain.TenancyID, task.Action.OwnerBudget(), &orgID
		budget.MaxInFlight = int32(max(task.Action.Call.MaxInFlight, 1))
	case len(task.Action.Buckets) == 0:
		out.Domain, out.Bucket = unmetered(orgID, task), task.Action.OwnerBudget()
		budget.MaxInFlight = int32(max(task.Action.Call.MaxInFlight, 1))
		if task.CredentialID.Valid {
			budget.CredentialID = &task.CredentialID.UUID
		}
	default:
		domain, err := r.account(ctx, tx, orgID, task)
		if err != nil {
			return out, budget, err
		}
		out.Domain, out.Bucket = domain.TenancyID, task.Action.Buckets[0]
		budget.Metered, budget.TimeZone, budget.MaxInFlight = true, domain.TimeZone, int32(r.SmallInFlight)
		if task.Action.Bulk {
			budget.MaxInFlight = int32(r.BulkInFlight)
		}
	}
	budget.Domain, budget.Bucket = out.Domain, out.Bucket
	return out, budget, nil
}

// account returns the provider account that a task spends from.
func (r *Router) account(ctx context.Context, tx pgx.Tx, orgID uuid.UUID,
	task *definition.Task) (db.FlowDomain, error) {
	if !task.CredentialID.Valid {
		return db.FlowDomain{}, fault.New(fault.Conflict, "Credential has no provider account").Known(
			fault.CredentialNotIdentified)
	}
	row, err := db.New().CredentialDomain(ctx, tx, db.CredentialDomainParams{ID: task.CredentialID.UUID, OrgID: orgID})
	if pg.IsNoRows(err) {
		return db.FlowDomain{}, fault.Missing("Credential")
	}
	if err != nil {
		return db.FlowDomain{}, fmt.Errorf("read the account of credential %s: %w", task.CredentialID.UUID, err)
	}
	if row.Status != "active" {
		return db.FlowDomain{}, fault.New(fault.Conflict,
			"Credential is %s: set its status to active, or choose another", row.Status)
	}
	if row.TenancyID == nil {
		return db.FlowDomain{}, fault.New(fault.Conflict, "Credential has no provider account").Known(
			fault.CredentialNotIdentified)
	}
	return db.FlowDomain{TenancyID: *row.TenancyID, TimeZone: *row.TimeZone}, nil
}

// unmetered names the budget of calls that no provider meters: that of the credential, else of the host where the
// address names it literally, else of the organization.
func unmetered(orgID uuid.UUID, task *definition.Task) string {
	if task.CredentialID.Valid {
		return run.CredentialDomain(orgID, task.CredentialID.UUID)
	}
	if task.Host != "" {
		return ofHost + orgMark(orgID) + ":" + task.Host
	}
	return ofOrganization + orgMark(orgID)
}

// CredentialRoute is where calls of an action with a credential wait that can be used.
func CredentialRoute(c *credential.Resolved, a *catalog.Action, lane db.FlowLane) run.Route {
	out := run.Route{Domain: c.TenancyID, Bucket: a.OwnerBudget(), Lane: lane}
	switch {
	case len(a.Buckets) > 0:
		out.Bucket = a.Buckets[0]
	case !a.Platform().OwnerLimited():
		out.Domain = run.CredentialDomain(c.OrgID, c.ID)
	}
	return out
}

// ensure makes sure that the budget is there; those that were seen once are not asked for again.
func (r *Router) ensure(ctx context.Context, tx pgx.Tx, b db.BudgetEnsureParams) error {
	key := budgetKey{b.Domain, b.Bucket}
	if _, ok := r.known.Load(key); ok {
		return nil
	}
	q := db.New()
	if err := q.BudgetEnsure(ctx, tx, b); err != nil {
		return fmt.Errorf("make budget %s %s: %w", b.Domain, b.Bucket, err)
	}
	if exists, err := q.BudgetCommitted(ctx, tx, db.BudgetCommittedParams{Domain: b.Domain,
		Bucket: b.Bucket}); err == nil && exists {
		r.known.Store(key, true)
	}
	return nil
}
